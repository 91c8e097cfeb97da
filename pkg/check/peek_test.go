package check

import (
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/identity"
)

// op is one event of a random schedule: a request, or something that reaches the checker from the
// aggregator.
type op struct {
	after int64
	kind  int // 0: a step, 1: answers come, 2: an alarm comes, else a request
	attrs identity.Attributes
	cost  int64
	key   string
	hits  uint64 // of others
}

// schedules draws random ones, of which some are long and dense enough to reach limits.
func schedules() *rapid.Generator[[]op] {
	return rapid.Custom(func(t *rapid.T) []op {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 5))
		list := make([]op, rapid.SampledFrom([]int{20, 200, 600}).Draw(t, "events"))
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
	o.attrs = request("user=" + o.key + pick("", " class=critical", " class=analytics") + pick("", "", " tokens=3", " tokens=none"))
	return o
}

// stage is a checker on a store, in the middle of a schedule.
type stage struct {
	*Checker
	store *store
	now   int64
	soon  bool // reports are answered at once
}

func newStage(t testing.TB, o Options, text string) *stage {
	o.Epoch = 77
	s, c := newStoreOf(t, o, parse(t, text))
	return &stage{Checker: c, store: s, now: noon}
}

// do lets one event happen, and returns what was decided, if it is a request.
func (s *stage) do(t testing.TB, o op) (d Decision, asked bool) {
	s.now += o.after
	switch o.kind {
	case 0:
		if atTime(s.now, s).Step(); s.soon {
			s.store.deliver(t, s.Checker, s.now)
		}
	case 1:
		s.store.deliver(t, s.Checker, s.now)
	case 2:
		s.store.elsewhere(t, limiter(t, s.Checker, "plain"), o.key, s.now, o.hits, o.hits/2)
	default:
		return atTime(s.now, s).Check(o.attrs, o.cost), true
	}
	return d, false
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

// TestPeeksForetellAndChangeNothing: a peek foretells a check in the same moment, but for what is
// charged then; schedules with peeks and without lead to the same decisions and reports. What
// passes is charged to every rule, each at its own cost, beside what a rule with `count: all`
// denied.
func TestPeeksForetellAndChangeNothing(t *testing.T) {
	denied := 0
	rapid.Check(t, func(r *rapid.T) {
		s, bare := newStage(t, Options{}, everything), newStage(t, Options{}, everything)
		charged := make(map[string]int64)
		for i, o := range schedules().Draw(r, "schedule") {
			for range rapid.IntRange(0, 2).Draw(r, "peeks") {
				l := limiter(t, s.Checker, rapid.SampledFrom([]string{"plain", "soft", "every", "classes"}).Draw(r, "rule"))
				atTime(s.now+rapid.Int64Range(0, o.after).Draw(r, "at"), l).try(Peek, o.key, o.cost)
			}
			at := s.now + o.after
			want, parts := atTime(at, s).try(Peek, o.attrs, o.cost).Decision, atTime(at, s).try(Standing, o.attrs, o.cost).Explanations
			unseen, _ := bare.do(t, o)
			got, asked := s.do(t, o)
			require(r, got == unseen, "event %d %+v:\nwithout peeks %+v\nwith peeks    %+v", i, o, unseen, got)
			if !asked {
				continue
			}
			if !got.Allowed {
				denied++
			}
			for _, x := range parts {
				counted := x.Denies && x.Rule == "every"
				if counted { // the check has charged the denied hit
					want.RetryAfter = max(want.RetryAfter, got.RetryAfter)
				}
				if got.Allowed || counted {
					charged[x.Counter] += x.Cost
				}
			}
			require(r, got.Allowed == want.Allowed && got.Exceeded == want.Exceeded && (got.Allowed || got == want),
				"event %d %+v:\npeek  %+v\ncheck %+v", i, o, want, got)
		}
		require(r, bare.store.sequence == s.store.sequence && bare.store.own == s.store.own, "other reports")
		s.store.settled(t, s.Checker, s.now)
		bare.store.settled(t, bare.Checker, s.now)
		require(r, slices.Equal(s.Stats().Rules, bare.Stats().Rules),
			"with peeks    %+v\nwithout peeks %+v", s.Stats().Rules, bare.Stats().Rules)
		for _, got := range s.Stats().Rules {
			require(r, got.Charged == charged[got.Rule], "%s: %d charged, want %d", got.Rule, got.Charged, charged[got.Rule])
		}
	})
	expect(t, denied != 0, "nothing was denied")
}

// TestShadowChangesNothing: random schedules with shadow rules and without lead to the same
// decisions and counts.
func TestShadowChangesNothing(t *testing.T) {
	const shadows = `
  - {name: s1, key: [user], limit: 30/second, shadow: true}
  - {name: s2, key: [], limit: 100/second, shadow: true, count: all, cost: tokens}
  - {name: s3, key: [class], limit: 100/second, shadow: true, on_missing: deny, deny: {user: [b]}}
`
	shadowed := 0
	rapid.Check(t, func(r *rapid.T) {
		// All reports go by the timer, with all that there is to report: shadow rules may change
		// when others' go.
		o := Options{FlushEvery: 20e6, QuietFor: 1, Tuning: tuning{FlushFloor: 20e6}}
		bare, dark := newStage(t, o, everything), newStage(t, o, everything+shadows)
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
			require(r, with[i] == want, "without %+v, with %+v", want, with[i])
		}
	})
	expect(t, shadowed != 0, "not enough happened")
}

// TestClassesStayWithinTheirShares of the limit, by what is known, and by what is expected of
// others.
func TestClassesStayWithinTheirShares(t *testing.T) {
	const text = `
rules:
  - {name: plain, key: [user], limit: 200/second, priority: {by: class, shares: {critical: 100%, default: 80%, analytics: 30%}}}
`
	shares := map[string]int64{"critical": 200, "": 160, "analytics": 60}
	passed, foreseen := map[string]int{}, 0
	rapid.Check(t, func(r *rapid.T) {
		schedule := schedules().Draw(r, "schedule")
		for _, plainly := range []bool{false, true} {
			s := newStage(t, Options{Tuning: tuning{NoForecast: plainly}}, text)
			for i, o := range schedule {
				at := s.now + o.after
				known, used := s.known("plain", o.key, at)
				d, asked := s.do(t, o)
				class, _ := o.attrs.Get("class")
				if !asked || !d.Allowed {
					continue
				}
				passed[class]++
				require(r, float64(shares[class]) >= known+float64(o.cost)-1e-6,
					"plainly %v, event %d %+v: passed with %v of %d known", plainly, i, o, known, shares[class])
				if used > known && shares[class] < 200 {
					if foreseen++; float64(shares[class]) < used+float64(o.cost)-1e-6 {
						r.Fatalf("plainly %v, event %d %+v: passed with %v of %d expected", plainly, i, o, used, shares[class])
					}
				}
			}
		}
	})
	expect(t, len(passed) >= 3 && foreseen != 0, "not enough happened: %v, %d", passed, foreseen)
}

// known returns how many hits a limiter knows of in a key's window, and used how many it expects
// with others'.
func (s *stage) known(rule, key string, at int64) (known, used float64) {
	l, _ := s.Limiter(rule)
	c := new(counter.View).Of(&l.core.Group, key, at)
	t := l.core.Group.Limits.Load()
	_, read := c.Room(t, at)
	return l.core.Group.Shape.Count(c.Totals(), read), c.Used(t, at)
}
