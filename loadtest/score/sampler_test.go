package score

import (
	"slices"
	"testing"
	"time"

	"github.com/offpath-io/offpath/loadtest/scenario"
)

const ms = time.Millisecond

// firstSecond is the first of the measured part.
const firstSecond = 2 * time.Second

// times returns when the sampled hits came, in ms since the measured part began.
func (s *sampler) times() []int64 {
	var list []int64
	for _, h := range s.hits {
		list = append(list, (h.At-at(firstSecond))/int64(ms))
	}
	return list
}

// TestSampled: which hits of a key with a limit of 10 a second are looked at. Each step is n hits,
// 1 ms after each other.
func TestSampled(t *testing.T) {
	type step struct {
		at      time.Duration // since the start; the measured part is from 2 s to 6 s
		n       int
		allowed bool
	}
	for _, test := range []struct {
		name  string
		steps []step
		want  []int64
	}{
		{"from half of the limit on", []step{{firstSecond, 8, true}}, []int64{4, 5, 6, 7}},
		{"above it too", []step{{firstSecond, 12, true}}, []int64{4, 5, 6, 7, 8, 9, 10, 11}},
		{"a denied one goes nowhere", []step{{firstSecond, 6, true}, {firstSecond + 10*ms, 3, false}}, []int64{4, 5}},
		{"denied ones do not fill the limit", []step{{firstSecond, 6, false}, {firstSecond + 10*ms, 4, true}}, nil},
		{"the next window begins anew", []step{{firstSecond, 5, true}, {firstSecond + time.Second, 4, true}}, []int64{4}},
		{"not in the warm-up", []step{{firstSecond - 100*ms, 10, true}}, nil},
		{"the warm-up's last and the measured part's first", []step{{firstSecond - 5*ms, 5, true}, {firstSecond, 5, true}}, []int64{4}},
		{"not after the measured part", []step{{6*time.Second - 6*ms, 6, true}, {6 * time.Second, 10, true}}, []int64{3998, 3999}},
	} {
		s := newScore(tenASecond(2, 1))
		for _, st := range test.steps {
			for i := range st.n {
				s.Hit(at(st.at+time.Duration(i)*ms), scenario.Hit{Cost: 1}, st.allowed)
			}
		}
		if got := s.lag.times(); !slices.Equal(got, test.want) {
			t.Errorf("%s: sampled at %v ms, want %v", test.name, got, test.want)
		}
	}
}

// TestHolders: a checker holds a key if it was asked for it within the last window.
func TestHolders(t *testing.T) {
	const many = 2*TracedCheckers + 1
	s, traced := newScore(tenASecond(many, 1)), traced(many)
	ask := func(when time.Duration, checker int, allowed bool) {
		s.Hit(at(when), scenario.Hit{Checker: int32(checker), Cost: 1}, allowed)
	}
	ask(firstSecond+100*ms, traced[5], true)       // too long ago
	ask(firstSecond+200*ms, traced[2], true)       // just too long ago
	ask(firstSecond+200*ms+1, traced[3], true)     // just not
	ask(firstSecond+1000*ms, untraced(many), true) // nobody listens to that one
	ask(firstSecond+1100*ms, traced[1], false)     // it was asked, if in vain
	for i := range 3 {
		ask(firstSecond+1200*ms-time.Duration(3-i), traced[4], true)
	}
	ask(firstSecond+1200*ms, traced[4], true) // the fifth in its window
	if len(s.lag.hits) != 1 {
		t.Fatalf("sampled %+v, want one hit", s.lag.hits)
	}
	h := s.lag.hits[0]
	if h.Checker != traced[4] || h.Key != 0 || h.At != at(firstSecond+1200*ms) || h.Bucket != at(firstSecond)/int64(time.Second)+1 {
		t.Errorf("sampled %+v", h)
	}
	if want := []int{traced[1], traced[3]}; !slices.Equal(h.Holders, want) {
		t.Errorf("held by %v, want %v", h.Holders, want)
	}
}

// untraced returns a checker that nobody listens to, of many.
func untraced(checkers int) (i int) {
	for slices.Contains(traced(checkers), i) {
		i++
	}
	return i
}

// TestManySamples: however many there are, a bounded number is kept, evenly spread over the run.
func TestManySamples(t *testing.T) {
	for _, n := range []int{mostSamples - 1, mostSamples, 16*mostSamples - 1, 50_001} {
		sc := tenASecond(2, 1)
		s := newSampler(sc, scenario.New(sc, 1))
		for i := range n {
			s.note(at(firstSecond)+int64(i), 0, scenario.Hit{Cost: 1}, true, true)
		}
		if len(s.hits) >= mostSamples || len(s.hits) < mostSamples/2-1 {
			t.Errorf("%d of %d are kept", len(s.hits), n)
		}
		for i, h := range s.hits {
			if gap := n / len(s.hits); i > 0 && int(h.At-s.hits[i-1].At) > 2*gap {
				t.Fatalf("of %d: sample %d comes %d hits after the one before", n, i, h.At-s.hits[i-1].At)
			}
		}
	}
}
