package storage

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
			r.Learn(say[i].Limit, say[i].Burst, say[i].Revision)
		}
		if want := (Rule{Limit: 8, Burst: 9, Revision: 2}); !reflect.DeepEqual(r, want) {
			t.Errorf("in the order %v: %+v, want %+v", order, r, want)
		}
	}
}

func TestAdvanceTo(t *testing.T) {
	r := Rule{Shape: window.Shape{Length: 10 * time.Second, Buckets: 10, Kind: window.Token}, Limit: 20, Burst: 5}
	cells, back := []Cell{{3, 9}, {4, 1}, {7, 2}}, []Cell{{2, 1}, {3, 5}, {5, 3}}
	for _, tt := range []struct {
		why    string
		level  window.Level
		bucket int64
		want   window.Level
		after  int
	}{
		{"nothing yet", NoLevel, 2, window.Level{Bucket: 2}, 3},
		{"4 hits: 9, of which 5 were given back", NoLevel, 3, window.Level{Bucket: 3, Parts: 40}, 2},
		{"2 drain in a bucket", NoLevel, 4, window.Level{Bucket: 4, Parts: 30}, 1},
		{"and all until the third", NoLevel, 6, window.Level{Bucket: 6}, 1},
		{"all of them", NoLevel, 7, window.Level{Bucket: 7, Parts: 20}, 0},
		{"settled before", window.Level{Bucket: 4, Parts: 50}, 5, window.Level{Bucket: 5, Parts: 30}, 1},
		{"settled by a worker whose clock is ahead: what is in the level is in no count", window.Level{Bucket: 4, Parts: 50}, 2, window.Level{Bucket: 4, Parts: 50}, 1},
	} {
		level, after := r.AdvanceTo(tt.level, cells, back, tt.bucket)
		if level != tt.want || !slices.Equal(after, cells[len(cells)-tt.after:]) {
			t.Errorf("%s: %+v and %v, want %+v and %d cells", tt.why, level, after, tt.want, tt.after)
		}
	}
}

func TestExpiry(t *testing.T) {
	const second = int64(time.Second)
	tokens := window.Shape{Length: 10 * time.Second, Buckets: 10, Kind: window.Token}
	sliding := window.Shape{Length: 10 * time.Second, Buckets: 10}
	fixed := window.Shape{Length: 10 * time.Second, Buckets: 1, Fixed: true}
	for _, tt := range []struct {
		why    string
		rule   Rule
		before int64
		cell   Cell
		want   int64
	}{
		{"two windows after its bucket", Rule{Shape: sliding, Limit: 20}, 0, Cell{4, 7}, 25 * second},
		{"one window after its end, if it is fixed", Rule{Shape: fixed, Limit: 20}, 0, Cell{4, 7}, 60 * second},
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
