package endtoend

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/offpath-io/offpath/internal/testing/membus"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
)

// bill is a hit whose true cost is known later, and what became of it.
type bill struct {
	token     string
	key       string
	bucket    map[string]int64 // by rule
	estimate  int64
	cost      int64 // the true one, decided in the beginning
	settledAt map[int]bool
}

func (b *bill) settled() bool { return len(b.settledAt) > 0 }

// charge asks a checker for a hit by all rules, and keeps its token.
func (w *world) charge(i int, key string, estimate, cost int64) *bill {
	w.t.Helper()
	w.asked++
	c := w.checkers[i]
	d, token := c.CheckTokenAt(w.own(i), identity.Attributes{{Name: "user", Value: key}}, estimate)
	if d.Allowed != (token != "") {
		w.fail("%+v, token %q", d, token)
	}
	w.heed(c)
	if !d.Allowed {
		return nil
	}
	m, err := events.DecodeToken(token)
	if err != nil || len(m.Charges) != len(w.rules.Rules()) {
		w.fail("token %v: %v", m, err)
	}
	b := &bill{token: token, key: key, bucket: make(map[string]int64), estimate: estimate, cost: cost, settledAt: make(map[int]bool)}
	for _, charge := range m.Charges {
		b.bucket[charge.Rule.Name] = charge.Rule.Newest
		w.admitted += estimate
	}
	return b
}

// pay settles a bill at a checker.
func (w *world) pay(b *bill, i int) {
	w.t.Helper()
	err := w.checkers[i].SettleAt(w.own(i), b.token, b.cost)
	if b.settledAt[i] != errors.Is(err, check.ErrSettled) || err != nil && !b.settledAt[i] {
		w.fail("%s settles, before: %v: %v", w.checkers[i].name, b.settledAt, err)
	}
	b.settledAt[i] = true
	w.heed(w.checkers[i])
}

// TestSettlementsOfSchedules runs fleets on bad networks, with a bad store and killed aggregators, in which hits are
// settled late, early, up, down, twice, and at several checkers at once. In the end each token has counted once, the
// ledger knows of every hit, and all checkers know what is left.
func TestSettlementsOfSchedules(t *testing.T) {
	schedules := uint64(1500)
	if testing.Short() {
		schedules = 40
	}
	var bills, twice, settled, refunded, late int64
	for seed := range schedules {
		w, list := runSettlements(t, seed)
		for _, b := range list {
			bills++
			if len(b.settledAt) > 1 {
				twice++
			}
		}
		for _, l := range w.ledger() {
			settled, refunded, late = settled+l.Settled, refunded+l.Refunded, late+l.Late
		}
	}
	t.Logf("%d schedules: %d bills, %d of them settled at several checkers; %d hits more and %d fewer than estimated, %d late",
		schedules, bills, twice, settled, refunded, late)
	if twice == 0 || settled == 0 || refunded == 0 || late == 0 {
		t.Error("the schedules were too tame")
	}
}

func runSettlements(t *testing.T, seed uint64) (*world, []*bill) {
	t.Helper()
	w := newWorld(t, seed, 1+int(seed%4), 1+int(seed/4%3), 1+int(seed/12%3), randomFaults(seed))
	var list []*bill
	for range 100 {
		w.accident()
		for range w.rand.IntN(3) {
			b := w.charge(w.rand.IntN(len(w.checkers)), fmt.Sprint("k", w.rand.IntN(3)), 1+w.rand.Int64N(6), w.rand.Int64N(8))
			if b != nil {
				list = append(list, b)
			}
		}
		for range w.rand.IntN(3) {
			if len(list) > 0 { // new ones more often
				b := list[max(w.rand.IntN(len(list)), w.rand.IntN(len(list)))]
				w.pay(b, w.rand.IntN(len(w.checkers)))
			}
		}
		w.advance(time.Duration(w.rand.Int64N(int64(30 * time.Millisecond))))
		if w.rand.IntN(50) == 0 {
			w.advance(time.Duration(w.rand.Int64N(int64(4 * time.Second))))
		}
	}
	w.settle()
	w.conserved()
	w.billed(list)
	w.net(list)
	w.outlast()
	w.conserved()
	w.billed(list)
	return w, list
}

// billed holds the ledger against the bills: each has counted once.
func (w *world) billed(list []*bill) {
	w.t.Helper()
	var settled, refunded int64
	for _, b := range list {
		if b.settled() {
			settled += max(b.cost-b.estimate, 0)
			refunded += max(b.estimate-b.cost, 0)
		}
	}
	for _, c := range w.checkers {
		if s := c.Stats(); s.SettlementsTaken != s.SettlementsAnswered {
			w.fail("%s: %d settlements taken, %d answered, %d lost", c.name, s.SettlementsTaken, s.SettlementsAnswered, s.SettlementsLost)
		}
	}
	for rule, l := range w.ledger() {
		if l.Settled != settled || l.Refunded != refunded {
			w.fail("rule %s: %+v, want %d settled and %d refunded", rule, l, settled, refunded)
		}
	}
}

