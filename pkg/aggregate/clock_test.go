package aggregate

import (
	"slices"
	"testing"
)

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
		{"the old ones are forgotten", append([]look{{0, 0, 100}}, slices.Repeat([]look{{0, 10, 205}}, 8)...), 200},
		{"a clock that was set ahead", []look{{0, 10, 105}, {s, s + 100, 3600*s + 50}}, 3599 * s},
		{"and back", []look{{0, 10, 3600 * s}, {s, s + 100, s + 50}}, 0},
		{"a slow answer proves nothing", []look{{0, 10, 105}, {s, 3 * s, 5 * s / 2}}, 100},
	} {
		var c fleetClock
		for _, l := range tt.looks {
			c.observe(l.sent, l.got, l.theirs)
		}
		const later = 1_000_000 * s // long after any slew
		if got := c.fleet(later) - later; got != tt.want {
			t.Errorf("%s: offset %d, want %d", tt.why, got, tt.want)
		}
	}
}

// TestFleetClockSaysHowFarOffItIs: by half of the best look, and what is left of the first one's
// error. A clock that was set counts for nothing.
func TestFleetClockSaysHowFarOffItIs(t *testing.T) {
	const s, ms = 1_000_000_000, 1_000_000
	var c fleetClock
	for _, step := range []struct {
		why               string
		sent, got, theirs int64
		later, want       int64
	}{
		{"the first look", 0, 60 * ms, 0, 0, 30 * ms}, // off by all of that
		{"a better one, when most is slewed", s, s + 2*ms, s + ms, 0, ms + 30*ms - 942*ms/slewShare},
		{"and 100 ms later", s, s + 2*ms, s + ms, 100 * ms, ms + 30*ms - 1042*ms/slewShare},
		{"and all of it", s, s + 2*ms, s + ms, 10 * s, ms},
		{"the store's clock was set", 20 * s, 20*s + 2*ms, 80 * s, 0, ms + 30*ms},
	} {
		c.observe(step.sent, step.got, step.theirs)
		c.fleet(step.got + step.later)
		if got := c.error(); got != step.want {
			t.Errorf("%s: off by %d ns, want %d", step.why, got, step.want)
		}
	}
}

// The fleet's time follows the store's at a pace that checkers can keep.
func TestFleetClockSlews(t *testing.T) {
	const s = 1_000_000_000
	for _, step := range []int64{-60 * s, 60 * s} {
		var c fleetClock
		c.observe(0, 0, 1000*s)
		c.observe(10*s, 10*s, 1010*s+step)
		for now := int64(10 * s); now < 3000*s; now += s / 10 {
			before := c.fleet(now)
			if moved := c.fleet(now+s/10) - before; moved < s/10-s/400 || moved > s/10+s/400 {
				t.Fatalf("step %d: in 100 ms the fleet's time moved by %d", step, moved)
			}
		}
		if got := c.fleet(3000 * s); got != 4000*s+step {
			t.Errorf("step %d: in the end the fleet's time is %d, want %d", step, got, 4000*s+step)
		}
	}
}
