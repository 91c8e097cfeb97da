package forecast

import (
	"math"
	"math/rand/v2"
	"testing"
)

// caller makes calls of a key: which, when and with what, random bytes say.
type caller struct {
	k   *Key
	now int64
	o   Outlook
	w   Window
	f   Fleet
}

// gaps are how much time passes between two calls, in ns.
var gaps = []int64{0, 1, 1000, ms / 3, ms, fast, 5*fast + 1, horizon, 3 * horizon, 1e9, 22e9, 3600e9, -1, -ms, -3 * fast}

func (c *caller) call(op, a, b byte) {
	c.now += gaps[int(a)%len(gaps)]
	n, hits := int64(b)*int64(b), float64(b)*float64(b)
	switch op % 10 {
	case 0:
		c.k.Note(c.now, n, n/(1+int64(a%3)))
	case 1:
		c.w = Window{Limit: 1 + float64(a)*20, Free: float64(n) - 300, Freed: float64(b%5) * 1e-6,
			Unreported: float64(a), Pace: float64(b) * 1e-6}
		c.o = c.k.Look(c.now, c.w, c.f)
	case 2, 3:
		c.k.Observe(Update{
			Now: c.now, Made: c.now - int64(b)*ms/20, Round: fast << (a % 4), Bucket: c.now/1e9 - int64(a%2),
			Admitted: Totals{hits, float64(a)}, Denied: Totals{hits * float64(a%4)},
			DeniedToo: a%2 == 0, News: float64(a),
			Since: c.now - int64(b)*ms,
		}, c.f)
	case 4:
		c.k.Reported(c.now, c.f)
	case 5:
		if c.o.Part < 1 && c.k.Pass(c.o.Part, 1+int64(b%7)) && a%2 == 0 {
			c.k.Return(c.o.Part, 1+int64(b%7))
		}
	case 6:
		if c.o.Part < 1 {
			c.k.Denied(c.o.Part, min(c.k.Denials(c.o.Part), int64(b)))
		}
	case 7:
		c.k.Ease()
	case 8:
		c.k.Urgent(c.now, c.o, c.w, c.f, fast<<(b%5))
	case 9: // the fleet grows or shrinks
		c.f.Checkers = 1 + float64(b)
	}
}

// check holds what must be true whatever was called.
func (c *caller) check(t *testing.T) {
	t.Helper()
	k := c.k
	for name, n := range map[string]float64{
		"free": c.o.Free, "demand": c.o.Demand, "carry": k.carry, "learnt": k.learnt, "credit": k.credit,
		"room": k.room, "rate": k.demand.rate(), "hits in all": k.demand.all, "part of traffic": k.share.part,
		"unrest": k.share.unrest, "expected": k.history.since(0).expected, "admitted": k.history.since(0).admitted,
	} {
		require(t, !math.IsNaN(n) && !math.IsInf(n, 0), "%s: %v", name, n)
	}
	// Of nearly no demand any number of parts may pass, but it must be a number.
	require(t, !math.IsNaN(c.o.Part) && !math.IsInf(c.o.Part, -1), "part: %v", c.o.Part)
	others := k.others(c.now, c.w.Unreported)
	hits, span := k.Ease()
	switch {
	case others < 0 || math.IsNaN(others) || math.IsInf(others, 0):
		t.Fatalf("others have admitted %v hits", others)
	case c.o.Demand < 0 || k.carry < 0:
		t.Fatalf("demand %v, carried on %v", c.o.Demand, k.carry)
	case k.share.part <= 0 || k.share.part > 1 || k.share.unrest < 0:
		t.Fatalf("part %v of the traffic, unrest %v", k.share.part, k.share.unrest)
	case k.credit < -7 || k.credit > 7: // the largest cost
		t.Fatalf("credit %v", k.credit)
	case hits < 0 || span < 0 || hits > 0 && span == 0:
		t.Fatalf("%d hits for %d ns", hits, span)
	}
}

// FuzzKey makes any calls in any order: three bytes each.
func FuzzKey(f *testing.F) {
	random, seeds := rand.NewChaCha8([32]byte{}), 300
	if testing.Short() {
		seeds = 60
	}
	for range seeds {
		calls := make([]byte, 600)
		_, _ = random.Read(calls) // it never fails
		f.Add(calls)
	}
	f.Fuzz(func(t *testing.T, calls []byte) {
		c := &caller{k: New(noon, of(3), 0.3, 1), now: noon, f: of(3)}
		for ; len(calls) >= 3; calls = calls[3:] {
			c.call(calls[0], calls[1], calls[2])
			c.check(t)
		}
	})
}
