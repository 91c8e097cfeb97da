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

// What a rule says beyond its limit holds for the hits of all checkers together, once they know of each
// other's.

// parse reads rules as a file has them.
func parse(t *testing.T, text string) (list []rules.Rule) {
	t.Helper()
	set, err := rules.Parse([]byte("rules:\n" + text))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range set.Rules() {
		list = append(list, *r)
	}
	return list
}

// attributes reads "user=kristie tier=gold".
func attributes(text string) (attrs identity.Attributes) {
	for field := range strings.FieldsSeq(text) {
		name, value, _ := strings.Cut(field, "=")
		attrs = append(attrs, identity.Attribute{Name: name, Value: value})
	}
	return attrs
}

// spread lets so much time pass that all checkers know of all hits.
func (w *world) spread() { w.advance(400 * time.Millisecond) }

// ofHits asks the checkers in turn, n times in all, each of which knows of all hits before, and wants so
// many of them to pass. It returns the last decision.
func (w *world) ofHits(n, want int, attrs string) (last check.Decision) {
	w.t.Helper()
	passed := 0
	for i := range n {
		if last = w.checkers[i%len(w.checkers)].CheckAt(w.now, attributes(attrs), 1); last.Allowed {
			passed++
		}
		w.spread()
	}
	if passed != want {
		w.t.Errorf("%d of %d pass for %s, want %d", passed, n, attrs, want)
	}
	return last
}

// wantLedger holds the counted hits of some rules against what they should be.
func (w *world) wantLedger(want map[string]int64) {
	w.t.Helper()
	w.spread()
	l := w.ledger()
	for name, n := range want {
		if l[name].Counted != n {
			w.t.Errorf("%s: %+v, want %d", name, l[name], n)
		}
	}
}

const tenAnHour = "  - {name: r, key: [user], limit: 10/hour"

