package fleet

import (
	"slices"
	"testing"
)

func TestClock(t *testing.T) {
	const s = 1_000_000_000
	type reading struct{ sent, got, theirs int64 }
	for _, tt := range []struct {
		why      string
		readings []reading
		want     int64 // offset
	}{
		{"no reading: our own", nil, 0},
		{"half a round trip", []reading{{0, 10, 105}}, 100},
		{"the shortest round trip counts", []reading{{0, 1000, 700}, {2 * s, 2*s + 10, 2*s + 105}, {4 * s, 4*s + 2000, 4*s + 500}}, 100},
		{"of equals the newest", []reading{{0, 10, 105}, {s, s + 10, s + 107}}, 102},
		{"the old ones are forgotten", append([]reading{{0, 0, 100}}, slices.Repeat([]reading{{0, 10, 205}}, 8)...), 200},
		{"a clock that was set ahead", []reading{{0, 10, 105}, {s, s + 100, 3600*s + 50}}, 3599 * s},
		{"and back", []reading{{0, 10, 3600 * s}, {s, s + 100, s + 50}}, 0},
		{"a slow answer proves nothing", []reading{{0, 10, 105}, {s, 3 * s, 5 * s / 2}}, 100},
	} {
		var c Clock
		for _, r := range tt.readings {
			c.Observe(r.sent, r.got, r.theirs)
		}
		const later = 1_000_000 * s // long after any slew
		if got := c.Time(later) - later; got != tt.want {
			t.Errorf("%s: offset %d, want %d", tt.why, got, tt.want)
		}
	}
}

// The error is half of the best reading's round trip, and the rest of the first one's error. That
// the store's clock was set is none.
func TestClockError(t *testing.T) {
	const s, ms = 1_000_000_000, 1_000_000
	var c Clock
	for _, step := range []struct {
		why               string
		sent, got, theirs int64
		later, want       int64
	}{
		{"the first reading", 0, 60 * ms, 0, 0, 30 * ms}, // off by all of that
		{"a better one, when most is slewed", s, s + 2*ms, s + ms, 0, ms + 30*ms - 942*ms/slewShare},
		{"and 100 ms later", s, s + 2*ms, s + ms, 100 * ms, ms + 30*ms - 1042*ms/slewShare},
		{"and all of it", s, s + 2*ms, s + ms, 10 * s, ms},
		{"the store's clock was set", 20 * s, 20*s + 2*ms, 80 * s, 0, ms + 30*ms},
	} {
		c.Observe(step.sent, step.got, step.theirs)
		c.Time(step.got + step.later)
		if got := c.Error(); got != step.want {
			t.Errorf("%s: off by %d ns, want %d", step.why, got, step.want)
		}
	}
}

// The fleet's time follows the store's at a pace that checkers can keep.
func TestClockSlews(t *testing.T) {
	const s = 1_000_000_000
	for _, step := range []int64{-60 * s, 60 * s} {
		var c Clock
		c.Observe(0, 0, 1000*s)
		c.Observe(10*s, 10*s, 1010*s+step)
		for now := int64(10 * s); now < 3000*s; now += s / 10 {
			before := c.Time(now)
			if moved := c.Time(now+s/10) - before; moved < s/10-s/400 || moved > s/10+s/400 {
				t.Fatalf("step %d: in 100 ms the fleet's time moved by %d", step, moved)
			}
		}
		if got := c.Time(3000 * s); got != 4000*s+step {
			t.Errorf("step %d: in the end the fleet's time is %d, want %d", step, got, 4000*s+step)
		}
	}
}
