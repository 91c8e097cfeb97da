package check

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestEveryHitIsInOnePlace: at any time every charged hit is pending, in flight or answered, and in
// the end the aggregator has all of them, denied ones too; whatever forecasts admit, and whichever
// rule denies.
func TestEveryHitIsInOnePlace(t *testing.T) {
	seeds := uint64(20)
	if testing.Short() {
		seeds = 4
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 1))
		narrow := rule("narrow", 40, time.Second, 1)
		narrow.Key = []string{"ip"}
		s, c := newStore(t, Options{Tuning: tuning{ReportKeys: 3}}, rule("r", 200, time.Second, 1), narrow)
		l := limiter(t, c, "r")
		keys := [...]string{"a", "b", "c"}
		var allowed, denied, charged int64
		now := noon
		for range 3000 {
			now += r.Int64N(2 * ms)
			key := keys[r.IntN(len(keys))]
			cost := max(1, r.Int64N(12)-7)
			switch r.IntN(8) {
			case 0:
				atTime(now, c).Step()
			case 1:
				s.deliver(t, c, now)
			case 2:
				s.elsewhere(t, l, key, now, r.Uint64N(5), r.Uint64N(5))
			case 3:
				if atTime(now, c).Check(request("ip=192.0.2.1 user="+key), cost).Allowed {
					charged += 2 * cost
				}
			default:
				if d := atTime(now, l).Check(key, cost); d.Allowed {
					allowed, charged = allowed+1, charged+cost
				} else if denied++; d.RetryAfter <= 0 {
					t.Fatalf("seed %d: %+v", seed, d)
				}
			}
			for _, rule := range c.Stats().Rules {
				sum := rule.Answered + rule.InFlight + rule.Pending
				require(t, min(rule.Pending, rule.InFlight, rule.Answered) >= 0 && sum == rule.Charged, "seed %d: %+v", seed, rule)
			}
		}
		s.settled(t, c, now)
		one, two := c.Stats().Rules[0], c.Stats().Rules[1]
		expect(t, one.Charged+two.Charged == charged && s.own+s.late == uint64(charged) && unreported(one)+unreported(two) == 0,
			"seed %d: %d admitted, the store has %d: %+v, %+v", seed, charged, s.own+s.late, one, two)
		expect(t, one.Allowed >= allowed && one.Denied >= denied && allowed != 0 && denied != 0 && s.ownDenied != 0,
			"seed %d: %d allowed, %d denied, %d reported denied: %+v", seed, allowed, denied, s.ownDenied, one)
	}
}

// TestAllRulesAreChargedOrNone, by checks that take the last hits of a limit from each other, and
// while their hits are reported.
func TestAllRulesAreChargedOrNone(t *testing.T) {
	const users, limit = 300, 20
	all, each := rule("all", 1e9, time.Hour, 1), rule("each", limit, time.Hour, 1)
	all.Key = []string{"service"}
	s, c := newStore(t, Options{}, all, each)
	var allowed atomic.Int64
	step := func(uint64, int64) { c.Stats() }
	whileReporting(t, s, c, users*limit, step, func(g, i int, now int64) {
		if atTime(now, c).Check(request(fmt.Sprintf("service=s user=u%d", min(i/limit, users-1))), 1).Allowed {
			allowed.Add(1)
		}
	})
	for _, r := range c.Stats().Rules {
		expect(t, r.Charged == users*limit && r.Allowed == users*limit && allowed.Load() == users*limit,
			"%d requests passed: %+v", allowed.Load(), r)
	}
}

// TestDeniedHitsAreReportedOnce each from the time on that there is a forecast, with one rule and
// cost 1.
func TestDeniedHitsAreReportedOnce(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	s, c := newStore(t, Options{}, rule("r", 100, time.Second, 1))
	l := limiter(t, c, "r")
	denied, now := uint64(0), noon
	for range 20_000 {
		now += r.Int64N(ms / 4)
		if !atTime(now, l).Check("k", 1).Allowed {
			denied++
		}
		switch r.IntN(30) {
		case 0:
			atTime(now, c).Step()
		case 1:
			s.deliver(t, c, now)
		}
	}
	s.settled(t, c, now)
	got := c.Stats().Rules[0].Denied
	expect(t, got == int64(denied) && s.ownDenied == denied && denied >= 10_000,
		"%d denied: Stats has %d, the store %d", denied, got, s.ownDenied)
}

// whileReporting runs check from several goroutines, at least so many times each, while another one
// steps the checker at the time of its clock, and returns when all is reported and answered.
func whileReporting(t *testing.T, s *store, c *Checker, tries int, step func(i uint64, now int64), check func(g, i int, now int64)) {
	t.Helper()
	const steps = 400
	var clock, taken atomic.Int64
	clock.Store(noon)
	var checking sync.WaitGroup
	stop := meanwhile(1, func(int) {
		now := clock.Add(ms / 2)
		atTime(now, c).Step()
		s.deliver(t, c, now)
		step(uint64(taken.Load()), now)
		taken.Add(1)
	})
	for g := range 4 {
		checking.Go(func() {
			for i := 0; i < tries || taken.Load() < steps; i++ {
				check(g, i, clock.Load())
			}
		})
	}
	checking.Wait()
	stop()
	s.settled(t, c, clock.Load())
}