func TestClausesHoldOverAFleet(t *testing.T) {
	is := func(t *testing.T, what string, got, want bool) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %v", what, got)
		}
	}
	for _, test := range []struct {
		name, rules string
		play        func(t *testing.T, w *world)
	}{
		{"soft", ", throttle: soft, soft: {exceed: 20%}}", func(t *testing.T, w *world) {
			is(t, "exceeded", w.ofHits(10, 10, "user=a").Exceeded, false)
			is(t, "exceeded", w.ofHits(2, 2, "user=a").Exceeded, true)
			w.ofHits(3, 0, "user=a")
		}},
		{"elastic", `, throttle: elastic, elastic: {up_to: 150%, while: {rule: all, below: 70%}}}
  - {name: all, key: [], limit: 30/hour}`, func(t *testing.T, w *world) {
			w.ofHits(18, 15, "user=a") // 15 of 30 are used then
			w.ofHits(10, 10, "user=b")
			w.ofHits(3, 0, "user=b") // 25 of 30 are too many
		}},
		{"priority", ", priority: {by: class, shares: {high: 100%, default: 80%, low: 50%}}}", func(t *testing.T, w *world) {
			w.ofHits(6, 5, "user=a class=low")
			w.ofHits(4, 3, "user=a")
			w.ofHits(3, 0, "user=a class=low")
			w.ofHits(4, 2, "user=a class=high")
		}},
		{"overrides", `, overrides: [{match: {tier: gold}, limit: 2x},
    {match: {user: mal}, limit: blocked, until: 2030-01-01T00:00:00Z}]}`, func(t *testing.T, w *world) {
			w.ofHits(12, 10, "user=a")
			w.ofHits(22, 20, "user=a tier=gold")
			is(t, "blocked for long", w.ofHits(3, 0, "user=mal").RetryAfter > 24*time.Hour, true)
			w.wantLedger(map[string]int64{"r": 10, "r/tier=gold": 20})
		}},
		{"count all", ", count: all}", func(t *testing.T, w *world) {
			w.ofHits(15, 10, "user=a")
			w.wantLedger(map[string]int64{"r": 15})
		}},
		{"shadow", `, shadow: true}
  - {name: hard, key: [user], limit: 12/hour}`, func(t *testing.T, w *world) {
			for _, step := range []struct {
				n, passed    int
				shadow, rule string
			}{{10, 10, "", "hard"}, {2, 2, "r", "hard"}, {2, 0, "r", "hard"}} {
				if d := w.ofHits(step.n, step.passed, "user=a"); d.Shadow != step.shadow || d.Rule != step.rule {
					t.Errorf("%+v, want %+v", d, step)
				}
			}
			w.wantLedger(map[string]int64{"r": 10, "hard": 12})
		}},
		{"cost", `, cost: tokens}
  - {name: requests, key: [user], limit: 100/hour}`, func(t *testing.T, w *world) {
			w.ofHits(5, 3, "user=a tokens=3")
			w.ofHits(3, 1, "user=a tokens=1")
			w.wantLedger(map[string]int64{"r": 10, "requests": 4})
		}},
		{"record", "}", func(t *testing.T, w *world) {
			for i, c := range w.checkers {
				is(t, "peek", c.PeekAt(w.now, attributes("user=a"), 10-4*int64(i)).Allowed, true)
				c.RecordAt(w.now, attributes("user=a"), 4)
				w.spread()
			}
			w.ofHits(3, 0, "user=a")
			w.wantLedger(map[string]int64{"r": 12})
		}},
		{"strict and soft", ", enforcement: strict, throttle: soft, soft: {exceed: 20%}}", func(t *testing.T, w *world) {
			passed, exceeded := 0, 0
			for range 20 {
				for _, c := range w.checkers {
					if d := c.CheckAt(w.now, attributes("user=a"), 1); d.Allowed {
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
			w := newWorld(t, options{
				seed: 1, checkers: 3, workers: 2, shards: 4, rules: parse(t, tenAnHour+test.rules), prompt: true,
			})
			w.spread()
			test.play(t, w)
		})
	}
}

const mixedRules = `
  - {name: whole, key: [], limit: 600/second}
  - name: stretch
    key: [user]
    limit: 120/second
    throttle: elastic
    elastic: {up_to: 150%, while: {rule: whole, below: 60%}}
  - name: classes
    key: [user]
    limit: 200/2s
    buckets: 4
    priority: {by: class, shares: {high: 100%, default: 80%, low: 40%}}
  - {name: every, key: [user], limit: 150/second, algorithm: fixed_window, count: all, cost: tokens}
  - name: tiers
    key: [user]
    limit: 150/second
    throttle: soft
    soft: {exceed: 10%}
    overrides: [{match: {class: high}, limit: 2x}, {match: {class: low}, limit: 60/2s}]
  - {name: dark, key: [class], limit: 50/second, shadow: true}
  - name: leased
    key: [user]
    match: {strict: "*"}
    limit: 100/second
    enforcement: strict
    priority: {by: class, shares: {default: 100%, low: 50%}}
`

// TestClausesConserveHits plays random schedules on a bad network: in the end the ledger has, under the
// name of each counter, what the checkers have charged.
func TestClausesConserveHits(t *testing.T) {
	happened := seen{"denied": 0, "shadowed": 0, "exceeded": 0}
	for seed := range seeds(1, 12) {
		w := newWorld(t, options{
			seed: seed, checkers: 3, workers: 2, shards: 4, rules: parse(t, mixedRules), prompt: true,
			faults: membus.Faults{
				Lose: 0.1, Repeat: 0.1, RepeatWithin: time.Second, Delay: 5 * time.Millisecond, Jitter: 20 * time.Millisecond,
			},
		})
		w.spread()
		pick := func(of ...string) string { return of[w.rand.IntN(len(of))] }
		for range seeds(1000, 3000) {
			attrs := attributes("user=" + pick("a", "b", "c") + pick("", " class=low", " class=high") +
				pick("", "", " tokens=3") + pick("", "", " strict=1"))
			c := w.anyone()
			if w.rand.IntN(10) == 0 {
				c.RecordAt(w.now, attrs, 1+w.rand.Int64N(2))
			}
			d := c.CheckAt(w.now, attrs, 1+w.rand.Int64N(3))
			switch {
			case !d.Allowed:
				happened["denied"]++
			case d.Exceeded:
				happened["exceeded"]++
			}
			if d.Shadow != "" {
				happened["shadowed"]++
			}
			w.wake(c)
			w.pass(3 * time.Millisecond)
		}
		w.mend()
		w.conservedByName()
	}
	happened.all(t)
}
