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

// parse reads rules as a file has them.
func parse(t *testing.T, text string) (list []rules.Rule) {
	t.Helper()
	set, err := rules.Parse([]byte("rules:\n" + text))
	must(t, err)
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

// await asks by a rule until permits come, if it is strict, and lets all checkers know of the hit.
func (w *world) await(r *rules.Rule, ask func() check.Decision) check.Decision {
	d := ask()
	for try := 0; try < 9 && !d.Allowed && r.Enforcement == rules.Strict; try++ {
		w.advance(50 * time.Millisecond)
		d = ask()
	}
	w.spread()
	return d
}

// counted holds the counted hits of some rules against what they should be.
func (w *world) counted(want map[string]int64) {
	w.t.Helper()
	w.spread()
	l := w.ledger()
	for name, n := range want {
		expect(w.t, l[name].Counted == n, "%s: %+v, want %d", name, l[name], n)
	}
}

// TestClausesHoldOverAFleet asks three checkers in turn, each of which knows of all hits before:
// what a rule of ten an hour says beyond its limit holds for the hits of all of them together.
func TestClausesHoldOverAFleet(t *testing.T) {
	type step struct {
		requests, pass int
		attributes     string
		last           string // what the last decision says: "exceeded", "shadow"
	}
	for _, test := range []struct {
		name, rules string
		steps       []step
		counted     map[string]int64
	}{
		{"soft", ", throttle: soft, soft: {exceed: 20%}}",
			[]step{{10, 10, "user=a", ""}, {2, 2, "user=a", "exceeded"}, {3, 0, "user=a", ""}}, map[string]int64{"r": 12}},
		{"elastic", `, throttle: elastic, elastic: {up_to: 150%, while: {rule: all, below: 70%}}}
  - {name: all, key: [], limit: 30/hour}`, // while a passes 15 of 30 are used; 25 are too many
			[]step{{18, 15, "user=a", ""}, {10, 10, "user=b", ""}, {3, 0, "user=b", ""}}, map[string]int64{"r": 25, "all": 25}},
		{"priority", ", priority: {by: class, shares: {high: 100%, default: 80%, low: 50%}}}", []step{
			{6, 5, "user=a class=low", ""}, {4, 3, "user=a", ""}, {3, 0, "user=a class=low", ""}, {4, 2, "user=a class=high", ""},
		}, map[string]int64{"r": 10}},
		{"overrides", `, overrides: [{match: {tier: gold}, limit: 2x},
    {match: {user: mal}, limit: blocked, until: 2030-01-01T00:00:00Z}]}`,
			[]step{{12, 10, "user=a", ""}, {22, 20, "user=a tier=gold", ""}, {3, 0, "user=mal", "blocked"}},
			map[string]int64{"r": 10, "r/tier=gold": 20}},
		{"count all", ", count: all}", []step{{15, 10, "user=a", ""}}, map[string]int64{"r": 15}},
		{"shadow", `, shadow: true}
  - {name: hard, key: [user], limit: 12/hour}`,
			[]step{{10, 10, "user=a", ""}, {2, 2, "user=a", "shadow"}, {2, 0, "user=a", "shadow"}},
			map[string]int64{"r": 10, "hard": 12}},
		{"cost", `, cost: tokens}
  - {name: requests, key: [user], limit: 100/hour}`,
			[]step{{5, 3, "user=a tokens=3", ""}, {3, 1, "user=a tokens=1", ""}}, map[string]int64{"r": 10, "requests": 4}},
		{"strict and soft", ", enforcement: strict, throttle: soft, soft: {exceed: 20%}}",
			[]step{{18, 12, "user=a", ""}}, map[string]int64{"r": 12}},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, options{
				seed: 1, checkers: 3, workers: 2, shards: 4, prompt: true,
				rules: parse(t, "  - {name: r, key: [user], limit: 10/hour"+test.rules),
			})
			w.spread()
			for _, step := range test.steps {
				passed, last := 0, check.Decision{}
				for i := range step.requests {
					c := w.checkers[i%3]
					last = w.await(w.rules.Rules()[0], func() check.Decision { return c.Check(attributes(step.attributes), 1) })
					if last.Allowed {
						passed++
					}
				}
				exceeded, shadow := step.last == "exceeded", step.last == "shadow"
				blocked := last.RetryAfter > 24*time.Hour
				expect(t, passed == step.pass && last.Exceeded == exceeded && (last.Shadow == "r") == shadow && blocked == (step.last == "blocked"),
					"%+v: %d pass, the last: %+v", step, passed, last)
			}
			w.counted(test.counted)
		})
	}
}

const mixedRules = `
  - {name: whole, key: [], limit: 600/second}
  - {name: stretch, key: [user], limit: 120/second, throttle: elastic,
     elastic: {up_to: 150%, while: {rule: whole, below: 60%}}}
  - {name: classes, key: [user], limit: 200/2s, buckets: 4,
     priority: {by: class, shares: {high: 100%, default: 80%, low: 40%}}}
  - {name: every, key: [user], limit: 150/second, algorithm: fixed_window, count: all, cost: tokens}
  - {name: tiers, key: [user], limit: 150/second, throttle: soft, soft: {exceed: 10%},
     overrides: [{match: {class: high}, limit: 2x}, {match: {class: low}, limit: 60/2s}]}
  - {name: dark, key: [class], limit: 50/second, shadow: true}
  - {name: leased, key: [user], match: {strict: "*"}, limit: 100/second, enforcement: strict,
     priority: {by: class, shares: {default: 100%, low: 50%}}}
`

// TestClausesConserveHits plays random schedules on a bad network: in the end the ledger has, under
// the name of each counter, what the checkers have charged.
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
				c.Do(check.Request{Attributes: attrs, Cost: 1 + w.rand.Int64N(2), Mode: check.Record})
			}
			d := c.Check(attrs, 1+w.rand.Int64N(3))
			happened.note("denied", !d.Allowed)
			happened.note("exceeded", d.Exceeded)
			happened.note("shadowed", d.Shadow != "")
			w.wake(c)
			w.pass(3 * time.Millisecond)
		}
		w.mend()
		w.conservedByName()
	}
	happened.all(t)
}
