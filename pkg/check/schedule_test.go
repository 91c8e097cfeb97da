package check

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
)

// op is one event of a random schedule: a request, or something that reaches the checker from behind.
type op struct {
	after int64
	kind  int // 0: a step, 1: answers come, 2: an alarm comes, else a request
	attrs identity.Attributes
	cost  int64
	key   string
	hits  uint64 // of others
}

// schedules draws random ones, of which some are long and dense enough that limits are reached.
func schedules() *rapid.Generator[[]op] {
	return rapid.Custom(func(t *rapid.T) []op {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 5))
		list := make([]op, rapid.IntRange(1, 600).Draw(t, "events"))
		pause := rapid.SampledFrom([]int64{ms / 2, 3 * ms, 20 * ms}).Draw(t, "pause")
		for i := range list {
			list[i] = randomOp(r, pause)
		}
		return list
	})
}

func randomOp(r *rand.Rand, pause int64) op {
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	o := op{after: r.Int64N(2 * pause), kind: r.IntN(13), cost: max(1, r.Int64N(20)-10), key: pick("a", "b"), hits: r.Uint64N(20)}
	o.attrs = identity.Attributes{{Name: "user", Value: o.key}}
	for _, more := range []identity.Attribute{{Name: "class", Value: pick("", "critical", "analytics")}, {Name: "tokens", Value: pick("", "", "3", "none")}} {
		if more.Value != "" {
			o.attrs = append(o.attrs, more)
		}
	}
	return o
}

// stage is a checker of a fleet of four on a store, in the middle of a schedule.
type stage struct {
	*Checker
	t     *rapid.T
	store *store
	now   int64
	soon  bool // reports are answered at once
}

func newStage(t *rapid.T, o Options, text string) *stage {
	list, err := rules.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	s := &store{admitted: make(map[storeKey]uint64)}
	o.Link, o.HelloEvery, o.Epoch, o.Rules = s, 3600e9, 77, list
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	c.Step(noon)
	welcome, err := events.Append(nil, &events.Welcome{Epoch: c.Epoch(), Sent: noon, Shards: 1, Time: noon, Checkers: 4})
	if err != nil {
		t.Fatal(err)
	}
	c.Receive(noon, events.KindWelcome, welcome)
	return &stage{Checker: c, t: t, store: s, now: noon}
}

// do lets one event happen, and returns what was decided, if it is a request.
func (s *stage) do(t testing.TB, o op) (d Decision, asked bool) {
	s.now += o.after
	switch o.kind {
	case 0:
		if s.Step(s.now); s.soon {
			s.hear(t)
		}
	case 1:
		s.hear(t)
	case 2:
		s.Receive(s.now, events.KindAlarm, s.store.elsewhere(t, limiter(t, s.Checker, "plain"), o.key, s.now, o.hits, o.hits/2))
	default:
		return s.CheckAt(s.now, o.attrs, o.cost), true
	}
	return d, false
}

// hear lets the checker hear of the answers to its reports.
func (s *stage) hear(t testing.TB) {
	for _, a := range s.store.answers(t) {
		s.Receive(s.now, events.KindRefresh, a)
	}
}

const everything = `
rules:
  - {name: plain, key: [user], limit: 200/second}
  - {name: soft, key: [user], limit: 150/second, throttle: soft, soft: {exceed: 10%}}
  - {name: stretch, key: [user], limit: 120/second, throttle: elastic, elastic: {up_to: 150%, while: {rule: plain, below: 80%}}}
  - {name: classes, key: [], limit: 300/second, priority: {by: class, shares: {critical: 100%, default: 80%, analytics: 30%}}}
  - {name: every, key: [user], limit: 160/second, count: all, cost: tokens}
  - {name: small, key: [user], limit: 40/second, match: {class: analytics}, overrides: [{match: {user: a}, limit: 2x}]}
`

// TestPeekChangesNothing plays random schedules twice, once with peeks in between: the decisions are the same, and so is all that
// is reported.
func TestPeekChangesNothing(t *testing.T) {
	var peeks, denied int
	rapid.Check(t, func(r *rapid.T) {
		schedule := schedules().Draw(r, "schedule")
		bare, looked := newStage(r, Options{}, everything), newStage(r, Options{}, everything)
		for i, o := range schedule {
			for range rapid.IntRange(0, 2).Draw(r, "peeks") {
				at := looked.now + rapid.Int64Range(0, o.after).Draw(r, "at")
				if rapid.Bool().Draw(r, "of all") {
					looked.PeekAt(at, o.attrs, o.cost)
				} else {
					name := rapid.SampledFrom([]string{"plain", "soft", "every", "classes"}).Draw(r, "rule")
					limiter(t, looked.Checker, name).PeekAt(at, o.key, o.cost)
				}
				peeks++
			}
			want, _ := bare.do(t, o)
			if got, asked := looked.do(t, o); got != want {
				r.Fatalf("event %d %+v:\nwithout peeks %+v\nwith peeks    %+v", i, o, want, got)
			} else if asked && !got.Allowed {
				denied++
			}
		}
		if a, b := fmt.Sprint(bare.Stats().Rules), fmt.Sprint(looked.Stats().Rules); a != b {
			r.Fatalf("\nwithout peeks %s\nwith peeks    %s", a, b)
		}
		if bare.store.sequence != looked.store.sequence || bare.store.own != looked.store.own {
			r.Fatal("other reports")
		}
	})
	if peeks == 0 || denied == 0 {
		t.Errorf("too tame: %d peeks, %d denied", peeks, denied)
	}
}

