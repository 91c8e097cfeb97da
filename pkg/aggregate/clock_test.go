package aggregate

import "testing"

func TestFleetClock(t *testing.T) {
	const s = 1_000_000_000
	type look struct{ sent, got, theirs int64 }
	for _, tt := range []struct {
		why   string
		looks []look
		want  int64 // offset
	}{
		{"no look: our own", nil, 0},
		{"half a round trip", []look{{0, 10, 105}}, 100},
		{"the shortest round trip counts", []look{{0, 1000, 700}, {2 * s, 2*s + 10, 2*s + 105}, {4 * s, 4*s + 2000, 4*s + 500}}, 100},
		{"of equals the newest", []look{{0, 10, 105}, {s, s + 10, s + 107}}, 102},
		{"the old ones are forgotten", append([]look{{0, 0, 100}}, many(look{0, 10, 205}, 8)...), 200},
		{"a clock that was set ahead", []look{{0, 10, 105}, {s, s + 100, 3600*s + 50}}, 3599 * s},
		{"and back", []look{{0, 10, 3600 * s}, {s, s + 100, s + 50}}, 0},
		{"a slow answer proves nothing", []look{{0, 10, 105}, {s, 3 * s, 5 * s / 2}}, 100},
	} {
		var c fleetClock
		for _, l := range tt.looks {
			c.observe(l.sent, l.got, l.theirs)
		}
		if got := c.fleet(7) - 7; got != tt.want {
			t.Errorf("%s: offset %d, want %d", tt.why, got, tt.want)
		}
	}
}

func many[T any](v T, n int) []T {
	all := make([]T, n)
	for i := range all {
		all[i] = v
	}
	return all
}
