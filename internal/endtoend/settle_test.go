package endtoend

import (
	"errors"
	"testing"
	"time"

	"github.com/offpath-io/offpath/internal/testing/membus"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

// bill is a hit whose true cost is known later, and what became of it.
type bill struct {
	receipt   string
	key       string
	bucket    map[string]int64 // by rule
	estimate  int64
	cost      int64 // the true one, decided in the beginning
	settledAt map[int]bool
}

// counts is what the bill has been counted for in the end.
func (b *bill) counts() int64 {
	if len(b.settledAt) > 0 {
		return b.cost
	}
	return b.estimate
}

// charge asks a checker for a hit by all rules, and keeps its receipt.
func (w *world) charge(i int, key string, estimate, cost int64) *bill {
	w.t.Helper()
	w.asked++
	c := w.checkers[i]
	d := c.Do(check.Request{Attributes: attributes("user=" + key), Cost: estimate, Receipt: true})
	receipt := d.Receipt
	w.require(d.Allowed == (receipt != ""), "%+v, receipt %q", d, receipt)
	w.wake(c)
	if !d.Allowed {
		return nil
	}
	m, err := worldKeys.Decode(receipt)
	w.require(err == nil && len(m.Charges) == len(w.rules.Rules()), "receipt %v: %v", m, err)
	b := &bill{receipt, key, make(map[string]int64), estimate, cost, make(map[int]bool)}
	for _, charge := range m.Charges {
		b.bucket[charge.Rule.Name] = charge.Rule.Newest
		w.admitted += estimate
	}
	return b
}

// pay settles a bill at a checker.
func (w *world) pay(b *bill, i int) {
	w.t.Helper()
	err := w.checkers[i].Settle(b.receipt, b.cost)
	w.require(b.settledAt[i] == errors.Is(err, check.ErrSettled) && (err == nil || b.settledAt[i]),
		"%s settles, before: %v: %v", w.checkers[i].name, b.settledAt, err)
	b.settledAt[i] = true
	w.wake(w.checkers[i])
}

// settlements is a schedule in which hits are settled late, early, up, down, twice, and at several
// checkers at once.
type settlements struct {
	steps, keys    int
	estimate, most int64 // of a hit: the highest estimate, the highest cost
	pace           pace
}

func (w *world) settleAtRandom(s settlements) (list []*bill) {
	w.t.Helper()
	w.play(s.steps, s.pace, func() {
		for range w.rand.IntN(3) {
			b := w.charge(w.rand.IntN(len(w.checkers)), w.key(s.keys), 1+w.rand.Int64N(s.estimate), w.rand.Int64N(s.most+1))
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
	})
	return list
}

// billed takes in what became of the bills, and holds the ledger against them: each has counted
// once.
func (s seen) billed(w *world, list []*bill) {
	w.t.Helper()
	var settled, refunded int64
	for _, b := range list {
		settled += max(b.counts()-b.estimate, 0)
		refunded += max(b.estimate-b.counts(), 0)
		if len(b.settledAt) > 1 {
			s["settled at several checkers"]++
		}
	}
	for _, c := range w.checkers {
		s := c.Stats()
		w.require(s.SettlementsTaken == s.SettlementsAnswered,
			"%s: %d settlements taken, %d answered, %d lost", c.name, s.SettlementsTaken, s.SettlementsAnswered, s.SettlementsLost)
	}
	for rule, l := range w.ledger() {
		w.require(l.Settled == settled && l.Refunded == refunded,
			"rule %s: %+v, want %d settled and %d refunded", rule, l, settled, refunded)
		s["late"] += l.Late
	}
	s["settled for more"] += settled
	s["settled for less"] += refunded
}

// TestEachReceiptIsSettledOnce runs fleets on bad networks, with a bad store and killed
// aggregators. In the end each receipt has counted once, the ledger knows of every hit, and all
// checkers know what is left.
func TestEachReceiptIsSettledOnce(t *testing.T) {
	happened := seen{"late": 0, "settled at several checkers": 0, "agreed": 0}
	for seed := range seeds(6, 600) {
		w := newWorld(t, options{seed: seed, faults: faultsOf(seed), prompt: seed%2 == 0})
		list := w.settleAtRandom(settlements{100, 3, 6, 7, rough})
		longest := &testRules[len(testRules)-1]
		w.end(func() { happened.billed(w, list) }, func() { list = w.agreeOnCosts(list, longest, 3) })
		happened.billed(w, list)
		happened.add(w)
	}
	happened.all(t)
}

// agreeOnCosts is agree by what all hits truly cost; the hits that it adds join them.
func (w *world) agreeOnCosts(list []*bill, r *rules.Rule, keys int) []*bill {
	w.t.Helper()
	w.agree(r, keys, func(c *checker, key string) bool {
		l, _ := c.Limiter(r.Name)
		allowed := l.Check(key, 1).Allowed
		if allowed { // without a receipt, it costs what it was charged
			w.admitted++
			list = append(list, &bill{key: key, bucket: map[string]int64{r.Name: r.Window.Bucket(w.now)}, estimate: 1})
		}
		return allowed
	}, func(key string) history { return costs(list, r.Name, key) })
	return list
}

// costs is what a key's hits have truly cost, by bucket.
func costs(list []*bill, rule, key string) history {
	h := make(history)
	for _, b := range list {
		if b.key == key {
			h[b.bucket[rule]] += b.counts()
		}
	}
	return h
}

// TestSettlementsChangeTheLevel is the same of token and leaky buckets: in the end every checker
// knows the level that the true costs come to. In windows of a minute no settlement comes when its
// bucket is gone.
func TestSettlementsChangeTheLevel(t *testing.T) {
	happened := seen{"settled at several checkers": 0, "agreed": 0}
	for seed := range seeds(6, 300) {
		rule := bucket("tokens", rules.TokenBucket, 30, 90, time.Minute)
		if seed%2 == 1 {
			rule = bucket("queue", rules.LeakyBucket, 120, 90, time.Minute)
		}
		// The number of checkers must not go with the kind of bucket.
		w := newWorld(t, options{
			seed: seed, checkers: 1 + int(seed/2%4), workers: 1 + int(seed/8%3), faults: faultsOf(seed), rules: []rules.Rule{rule},
		})
		list := w.settleAtRandom(settlements{60, 2, 20, 23, pace{1, 60 * time.Millisecond, 30, 4 * time.Second, time.Second}})
		w.end(func() { happened.billed(w, list) }, func() {
			if rule.Algorithm == rules.LeakyBucket {
				list = w.agreeOnTurns(list)
				return
			}
			for _, wait := range []time.Duration{0, 65 * time.Second} { // the second time all is in the level
				w.advance(wait)
				list = w.agreeOnCosts(list, w.rules.Rules()[0], 2)
			}
		})
		happened.billed(w, list)
		delete(happened, "late") // nothing is, by these windows
		happened.add(w)
	}
	happened.all(t)
}

// agreeOnTurns has one checker after the other charge a hit to an empty queue, and another one
// settle it. Then all of them know when the next one's turn is.
func (w *world) agreeOnTurns(list []*bill) []*bill {
	w.t.Helper()
	for i := range w.checkers {
		w.advance(2 * time.Minute)
		b := w.charge(i, "k0", 80, w.rand.Int64N(80))
		w.require(b != nil, "%s: the queue is not empty", w.checkers[i].name)
		list = append(list, b)
		w.pass(8 * time.Second)
		w.pay(b, w.rand.IntN(len(w.checkers)))
		w.advance(time.Second + w.quietFor)
		for _, c := range w.checkers {
			w.knowsTurn(c, "k0", list)
		}
	}
	return list
}

// knowsTurn holds when a checker says that the next one's turn is against the bills.
func (w *world) knowsTurn(c *checker, key string, list []*bill) {
	w.t.Helper()
	rule := w.rules.Rules()[0]
	level, drain := window.Level{Bucket: rule.Window.Bucket(start) - 1}, rule.Drain()
	counts := costs(list, rule.Name, key).since(start, rule.Window, w.now)
	least, most := drain.Turn(level, counts, w.now), drain.Reset(level, counts, w.now)
	l, _ := c.Limiter(rule.Name)
	d := c.Do(check.Request{Limiter: l, Key: key, Mode: check.Peek})
	wait := d.RetryAfter
	w.require(wait >= least && wait <= most && d.Allowed == (wait == 0),
		"%s says that %s has a turn in %v, want %v to %v: %+v", c.name, key, wait, least, most, d)
}

// TestStrictHoldsWithRefunds: under strict enforcement a hit that costs less gives its permits
// back, to whichever checker asks, and at no time do hits that passed, at what they cost by all
// that was said until then, exceed the limit.
func TestStrictHoldsWithRefunds(t *testing.T) {
	list := []rules.Rule{testRules[0], testRules[3]}
	var passed, refunded int64
	for seed := range seeds(6, 150) {
		w := newWorld(t, options{
			seed: seed, checkers: 1 + int(seed%3), workers: 1 + int(seed%2), shards: 1, rules: strictly(list...), prompt: true,
			faults: membus.Faults{Delay: 2 * time.Millisecond, Repeat: 0.2, RepeatWithin: time.Second},
		})
		w.advance(time.Second)
		var open []*bill
		for range 300 {
			if b := w.charge(w.rand.IntN(len(w.checkers)), "k", 1+w.rand.Int64N(8), 0); b != nil {
				b.cost = w.rand.Int64N(b.estimate + 1)
				for i := range list {
					w.permit(&list[i], "k", b.estimate)
					w.admitted -= b.estimate // charge has counted it
				}
				passed += b.estimate
				open = append(open, b)
			}
			if len(open) > 0 && w.rand.IntN(2) == 0 {
				at := w.rand.IntN(len(open))
				b := open[at]
				open = append(open[:at], open[at+1:]...)
				w.pay(b, w.rand.IntN(len(w.checkers)))
				for rule, bucket := range b.bucket {
					(*recall(w.truth, place{rule, "k"}))[bucket] -= b.estimate - b.cost
				}
				refunded += b.estimate - b.cost
			}
			w.pass(20 * time.Millisecond)
		}
		w.mend()
		w.conserved()
	}
	expect(t, refunded >= passed/10, "%d hits passed, only %d of them were given back", passed, refunded)
}