// TestConcurrentChecksAreCountedOnce: goroutines check a key near its limit while reports are made
// and answered, and alarms come. Each decision is counted once, and each hit is in one place.
func TestConcurrentChecksAreCountedOnce(t *testing.T) {
	s, c := newStore(t, Options{}, rule("r", 2000, time.Second, 1), rule("all", 1e9, time.Second, 1))
	l := limiter(t, c, "r")
	var allowed, denied, hits atomic.Int64
	alarm := func(i uint64, now int64) { s.elsewhere(t, l, "hot", now, i%3, i%5) }
	whileReporting(t, s, c, 4000, alarm, func(g, i int, now int64) {
		cost := int64(1 + (g+i)%7/6)
		d := Decision{}
		if g == 0 && i%4 == 0 {
			d = atTime(now, c).Check(user("hot"), cost)
		} else {
			d = atTime(now, l).Check("hot", cost)
		}
		if d.Allowed {
			allowed.Add(1)
			hits.Add(cost)
		} else if denied.Add(1); d.RetryAfter <= 0 {
			t.Errorf("%+v", d)
		}
	})
	got := c.Stats().Rules[0]
	expect(t, got.Allowed == allowed.Load() && got.Denied == denied.Load() && got.Charged == hits.Load(),
		"%+v; %d allowed, %d denied, %d hits", got, allowed.Load(), denied.Load(), hits.Load())
	expect(t, got.Charged == got.Answered && unreported(got) == 0, "not all is answered: %+v", got)
}

// TestConcurrentClausesAreCountedOnce: goroutines check, peek, record and explain by rules with all
// clauses, while reports are made and answered and the rules are replaced by equal ones.
func TestConcurrentClausesAreCountedOnce(t *testing.T) {
	set := parse(t, everything)
	s, c := newStoreOf(t, Options{}, set)
	tries := 3000
	if testing.Short() {
		tries = 1000
	}
	reload := func(i uint64, now int64) {
		if i%64 == 0 {
			if err := atTime(now, c).SetRules(set, i); err != nil {
				t.Error(err)
			}
		}
	}
	callers := []string{"user=a", "user=b class=critical", "user=a class=analytics", "user=b tokens=3"}
	var charged atomic.Int64 // to the rule plain
	whileReporting(t, s, c, tries, reload, func(g, i int, now int64) {
		r := request(callers[(g+i)%len(callers)])
		switch i % 8 {
		case 5:
			atTime(now, c).try(Peek, r, 1)
		case 6:
			atTime(now, c).try(Record, r[:1], 1)
			charged.Add(1)
		case 7:
			atTime(now, c).tryExplain(r, 1)
		default:
			if atTime(now, c).Check(r, 1).Allowed {
				charged.Add(1)
			}
		}
	})
	for _, got := range c.Stats().Rules {
		expect(t, (got.Rule != "plain" || got.Charged == charged.Load()) && got.Charged == got.Answered,
			"%+v, want %d charged", got, charged.Load())
	}
}

// TestConcurrentChecksShareTheLimitExactly: however many goroutines there are, and allowances are
// withdrawn.
func TestConcurrentChecksShareTheLimitExactly(t *testing.T) {
	const limit, keys, tries = 1000, 3, 700
	c := newChecker(t, Options{}, rule("r", limit, time.Hour, 1), rule("second", limit/2, time.Hour, 60))
	var admitted [keys]atomic.Int64
	var checking sync.WaitGroup
	now := noon
	stop := meanwhile(1, func(int) {
		c.reporter.Step(now, true)
		now = min(now+ms, noon+60*second)
	})
	names := [keys]string{"a", "b", "c"}
	for g := range 8 {
		checking.Go(func() {
			for i := range tries {
				k := (g + i) % keys
				cost := int64(1 + i%3)
				var d Decision
				if k == 0 { // this one by both rules
					d = atTime(noon, c).Check(user(names[k]), cost)
				} else {
					d = atTime(noon, limiter(t, c, "r")).Check(names[k], cost)
				}
				if d.Allowed {
					admitted[k].Add(cost)
				}
			}
		})
	}
	checking.Wait()
	stop()
	for k, want := range [keys]int64{limit / 2, limit, limit} {
		got := admitted[k].Load()
		expect(t, got <= want && got >= want-2, "key %s: %d hits passed, the limit is %d", names[k], got, want)
	}
	rules := c.Stats().Rules
	charged := rules[0].Charged + rules[1].Charged
	want := 2*admitted[0].Load() + admitted[1].Load() + admitted[2].Load()
	expect(t, charged == want, "%d hits charged, %d admitted", charged, want)
}
