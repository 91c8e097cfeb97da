package check

import (
	"context"
	"github.com/offpath-io/offpath/pkg/check/internal/fleetstate"
	"testing"
	"testing/synctest"
	"time"

	"github.com/offpath-io/offpath/pkg/rules"
)

// ways are all the ways to ask for a decision on one hit.
var ways = map[string]func(c *Checker, l *Limiter, name string) Decision{
	"Limiter.Check":   func(_ *Checker, l *Limiter, name string) Decision { return l.Check(name, 1) },
	"Limiter.Peek":    func(_ *Checker, l *Limiter, name string) Decision { return l.try(Peek, name, 1).Decision },
	"Limiter.Reserve": func(_ *Checker, l *Limiter, name string) Decision { _, d := l.tryReserve(name, 1); return d },
	"Limiter.Acquire": func(_ *Checker, l *Limiter, name string) Decision {
		r, _ := l.checker().Wait(context.Background(), Request{Limiter: l, Key: name})
		return r.Decision
	},
	"Limiter.Wait": func(_ *Checker, l *Limiter, name string) Decision {
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond) // less than any block of the test
		defer cancel()
		r, _ := l.checker().Wait(ctx, Request{Limiter: l, Key: name, Mode: Reserve})
		return r.Decision
	},
	"Limiter.CheckReceipt":   func(_ *Checker, l *Limiter, name string) Decision { d, _ := l.tryReceipt(name, 1); return d },
	"Limiter.ReserveReceipt": func(_ *Checker, l *Limiter, name string) Decision { _, d, _ := l.tryReserveReceipt(name, 1); return d },
	"Check":                  func(c *Checker, _ *Limiter, name string) Decision { return c.Check(user(name), 1) },
	"Peek":                   func(c *Checker, _ *Limiter, name string) Decision { return c.try(Peek, user(name), 1).Decision },
	"Reserve":                func(c *Checker, _ *Limiter, name string) Decision { _, d := c.tryReserve(user(name), 1); return d },
	"Acquire": func(c *Checker, _ *Limiter, name string) Decision {
		r, _ := c.Wait(context.Background(), Request{Attributes: user(name)})
		return r.Decision
	},
	"CheckReceipt": func(c *Checker, _ *Limiter, name string) Decision { d, _ := c.tryReceipt(user(name), 1); return d },
	"Explain":      func(c *Checker, _ *Limiter, name string) Decision { d, _ := c.tryExplain(user(name), 1); return d },
}

// block blocks a key for an hour of the bubble's time.
func block(c *Checker, rule, key string) {
	c.SetBlocks([]Block{{Rule: rule, Key: key, Until: time.Now().Add(time.Hour)}})
}

// TestBlockedKeyIsDeniedEverywhere: by whatever rule and call; other keys are not, nor is that key
// by another rule.
func TestBlockedKeyIsDeniedEverywhere(t *testing.T) {
	clause := func(change func(*rules.Rule)) []rules.Rule {
		r := rule("r", 1_000_000, time.Hour, 1)
		change(&r)
		return []rules.Rule{r}
	}
	override := func(action rules.Action, limit int64) []rules.Rule {
		of := rules.Override{Match: []rules.Condition{{Name: "user", Value: "bad"}}, Action: action, Limit: limit}
		return clause(func(r *rules.Rule) { r.Overrides = []rules.Override{of} })
	}
	plain := clause(func(*rules.Rule) {})
	for why, test := range map[string]struct {
		o     Options
		rules []rules.Rule
	}{
		"a limit":                    {Options{}, plain},
		"an override without limit":  {Options{}, override(rules.Unlimited, 0)},
		"an override with one":       {Options{}, override(rules.Limited, 7)},
		"hashed keys":                {Options{KeyHash: hasher(t, "a secret of enough bytes")}, plain},
		"one of two rules":           {Options{}, append([]rules.Rule{rule("other", 1_000_000, time.Hour, 1)}, plain...)},
		"a token bucket":             {Options{}, clause(func(r *rules.Rule) { r.Algorithm = rules.TokenBucket })},
		"soft":                       {Options{}, clause(func(r *rules.Rule) { r.Throttle = rules.Throttle{Kind: rules.Soft, Exceed: 0.5} })},
		"an allow list with the key": {Options{}, clause(func(r *rules.Rule) { r.Allow = []rules.List{{Attribute: "user", Values: []string{"bad"}}} })},
		"classes": {Options{}, clause(func(r *rules.Rule) {
			r.Priority = rules.Priority{By: "class", Shares: map[string]float64{rules.DefaultClass: 0.5}}
		})},
	} {
		for way, ask := range ways {
			t.Run(why+"/"+way, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := newChecker(t, test.o, test.rules...)
					l := limiter(t, c, "r")
					for range 3 { // leaves an allowance
						d := ask(c, l, "bad")
						require(t, d.Allowed, "denied before the block: %+v", d)
					}
					block(c, "r", "bad")
					for range 3 {
						d := ask(c, l, "bad")
						require(t, !d.Allowed && d.Rule == "r" && d.Status == 429 && d.RetryAfter == time.Hour, "blocked: %+v", d)
						d = ask(c, l, "good")
						require(t, d.Allowed, "another key: %+v", d)
					}
					c.SetBlocks(nil)
					d := ask(c, l, "bad")
					require(t, d.Allowed, "denied after the block: %+v", d)
				})
			})
		}
	}
}

