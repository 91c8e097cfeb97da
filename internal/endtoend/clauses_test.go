package endtoend

import (
	"strings"
	"testing"
	"time"

	"github.com/offpath-io/offpath/internal/testing/membus"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
)

// newWorldOfText is a fleet of three checkers by rules as a file has them.
func newWorldOfText(t *testing.T, seed uint64, faults membus.Faults, text string) *world {
	t.Helper()
	set, err := rules.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var list []rules.Rule
	for _, r := range set.Rules() {
		list = append(list, *r)
	}
	return newWorldOf(t, seed, 3, 2, 4, faults, list...)
}

// request reads attributes: "user=kristie tier=gold".
func request(text string) (attrs identity.Attributes) {
	for _, field := range strings.Fields(text) {
		name, value, _ := strings.Cut(field, "=")
		attrs = append(attrs, identity.Attribute{Name: name, Value: value})
	}
	return attrs
}

// told lets so much time pass that all checkers know of all hits.
func (w *world) told() { w.advance(400 * time.Millisecond) }

// round asks the checkers in turn, n times in all, with time for every hit to become known after each. It returns how many passed
// and the last decision.
func (w *world) round(n int, attrs string) (passed int, last check.Decision) {
	for i := range n {
		last = w.checkers[i%len(w.checkers)].CheckAt(w.now, request(attrs), 1)
		if last.Allowed {
			passed++
		}
		w.told()
	}
	return passed, last
}

