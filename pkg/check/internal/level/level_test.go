package level

import (
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/window"
)

const (
	ms     = int64(time.Millisecond)
	second = int64(time.Second)
	noon   = 20_000*24*3600*second + 12*3600*second
)

// of returns a State without hits at noon, and its situation: 10 hits drain per second, in buckets
// of 100 ms, and there is room for 20. There are 4 checkers.
func of(kind window.Kind) (*State, *Situation) {
	d := window.Drain{
		Shape: window.Shape{Length: time.Second, Buckets: 10, Kind: kind}, Limit: 10, Burst: 20,
	}
	counts := make([]int64, d.Shape.Live())
	s := &Situation{
		Drain: &d, Newest: d.Shape.Bucket(noon), Net: counts, Own: counts,
		Checkers: 4, Shared: true,
	}
	l := new(State)
	l.Reset(s.Newest - int64(len(counts)))
	return l, s
}

// TestOwnHitsSaturate: no number of checkers in a message makes many hits few.
func TestOwnHitsSaturate(t *testing.T) {
	for _, n := range []int64{1, 8, 1<<32 - 1} {
		got := (&Situation{Own: []int64{1, window.MaxCount}, Checkers: n}).scaledOwn()
		if got[0] != n || got[1] <= window.MaxCount/2 {
			t.Errorf("%d checkers: %d", n, got)
		}
	}
}

// TestTurnsComeForward when less was used than was charged, but for those that are far apart
// because each checker keeps to its share; and where there is no level there are no turns.
func TestTurnsComeForward(t *testing.T) {
	(*State)(nil).BringTurnForward(&Situation{}, noon)
	for _, share := range []bool{false, true} {
		l, s := of(window.Leaky)
		s.Share = share
		l.Took(s, noon, 8, 0)
		s.Net[0] = 2 // what was used
		l.BringTurnForward(s, noon)
		want := 300 * ms // they drain from the end of their bucket on
		if share {
			want = 3200 * ms // 8 of 10 per second and 4 checkers
		}
		if got := l.turn - noon; got != want {
			t.Errorf("share: %v: the next turn is in %d ms, want %d", share, got/ms, want/ms)
		}
	}
}

// TestObserve: a level of an earlier bucket is brought forward by what is said of those after it,
// unless that is vague, and by what the counter knows when it has more.
func TestObserve(t *testing.T) {
	for why, test := range map[string]struct {
		ago, parts int64 // before the settled bucket
		vague      bool
		want       int64
	}{
		"newer":        {-1, 70, false, 70},
		"as old":       {0, 70, false, 70},
		"older":        {2, 70, false, 70 - 2*10 + 2*30},
		"older, vague": {2, 70, true, 0},
		"none":         {0, -1, false, 0},
	} {
		l, s := of(window.Token)
		told := window.Level{Bucket: l.level.Bucket - test.ago, Parts: test.parts}
		l.Observe(s, told, func(int64) int64 { return 3 }, test.vague)
		if l.level.Parts != test.want || l.IsEmpty() != (test.want == 0) {
			t.Errorf("%s: %+v, want %d parts", why, l.level, test.want)
		}
	}
}

// TestGivenBackTurnsAreFree, unless another hit has come after them.
func TestGivenBackTurnsAreFree(t *testing.T) {
	l, s := of(window.Leaky)
	first := l.Took(s, noon, 1, 0)
	other := l.Took(s, noon, 2, 100*time.Millisecond)
	for _, step := range []struct {
		charge     Noted
		hits, want int64
	}{{first, 1, 300 * ms}, {other, 2, 100 * ms}} {
		l.GiveBack(s.Drain, step.charge, 0, step.hits)
		if got := l.turn - noon; got != step.want {
			t.Errorf("after %d hits: next turn in %d ms, want %d", step.hits, got/ms, step.want/ms)
		}
	}
}