// TestBlockEndsAtItsTimeAndChargesNothing, but denials are counted.
func TestBlockEndsAtItsTimeAndChargesNothing(t *testing.T) {
	c, l := checkerAndLimiter(t, Options{}, rule("r", 5, time.Hour, 1))
	c.SetBlocks([]Block{
		{"r", "k", time.Unix(0, noon+second)},
		{"r", "k", time.Unix(0, noon+3*second)}, // the later end holds
		{"r", "k", time.Unix(0, noon+2*second)},
	})
	for i := range int64(10) {
		d := atTime(noon+i, l).Check("k", 1)
		require(t, !d.Allowed && d.RetryAfter == time.Duration(3*second-i), "%+v", d)
	}
	atTime(noon, l).try(Record, "k", 1)
	atTime(noon, c).try(Record, user("k"), 1)
	d := atTime(noon+3*second-1, c).Check(user("k"), 1)
	expect(t, !d.Allowed && d.RetryAfter == 1, "a moment before its end: %+v", d)
	d = atTime(noon+3*second, l).Check("k", 1)
	expect(t, d.Allowed && d.Remaining == 4, "at its end: %+v", d)
	s := c.Stats().Rules[0]
	expect(t, s.Denied == 11 && s.Allowed == 1 && s.Charged == 1, "%+v", s)
}

// TestBlocksOutliveRules, and wait for a rule that is not there.
func TestBlocksOutliveRules(t *testing.T) {
	a, b := rule("a", 100, time.Hour, 1), rule("b", 100, time.Hour, 1)
	c := newChecker(t, Options{}, a)
	l := limiter(t, c, "a")
	c.SetBlocks([]Block{{"a", "k", time.Unix(0, noon+second)}, {"b", "k", time.Unix(0, noon+second)}})
	a.Limit = 200
	reload(t, c, noon, a, b)
	expect(t, !atTime(noon, l).Check("k", 1).Allowed && !atTime(noon, limiter(t, c, "b")).Check("k", 1).Allowed,
		"a rule has changed, or come: allowed")
	c.SetBlocks([]Block{{"b", "k", time.Unix(0, noon+second)}})
	d := atTime(noon, l).Check("k", 1)
	expect(t, d.Allowed && d.Limit == 200, "unblocked: %+v", d)
}

// TestBlocksNameKeysByTextOrHash, and those of a shadow rule are only reported.
func TestBlocksNameKeysByTextOrHash(t *testing.T) {
	h := hasher(t, "a secret of enough bytes")
	shadow := rule("dark", 100, time.Hour, 1)
	shadow.Shadow = true
	c := newChecker(t, Options{KeyHash: h}, shadow, rule("r", 100, time.Hour, 1))
	until := time.Unix(0, noon+second)
	c.SetBlocks([]Block{{"dark", "text", until}, {"r", h.Hash("hash"), until}})
	byText, byHash := atTime(noon, c).Check(user("text"), 1), atTime(noon, c).Check(user("hash"), 1)
	expect(t, byText.Allowed && byText.Shadow == "dark" && !byHash.Allowed, "by attributes: %+v, %+v", byText, byHash)
	byText, byHash = atTime(noon, limiter(t, c, "dark")).Check("text", 1), atTime(noon, limiter(t, c, "r")).Check("hash", 1)
	expect(t, byText.Allowed && byText.Shadow == "dark" && !byHash.Allowed, "by key: %+v, %+v", byText, byHash)
}

