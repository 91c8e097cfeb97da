package forecast

import "math"

const (
	ms   = int64(1e6)
	fast = 4 * ms
	// noon is where tests count from: a multiple of every round and of the full round.
	noon = FullInterval * 14_000_000_000
)

// horizon is of fleets with short intervals.
const horizon = slotTime * (historySlots - 1)

// heardOf is a demand of which only this is known.
func heardOf(r rate) *demand {
	d := newDemand(noon, fast, 1)
	d.passed = r
	return &d
}

// of is a fleet of so many checkers.
func of(checkers float64) Fleet { return Fleet{Checkers: checkers, FastInterval: fast, Trail: 6 * ms} }

// newKey is a key's forecast since noon, of which updates have told so many hits per ms, and of
// whose share nothing is known.
func newKey(perMs float64) *Key {
	k := New(noon, of(2), 0.5, 1)
	k.demand.passed = rate{perMs * 100, float64(100 * ms)}
	return k
}

// knowing makes a share known.
func (k *Key) knowing(part float64) *Key {
	k.share.part, k.share.own, k.share.all = part, 1000*part, 1000
	return k
}

type tester interface { // also rapid's
	Helper()
	Errorf(string, ...any)
	Fatalf(string, ...any)
}

// near fails the test unless got is want, give or take so much.
func near(t tester, what string, got, want, give float64) {
	t.Helper()
	expect(t, !math.IsNaN(got) && math.Abs(got-want) <= give, "%s: %v, want %v ± %v", what, got, want, give)
}

func between(t tester, what string, got, least, most float64) {
	t.Helper()
	expect(t, (least <= got && got <= most), "%s: %v, want %v to %v", what, got, least, most)
}

// wide is the window of a key that has so much left and no bucket that leaves it.
func wide(free float64) Window { return Window{Limit: 1000, Free: free} }

// fromNoon is a time so many ms after noon.
func fromNoon(n float64) int64 { return noon + int64(n*1e6) }

// margin is what an outlook keeps to the limit in a fleet of two.
var margin = aim * math.Sqrt(of(2).rounding())

func expect(t tester, ok bool, found string, args ...any) {
	if !ok {
		t.Helper()
		t.Errorf(found, args...)
	}
}

func require(t tester, ok bool, found string, args ...any) {
	if !ok {
		t.Helper()
		t.Fatalf(found, args...)
	}
}