// TestClausesOverAFleet: what a rule says beyond its limit holds for the hits of all checkers together, once they know of each other's.
func TestClausesOverAFleet(t *testing.T) {
	const limit = "rules:\n  - {name: r, key: [user], limit: 10/hour"
	for _, test := range []struct {
		name, rules string
		play        func(t *testing.T, w *world, passes func(want, n int, attrs string) check.Decision)
	}{
		{"soft", limit + ", throttle: soft, soft: {exceed: 20%}}", func(t *testing.T, w *world, passes func(int, int, string) check.Decision) {
			if d := passes(10, 10, "user=a"); d.Exceeded {
				t.Errorf("%+v", d)
			}
			if d := passes(2, 2, "user=a"); !d.Exceeded {
				t.Errorf("%+v", d)
			}
			passes(0, 3, "user=a")
		}},
		{"elastic", limit + ", throttle: elastic, elastic: {up_to: 150%, while: {rule: all, below: 70%}}}\n  - {name: all, key: [], limit: 30/hour}",
			func(t *testing.T, w *world, passes func(int, int, string) check.Decision) {
				passes(15, 18, "user=a") // 15 of 30 are used then
				passes(10, 10, "user=b")
				passes(0, 3, "user=b") // 25 of 30 are too many
			}},
		{"priority", limit + ", priority: {by: class, shares: {high: 100%, default: 80%, low: 50%}}}",
			func(t *testing.T, w *world, passes func(int, int, string) check.Decision) {
				passes(5, 6, "user=a class=low")
				passes(3, 4, "user=a")
				passes(0, 3, "user=a class=low")
				passes(2, 4, "user=a class=high")
			}},
		{"overrides", limit + ", overrides: [{match: {tier: gold}, limit: 2x}, {match: {user: mal}, limit: blocked, until: 2030-01-01T00:00:00Z}]}",
			func(t *testing.T, w *world, passes func(int, int, string) check.Decision) {
				passes(10, 12, "user=a")
				passes(20, 22, "user=a tier=gold")
				if d := passes(0, 3, "user=mal"); d.RetryAfter < 24*time.Hour {
					t.Errorf("%+v", d)
				}
				if l := w.ledger(); l["r"].Counted != 10 || l["r/tier=gold"].Counted != 20 {
					t.Errorf("%+v", l)
				}
			}},
		{"count all", limit + ", count: all}", func(t *testing.T, w *world, passes func(int, int, string) check.Decision) {
			passes(10, 15, "user=a")
			w.told()
			if l := w.ledger(); l["r"].Counted != 15 {
				t.Errorf("%+v", l)
			}
		}},
		{"shadow", limit + ", shadow: true}\n  - {name: hard, key: [user], limit: 12/hour}", func(t *testing.T, w *world, passes func(int, int, string) check.Decision) {
			if d := passes(10, 10, "user=a"); d.Shadow != "" {
				t.Errorf("%+v", d)
			}
			if d := passes(2, 2, "user=a"); d.Shadow != "r" || d.Rule != "hard" {
				t.Errorf("%+v", d)
			}
			if d := passes(0, 2, "user=a"); d.Rule != "hard" || d.Shadow != "r" {
				t.Errorf("%+v", d)
			}
			if l := w.ledger(); l["r"].Counted != 10 || l["hard"].Counted != 12 {
				t.Errorf("%+v", l)
			}
		}},
		{"cost", limit + ", cost: tokens}\n  - {name: requests, key: [user], limit: 100/hour}", func(t *testing.T, w *world, passes func(int, int, string) check.Decision) {
			passes(3, 5, "user=a tokens=3")
			passes(1, 3, "user=a tokens=1")
			if l := w.ledger(); l["r"].Counted != 10 || l["requests"].Counted != 4 {
				t.Errorf("%+v", l)
			}
		}},
		{"record", limit + "}", func(t *testing.T, w *world, passes func(int, int, string) check.Decision) {
			for i, c := range w.checkers {
				if d := c.PeekAt(w.now, request("user=a"), 10-4*int64(i)); !d.Allowed {
					t.Errorf("%+v", d)
				}
				c.RecordAt(w.now, request("user=a"), 4)
				w.told()
			}
			passes(0, 3, "user=a")
			if l := w.ledger(); l["r"].Counted != 12 {
				t.Errorf("%+v", l)
			}
		}},
		{"strict and soft", limit + ", enforcement: strict, throttle: soft, soft: {exceed: 20%}}", func(t *testing.T, w *world, _ func(int, int, string) check.Decision) {
			passed, exceeded := 0, 0
			for range 20 {
				for _, c := range w.checkers {
					if d := c.CheckAt(w.now, request("user=a"), 1); d.Allowed {
						passed++
						if d.Exceeded {
							exceeded++
						}
					}
					w.advance(40 * time.Millisecond)
				}
			}
			if passed != 12 || exceeded == 0 {
				t.Errorf("%d passed, %d of them beyond the limit", passed, exceeded)
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorldOfText(t, 1, membus.Faults{}, test.rules)
			w.heeds = true
			w.told()
			test.play(t, w, func(want, n int, attrs string) check.Decision {
				t.Helper()
				passed, last := w.round(n, attrs)
				if passed != want {
					t.Errorf("%d of %d pass for %s, want %d", passed, n, attrs, want)
				}
				return last
			})
		})
	}
}

const mixedRules = `
rules:
  - {name: whole, key: [], limit: 600/second}
  - {name: stretch, key: [user], limit: 120/second, throttle: elastic, elastic: {up_to: 150%, while: {rule: whole, below: 60%}}}
  - {name: classes, key: [user], limit: 200/2s, buckets: 4, priority: {by: class, shares: {high: 100%, default: 80%, low: 40%}}}
  - {name: every, key: [user], limit: 150/second, algorithm: fixed_window, count: all, cost: tokens}
  - {name: tiers, key: [user], limit: 150/second, throttle: soft, soft: {exceed: 10%}, overrides: [{match: {class: high}, limit: 2x}, {match: {class: low}, limit: 60/2s}]}
  - {name: dark, key: [class], limit: 50/second, shadow: true}
  - {name: leased, key: [user], match: {strict: "*"}, limit: 100/second, enforcement: strict, priority: {by: class, shares: {default: 100%, low: 50%}}}
`

// TestClausesConserve plays random schedules on a bad network: in the end the ledger has, under the name of each counter, what the
// checkers have charged.
func TestClausesConserve(t *testing.T) {
	denied, shadowed, exceeded := 0, 0, 0
	for seed := range uint64(12) {
		w := newWorldOfText(t, seed, membus.Faults{Lose: 0.1, Repeat: 0.1, RepeatWithin: time.Second, Delay: 5 * time.Millisecond, Jitter: 20 * time.Millisecond}, mixedRules)
		w.heeds = true
		w.told()
		for range 3000 {
			attrs := request("user=" + w.pick("a", "b", "c") + w.pick("", " class=low", " class=high") + w.pick("", "", " tokens=3") + w.pick("", "", " strict=1"))
			c := w.checkers[w.rand.IntN(len(w.checkers))]
			if w.rand.IntN(10) == 0 {
				c.RecordAt(w.now, attrs, 1+w.rand.Int64N(2))
			}
			d := c.CheckAt(w.now, attrs, 1+w.rand.Int64N(3))
			switch {
			case !d.Allowed:
				denied++
			case d.Exceeded:
				exceeded++
			}
			if d.Shadow != "" {
				shadowed++
			}
			w.heed(c)
			w.advance(time.Duration(w.rand.Int64N(int64(3 * time.Millisecond))))
		}
		w.settle()
		w.conservedByName()
	}
	if denied == 0 || shadowed == 0 || exceeded == 0 {
		t.Errorf("too tame: %d denied, %d shadowed, %d exceeded", denied, shadowed, exceeded)
	}
}

func (w *world) pick(of ...string) string { return of[w.rand.IntN(len(of))] }

// conservedByName holds each counter of the ledger against what was charged to it.
func (w *world) conservedByName() {
	w.t.Helper()
	charged := make(map[string]int64)
	for _, c := range w.checkers {
		s := c.Stats()
		if n := s.Unreported(); n != 0 {
			w.fail("%s still has %d hits: %+v", c.name, n, s)
		}
		for _, r := range s.Rules {
			charged[r.Rule] += r.Charged - r.Overflow - r.Lost
		}
	}
	ledger := w.ledger()
	for name, want := range charged {
		if got := ledger[name]; got.Counted+got.Late+got.Refused != want {
			w.fail("%s: %d charged, the ledger has %+v", name, want, got)
		}
	}
}
