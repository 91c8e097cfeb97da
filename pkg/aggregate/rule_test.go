package aggregate

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/window"
)

func TestLearnTakesTheHighestRevision(t *testing.T) {
	say := []Rule{{Limit: 10, Burst: 5, Revision: 1}, {Limit: 7, Burst: 9, Revision: 2}, {Limit: 8, Burst: 3, Revision: 2}, {Limit: 99, Burst: 99}}
	for _, order := range [][]int{{0, 1, 2, 3}, {3, 2, 1, 0}, {2, 0, 3, 1}, {1, 3, 0, 2}} {
		var r Rule
		for _, i := range order {
			r.learn(say[i].Limit, say[i].Burst, say[i].Revision)
		}
		if want := (Rule{Limit: 8, Burst: 9, Revision: 2}); !reflect.DeepEqual(r, want) {
			t.Errorf("in the order %v: %+v, want %+v", order, r, want)
		}
	}
}

func TestSettleTo(t *testing.T) {
	r := Rule{Shape: window.Shape{Length: 10 * time.Second, Buckets: 10, Kind: window.Token}, Limit: 20, Burst: 5}
	cells, back := []Cell{{3, 9}, {4, 1}, {7, 2}}, []Cell{{2, 1}, {3, 5}, {5, 3}}
	for _, tt := range []struct {
		why    string
		level  window.Level
		bucket int64
		want   window.Level
		after  int
	}{
		{"nothing yet", Untold, 2, window.Level{Bucket: 2}, 3},
		{"4 hits: 9, of which 5 were given back", Untold, 3, window.Level{Bucket: 3, Parts: 40}, 2},
		{"2 drain in a bucket", Untold, 4, window.Level{Bucket: 4, Parts: 30}, 1},
		{"and all until the third", Untold, 6, window.Level{Bucket: 6}, 1},
		{"all of them", Untold, 7, window.Level{Bucket: 7, Parts: 20}, 0},
		{"settled before", window.Level{Bucket: 4, Parts: 50}, 5, window.Level{Bucket: 5, Parts: 30}, 1},
		{"settled by a worker whose clock is ahead: what is in the level is in no count", window.Level{Bucket: 4, Parts: 50}, 2, window.Level{Bucket: 4, Parts: 50}, 1},
	} {
		level, after := r.SettleTo(tt.level, cells, back, tt.bucket)
		if level != tt.want || !slices.Equal(after, cells[len(cells)-tt.after:]) {
			t.Errorf("%s: %+v and %v, want %+v and %d cells", tt.why, level, after, tt.want, tt.after)
		}
	}
}

func TestExpiry(t *testing.T) {
	const second = int64(time.Second)
	tokens := window.Shape{Length: 10 * time.Second, Buckets: 10, Kind: window.Token}
	sliding := window.Shape{Length: 10 * time.Second, Buckets: 10}
	for _, tt := range []struct {
		why    string
		rule   Rule
		before int64
		cell   Cell
		want   int64
	}{
		{"two windows after its bucket", Rule{Shape: sliding, Limit: 20}, 0, Cell{4, 7}, 25 * second},
		{"no earlier than before", Rule{Shape: sliding, Limit: 20}, 99, Cell{4, 7}, 25 * second},
		{"nor later for an older one", Rule{Shape: sliding, Limit: 20}, 26 * second, Cell{4, 7}, 26 * second},
		{"and when 6 hits have drained", Rule{Shape: tokens, Limit: 20}, 0, Cell{4, 6}, 28 * second},
		{"after those before", Rule{Shape: tokens, Limit: 20}, 40 * second, Cell{4, 6}, 43 * second},
		{"denied hits do not drain", Rule{Shape: tokens, Limit: 20, Kind: Denied}, 0, Cell{4, 6}, 25 * second},
		{"a rate of nothing is no rate", Rule{Shape: tokens}, 0, Cell{4, 6}, 85 * second},
		{"nonsense lasts a year", Rule{Shape: tokens, Limit: 1}, 0, Cell{4, 1e18}, 25*second + int64(window.MaxLength)},
	} {
		if got := tt.rule.Expiry(tt.before, tt.cell); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.why, time.Duration(got), time.Duration(tt.want))
		}
	}
}

// What is remembered of the highest revision is its burst, too.
func TestRevisionsRememberBursts(t *testing.T) {
	var r revisions
	list := []Rule{{Name: "r", Limit: 10, Burst: 5, Revision: 2}}
	r.apply(list, 1)
	list[0] = Rule{Name: "r", Limit: 20, Burst: 9, Revision: 1}
	if r.apply(list, 2); list[0].Limit != 10 || list[0].Burst != 5 {
		t.Errorf("%+v", list[0])
	}
}

// A rate that changes among the rules that are known drains from its own moment on, as one that is
// heard of does; what reports claim meanwhile leaves no trace, also once the rule is not known any
// more.
func TestKnownRatesHoldFromTheirMomentOn(t *testing.T) {
	const now, second = int64(1e18), int64(time.Second)
	shape := window.Shape{Length: time.Minute, Buckets: 60, Kind: window.Token}
	rule := func(limit int64, at int64) []Rule {
		return []Rule{{Name: "r", Shape: shape, Limit: limit, Burst: limit, Revision: uint64(at / 1e6)}}
	}
	var known, heard revisions
	known.know(rule(1000, now), now)
	heard.apply(rule(1000, now), now)
	hostile := rule(1, now)
	hostile[0].Revision = 1 << 62
	known.apply(hostile, now+second)
	known.know(rule(500, now+2*second), now+2*second)
	want, got := rule(500, now+2*second), rule(7, now)
	heard.apply(want, now+2*second)
	got[0].Loose = true
	known.apply(got, now+3*second)
	if !reflect.DeepEqual(got, want) || len(got[0].Past) != 1 {
		t.Errorf("got %+v, want %+v", got, want)
	}
	known.know(nil, now+4*second)
	got = rule(20, now)
	known.apply(got, now+4*second)
	if got[0].Limit != 20 || got[0].Past != nil {
		t.Errorf("not known any more: %+v", got)
	}
}