// net has one checker after the other report a hit, and then know what is left by the longest window: what all hits
// truly cost.
func (w *world) net(list []*bill) {
	w.t.Helper()
	rule := testRules[len(testRules)-1]
	for k := range 3 {
		key := fmt.Sprint("k", k)
		for _, c := range w.checkers {
			l, _ := c.Limiter(rule.Name)
			if !l.CheckAt(w.now, key, 1).Allowed {
				continue
			}
			w.admitted++
			list = append(list, &bill{key: key, bucket: map[string]int64{rule.Name: rule.Window.Bucket(w.now)}, estimate: 1})
			w.advance(time.Second + w.quietFor)
			want := rule.Window.Remaining(trueCosts(list, rule, key, w.now), rule.Limit, w.now)
			if d := l.CheckAt(w.now, key, rule.Limit+1); d.Remaining != want {
				w.fail("%s knows of %d left of %s, the truth is %d", c.name, d.Remaining, key, want)
			}
		}
	}
}

func trueCosts(list []*bill, rule rules.Rule, key string, now int64) []int64 {
	counts := make([]int64, rule.Window.Live())
	for _, b := range list {
		age := rule.Window.Bucket(now) - b.bucket[rule.Name]
		switch {
		case b.key != key || age >= int64(len(counts)):
		case b.settled():
			counts[age] += b.cost
		default:
			counts[age] += b.estimate
		}
	}
	return counts
}

// TestOneTokenAtTwoDaemons: whichever is first is right, whatever the second says, and nobody can tell who that was
// but by the count.
func TestOneTokenAtTwoDaemons(t *testing.T) {
	for seed := range uint64(50) {
		w := newWorld(t, seed, 2, 1+int(seed%3), 1, randomFaults(seed))
		w.advance(time.Second)
		b := w.charge(0, "k", 5, 2)
		for b == nil {
			w.advance(time.Second)
			b = w.charge(0, "k", 5, 2)
		}
		w.pay(b, 0)
		w.advance(time.Duration(w.rand.Int64N(int64(100 * time.Millisecond))))
		b.cost = 1
		w.pay(b, 1)
		w.settle()
		w.outlast()
		w.conserved()
		for rule, l := range w.ledger() {
			if l.Refunded != 3 && l.Refunded != 4 {
				w.fail("rule %s: %+v: want 3 or 4 refunded", rule, l)
			}
		}
	}
}

// TestStrictSettlements: under strict enforcement a hit that costs less gives its permits back, to whichever checker
// asks, and at no time do hits that passed, at what they cost by all that was said until then, exceed the limit.
func TestStrictSettlements(t *testing.T) {
	seeds := uint64(150)
	if testing.Short() {
		seeds = 15
	}
	var passed, refunded int64
	for seed := range seeds {
		list := []rules.Rule{testRules[0], testRules[3]}
		faults := membus.Faults{Delay: 2 * time.Millisecond, Repeat: 0.2, RepeatWithin: time.Second}
		w := newStrictWorld(t, seed, 1+int(seed%3), 1+int(seed%2), 1, faults, list...)
		w.advance(time.Second)
		var open []*bill
		for range 300 {
			if b := w.charge(w.rand.IntN(len(w.checkers)), "k", 1+w.rand.Int64N(8), 0); b != nil {
				b.cost = w.rand.Int64N(b.estimate + 1)
				for i := range list {
					r := &list[i]
					h := recall(w.truth, place{r.Name, "k"})
					if left := r.Window.Remaining(h.counts(r.Window, w.now), r.Limit, w.now); b.estimate > left {
						w.fail("%d pass under %s with %d left", b.estimate, r.Name, left)
					}
					(*h)[b.bucket[r.Name]] += b.estimate
				}
				passed += b.estimate
				open = append(open, b)
			}
			if len(open) > 0 && w.rand.IntN(2) == 0 {
				at := w.rand.IntN(len(open))
				b := open[at]
				open = append(open[:at], open[at+1:]...)
				w.pay(b, w.rand.IntN(len(w.checkers)))
				for i := range list {
					(*recall(w.truth, place{list[i].Name, "k"}))[b.bucket[list[i].Name]] -= b.estimate - b.cost
				}
				refunded += b.estimate - b.cost
			}
			w.advance(time.Duration(w.rand.Int64N(int64(20 * time.Millisecond))))
		}
		w.settle()
		w.conserved()
	}
	t.Logf("%d hits passed, %d of them were given back", passed, refunded)
	if refunded < passed/10 {
		t.Error("the schedules were too tame")
	}
}

// TestStrictRefundsReachOthers: a checker that was told that there is no room asks again when there is some.
func TestStrictRefundsReachOthers(t *testing.T) {
	w := newStrictWorld(t, 3, 2, 1, 1, membus.Faults{Delay: 2 * time.Millisecond}, testRules[3])
	w.advance(time.Second)
	pass := func(i int, cost int64) *bill {
		for range 100 {
			if b := w.charge(i, "k", cost, 0); b != nil {
				return b
			}
			w.advance(10 * time.Millisecond)
		}
		return nil
	}
	b := pass(0, 60)
	if b == nil || pass(1, 1) != nil {
		t.Fatal("60 should pass, and not one more")
	}
	b.cost = 20
	w.pay(b, 0)
	w.advance(100 * time.Millisecond)
	if pass(1, 30) == nil {
		t.Error("30 of the 40 that were given back do not pass elsewhere")
	}
	if pass(0, 11) != nil {
		t.Error("more pass than were given back")
	}
}