// TestPeekForetells: what a peek says comes true of a check in the same moment, but for what is charged then.
func TestPeekForetells(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		s := newStage(r, Options{}, everything)
		for i, o := range schedules().Draw(r, "schedule") {
			at := s.now + o.after
			want := s.PeekAt(at, o.attrs, o.cost)
			counted := slices.ContainsFunc(s.Explained(at, o), func(x explained) bool { return x.denied && x.rule == "every" })
			got, asked := s.do(t, o)
			if counted && got.RetryAfter > want.RetryAfter { // the check has charged the denied hit
				want.RetryAfter = got.RetryAfter
			}
			if asked && (got.Allowed != want.Allowed || got.Exceeded != want.Exceeded || !got.Allowed && got != want) {
				r.Fatalf("event %d %+v:\npeek  %+v\ncheck %+v", i, o, want, got)
			}
		}
	})
}

// TestShadowChangesNothing plays random schedules with shadow rules and without.
func TestShadowChangesNothing(t *testing.T) {
	const shadows = `
  - {name: s1, key: [user], limit: 30/second, shadow: true}
  - {name: s2, key: [], limit: 100/second, shadow: true, count: all, cost: tokens}
  - {name: s3, key: [class], limit: 100/second, shadow: true, on_missing: deny, deny: {user: [b]}}
`
	shadowed := 0
	rapid.Check(t, func(r *rapid.T) {
		// All reports go by the timer, with all that there is to report: shadow rules may let others' go sooner or later.
		o := Options{FlushEvery: 20e6, FlushFloor: 20e6, QuietFor: 1}
		bare, dark := newStage(r, o, everything), newStage(r, o, everything+shadows)
		bare.soon, dark.soon = true, true
		for i, o := range schedules().Draw(r, "schedule") {
			want, _ := bare.do(t, o)
			got, _ := dark.do(t, o)
			if got.Shadow != "" {
				shadowed++
			}
			if got.Shadow = ""; got != want {
				r.Fatalf("event %d %+v:\nwithout %+v\nwith    %+v", i, o, want, got)
			}
		}
		with := dark.Stats().Rules
		for _, want := range bare.Stats().Rules {
			i := slices.IndexFunc(with, func(r RuleStats) bool { return r.Rule == want.Rule })
			if with[i] != want {
				r.Fatalf("without %+v, with %+v", want, with[i])
			}
		}
	})
	if shadowed == 0 {
		t.Error("too tame")
	}
}

// TestAllOrNone: what is charged to each rule is what passed, each at its own cost, and what a rule with `count: all` denied.
func TestAllOrNone(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		s := newStage(r, Options{}, everything)
		want := make(map[string]int64)
		for _, o := range schedules().Draw(r, "schedule") {
			before := s.Explained(s.now+o.after, o)
			d, asked := s.do(t, o)
			if !asked {
				continue
			}
			for _, x := range before {
				if d.Allowed || x.denied && x.rule == "every" {
					want[x.counter] += x.cost
				}
			}
		}
		s.store.settled(t, s.Checker, s.now)
		for _, got := range s.Stats().Rules {
			if got.Charged != want[got.Rule] {
				r.Fatalf("%s: %d charged, want %d", got.Rule, got.Charged, want[got.Rule])
			}
		}
	})
}

// TestSharesHold: a class never passes when what is known leaves less than its cost of its share of the limit.
func TestSharesHold(t *testing.T) {
	const text = `
rules:
  - {name: plain, key: [user], limit: 200/second, priority: {by: class, shares: {critical: 100%, default: 80%, analytics: 30%}}}
`
	shares := map[string]int64{"critical": 200, "": 160, "analytics": 60}
	passed, foreseen := map[string]int{}, 0
	rapid.Check(t, func(r *rapid.T) {
		s := newStage(r, Options{NoForecast: rapid.Bool().Draw(r, "plainly")}, text)
		for i, o := range schedules().Draw(r, "schedule") {
			at := s.now + o.after
			known, used := s.known("plain", o.key, at)
			d, asked := s.do(t, o)
			class, _ := o.attrs.Get("class")
			if !asked || !d.Allowed {
				continue
			}
			passed[class]++
			if float64(shares[class]) < known+float64(o.cost)-1e-6 {
				r.Fatalf("event %d %+v: passed with %v of %d known", i, o, known, shares[class])
			}
			if used > known && shares[class] < 200 {
				if foreseen++; float64(shares[class]) < used+float64(o.cost)-1e-6 {
					r.Fatalf("event %d %+v: passed with %v of %d expected", i, o, used, shares[class])
				}
			}
		}
	})
	if len(passed) < 3 || foreseen == 0 {
		t.Errorf("too tame: %v, %d", passed, foreseen)
	}
}

// known is how many hits a limiter knows to lie in a key's window, and used the same with those that it expects of others.
func (s *stage) known(rule, key string, at int64) (known, used float64) {
	l, _ := s.Limiter(rule)
	c := new(view).of(l, key, at)
	t := l.terms.Load()
	_, read := c.room(t, at)
	return l.shape.Count(c.totals(), read), c.used(t, at)
}

// explained is one rule's part in a decision.
type explained struct {
	rule, counter string
	cost          int64
	denied        bool
}

// Explained is what each rule would make of a request.
func (s *stage) Explained(at int64, o op) (all []explained) {
	a := new(asking)
	a.match(s.program.Load(), o.attrs, at, o.cost, peeking)
	a.lookForRoom(o.attrs, at)
	a.askViews(at)
	for i := range a.asked {
		q := &a.asked[i]
		all = append(all, explained{q.terms.name, q.limiter.name, q.cost, q.denies})
	}
	return all
}