// TestBlocksTakeEffectAtOnce while other goroutines check.
func TestBlocksTakeEffectAtOnce(t *testing.T) {
	c, l := checkerAndLimiter(t, Options{}, rule("r", 1_000_000_000, time.Hour, 1), rule("s", 1_000_000_000, time.Hour, 1))
	stop := meanwhile(2, func(int) {
		d := atTime(noon, l).Check("good", 1)
		expect(t, d.Allowed, "%+v", d)
		atTime(noon, l).Check("bad", 1)
		atTime(noon, c).Check(user("bad"), 1)
	})
	defer stop()
	for i := range 300 {
		for _, blocks := range [][]Block{{{"r", "bad", time.Unix(0, noon+second)}}, nil} {
			c.SetBlocks(blocks)
			one, all := atTime(noon, l).Check("bad", 1), atTime(noon, c).Check(user("bad"), 1)
			blocked := blocks != nil
			require(t, one.Allowed != blocked && all.Allowed != blocked, "round %d, blocked: %v: %+v, %+v", i, blocked, one, all)
		}
	}
}

// TestBlockedKeyNeedsNoPermits of a strict rule.
func TestBlockedKeyNeedsNoPermits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := unwelcomed(t, Options{}, strictRule("r", 100, time.Hour, 1))
		f.Step()
		f.welcome(fleetstate.SystemTime(), 1)
		block(f.Checker, "r", "k")
		for way, ask := range ways {
			d := ask(f.Checker, limiter(t, f.Checker, "r"), "k")
			expect(t, !d.Allowed && d.RetryAfter == time.Hour, "%s: %+v", way, d)
		}
		for range 2 {
			time.Sleep(50 * time.Millisecond)
			f.Step()
		}
		equal(t, len(f.tape.leases), 0, "lease requests for a blocked key")
	})
}

// TestBlockDeniesWaiters when their permits come, and those who would find some left.
func TestBlockDeniesWaiters(t *testing.T) {
	inBubble(t, Options{}, []rules.Rule{strictRule("r", 10, time.Minute, 1)}, func(t *testing.T, f *fleet) {
		l := limiter(t, f.Checker, "r")
		waiting := acquire(t.Context(), l, 1)
		f.settled()
		block(f.Checker, "r", "k")
		f.grants(fleetstate.SystemTime(), 0, 5, 0, 0)
		o := ended(waiting)
		require(t, o != nil && !o.d.Allowed && o.d.RetryAfter >= 59*time.Minute, "who waited: %+v", o)
		f.SetBlocks(nil)
		d := l.Check("k", 1) // leaves permits for the next checks
		require(t, d.Allowed, "%+v", d)
		block(f.Checker, "r", "k")
		o = ended(acquire(t.Context(), l, 1))
		require(t, o != nil && !o.d.Allowed, "who finds permits: %+v", o)
	})
}

// TestBlocksLeaveOtherKeysAlone: a rule with blocks counts them under the same name, also beside a
// rule with the same key.
func TestBlocksLeaveOtherKeysAlone(t *testing.T) {
	c := newChecker(t, Options{}, rule("a", 100, time.Hour, 1), rule("b", 100, time.Hour, 1), rule("c", 100, time.Hour, 1))
	c.SetBlocks([]Block{{"b", "bad", time.Unix(0, noon+second)}, {"c", "bad", time.Unix(0, noon+second)}})
	for range 7 {
		atTime(noon, c).Check(user("good"), 1)
	}
	for _, name := range []string{"a", "b", "c"} {
		equal(t, atTime(noon, limiter(t, c, name)).try(Peek, "good", 1).Remaining, 93, "%s: remaining", name)
	}
	_, all := atTime(noon, c).tryExplain(user("bad"), 1)
	x := all[0]
	expect(t, x.Barred == "" && !x.Denies, "the rule without the block: %+v", x)
	x = all[1]
	expect(t, x.Barred == "its key is blocked" && x.Denies && x.Decides && x.RetryAfter == time.Second,
		"the rule with it: %+v", x)
}
