package endtoend

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/membus"
	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/memstore"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

// acquireRules are decided together: every request is by one of six users, at one of two addresses,
// of one API. Together the addresses let 60 hits a second pass; the others deny now and then.
var acquireRules = strictly(
	rules.Rule{Name: "user", Key: []string{"user"}, Limit: 14, Window: window.Shape{Length: time.Second, Buckets: 1}},
	rules.Rule{Name: "ip", Key: []string{"ip"}, Limit: 60, Window: window.Shape{Length: 2 * time.Second, Buckets: 4}},
	rules.Rule{Name: "api", Key: []string{"api"}, Limit: 30, Window: window.Shape{Length: 300 * time.Millisecond, Buckets: 3}},
)

// passing is one request that has passed.
type passing struct {
	at, cost int64
	attrs    identity.Attributes
}

// TestAcquireNeverExceedsSeveralStrictRules lets many callers at several checkers wait for permits
// of several rules at once, with random costs and deadlines, on networks that delay, repeat and
// lose everything: no rule's own count ever exceeds its limit, nobody waits longer than it may,
// nobody is left waiting, and much of what fits passes.
func TestAcquireNeverExceedsSeveralStrictRules(t *testing.T) {
	for seed := range seeds(1, 12) {
		var passed []passing
		synctest.Test(t, func(t *testing.T) { passed = acquireMany(t, seed) })
		w := &world{t: t, options: options{seed: seed}, truth: make(map[place]*history)}
		for _, p := range passed {
			w.now = p.at
			for i := range acquireRules {
				text, _ := acquireRules[i].AppendKey(nil, p.attrs)
				w.permit(&acquireRules[i], string(text), p.cost)
			}
		}
		hits := w.admitted / 3
		w.require(hits >= 6*60/2, "%d hits passed in six seconds, want half of 60 a second at least", hits)
	}
}

// acquireMany runs a fleet and its callers for six seconds, and returns what passed, in order.
func acquireMany(t *testing.T, seed uint64) (passed []passing) {
	faults := membus.Faults{
		Delay: time.Duration(seed%4) * time.Millisecond, Jitter: time.Duration(seed%7) * time.Millisecond,
		Repeat: 0.1, RepeatWithin: time.Second,
	}
	if seed%3 == 0 {
		faults.Lose = 0.1
	}
	begin := time.Now() // midnight in a bubble, as start is the beginning of a minute
	checkers := runAcquireFleet(t, seed, faults)
	time.Sleep(3 * time.Second) // until clocks are right
	var mu sync.Mutex
	var callers sync.WaitGroup
	for g := range uint64(24) {
		callers.Go(func() {
			for r := rand.New(rand.NewPCG(seed, g)); time.Since(begin) < 9*time.Second; {
				time.Sleep(time.Duration(r.Int64N(int64(40 * time.Millisecond))))
				c, cost := checkers[r.IntN(len(checkers))], max(r.Int64N(9)-5, 1)
				attrs := attributes(fmt.Sprintf("user=%d ip=%d api=a", r.IntN(6), r.IntN(2)))
				wait := time.Duration(r.Int64N(int64(30 * time.Millisecond)))
				switch r.IntN(8) {
				case 0, 1:
					wait = 0
				case 2:
					wait = 10 * time.Second
				}
				if decide(t, c, attrs, cost, wait) {
					mu.Lock()
					passed = append(passed, passing{start + int64(time.Since(begin)), cost, attrs})
					mu.Unlock()
				}
			}
		})
	}
	callers.Wait()
	for i, c := range checkers {
		n := c.Stats().Waiting
		expect(t, n == 0, "seed %d: %d still wait at checker %d", seed, n, i)
	}
	slices.SortFunc(passed, func(p, q passing) int { return cmp.Compare(p.at, q.at) })
	return passed
}

// decide asks a checker by all rules, and waits for so long at most.
func decide(t *testing.T, c *check.Checker, attrs identity.Attributes, cost int64, wait time.Duration) bool {
	if wait == 0 {
		return c.Check(attrs, cost).Allowed
	}
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	begin := time.Now()
	d, err := c.Wait(ctx, check.Request{Attributes: attrs, Cost: cost})
	took := time.Since(begin)
	expect(t, took <= wait && (!d.Allowed || err == nil), "after %v of %v: %+v, %v", took, wait, d, err)
	return d.Allowed
}

// runAcquireFleet starts three checkers and two aggregators, which end with the test, checkers
// first.
func runAcquireFleet(t *testing.T, seed uint64, faults membus.Faults) (checkers []*check.Checker) {
	set, err := rules.NewSet(acquireRules...)
	must(t, err)
	bus, store := membus.New(membus.Options{Seed: seed, Faults: faults}), memstore.New()
	daemontest.Background(t, bus.Run)
	for range 2 {
		w, err := aggregate.New(aggregate.Options{Store: store, Bus: bus.Worker(), Shards: 1 + int(seed%3)})
		must(t, err)
		daemontest.Background(t, w.Run)
	}
	for i := range uint64(3) {
		c, err := check.New(check.Options{
			Rules: set, Link: bus.Checker(fmt.Sprint("c", i)), Epoch: i + 1, MaxIdleKeys: -1,
			ReceiptKeys: func() events.ReceiptKeys { return worldKeys },
		})
		must(t, err)
		checkers = append(checkers, c)
		daemontest.Background(t, func(ctx context.Context) error {
			_ = c.Run(ctx) // hits may be left that a bad network has not delivered
			return nil
		})
	}
	return checkers
}

// TestSettlementGivesPermitsBack: a hit that has waited for its permits gives them back like any
// other, also through another checker than the one that let it pass, to whichever checker asks.
func TestSettlementGivesPermitsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		checkers := runAcquireFleet(t, 1, membus.Faults{Delay: time.Millisecond})
		time.Sleep(3 * time.Second) // until clocks are right
		acquire := func(i int, cost int64) (receipt string) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			d, _ := checkers[i].Wait(ctx, check.Request{
				Attributes: attributes("user=a ip=b api=c"), Cost: cost, Receipt: true,
			})
			expect(t, d.Allowed == (d.Receipt != ""), "%+v", d)
			return d.Receipt
		}
		begin := time.Now().Truncate(6 * time.Second).Add(6*time.Second + 10*time.Millisecond)
		time.Sleep(time.Until(begin)) // of a bucket of every rule
		receipt := acquire(0, 14)
		require(t, receipt != "" && acquire(1, 1) == "", "14 of 14 should pass, and not one more")
		time.Sleep(100 * time.Millisecond) // the store has heard of the hits, or else the settlement would come again later
		must(t, checkers[2].Settle(receipt, 4))
		time.Sleep(100 * time.Millisecond)
		// Checkers that had to deny have asked at once, and share.
		expect(t, acquire(1, 11) == "" && acquire(1, 5) != "", "5 of the 10 that were given back should pass, and 11 not")
		l, _ := checkers[0].Limiter("user")
		d, err := checkers[0].Wait(t.Context(), check.Request{Limiter: l, Key: "somebody", Cost: 3, Receipt: true})
		expect(t, d.Allowed && d.Receipt != "" && err == nil, "by one rule: %+v, %v", d, err)
	})
}
