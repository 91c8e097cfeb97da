package check

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/offpath-io/offpath/pkg/rules"
)

// ways are all the ways to ask for a decision on one hit.
var ways = map[string]func(c *Checker, l *Limiter, name string) Decision{
	"Limiter.Check":   func(_ *Checker, l *Limiter, name string) Decision { return l.Check(name, 1) },
	"Limiter.Peek":    func(_ *Checker, l *Limiter, name string) Decision { return l.Peek(name, 1) },
	"Limiter.Reserve": func(_ *Checker, l *Limiter, name string) Decision { _, d := l.Reserve(name, 1); return d },
	"Limiter.Acquire": func(_ *Checker, l *Limiter, name string) Decision {
		d, _ := l.Acquire(context.Background(), name, 1)
		return d
	},
	"Limiter.Wait": func(_ *Checker, l *Limiter, name string) Decision {
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond) // less than any block of the test
		defer cancel()
		d, _ := l.Wait(ctx, name, 1)
		return d
	},
	"Limiter.CheckReceipt":   func(_ *Checker, l *Limiter, name string) Decision { d, _ := l.CheckReceipt(name, 1); return d },
	"Limiter.ReserveReceipt": func(_ *Checker, l *Limiter, name string) Decision { _, d, _ := l.ReserveReceipt(name, 1); return d },
	"Check":                  func(c *Checker, _ *Limiter, name string) Decision { return c.Check(user(name), 1) },
	"Peek":                   func(c *Checker, _ *Limiter, name string) Decision { return c.Peek(user(name), 1) },
	"Reserve":                func(c *Checker, _ *Limiter, name string) Decision { _, d := c.Reserve(user(name), 1); return d },
	"Acquire": func(c *Checker, _ *Limiter, name string) Decision {
		d, _ := c.Acquire(context.Background(), user(name), 1)
		return d
	},
	"CheckReceipt": func(c *Checker, _ *Limiter, name string) Decision { d, _ := c.CheckReceipt(user(name), 1); return d },
	"Explain":      func(c *Checker, _ *Limiter, name string) Decision { d, _ := c.Explain(user(name), 1); return d },
}

// block blocks a key for an hour of the bubble's time.
func block(c *Checker, rule, key string) {
	c.SetBlocks([]Block{{Rule: rule, Key: key, Until: time.Now().Add(time.Hour)}})
}

// TestBlockedKeyIsDeniedEverywhere: by whatever rule and call; other keys are not, nor is that key by another rule.
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
		d := l.CheckAt(noon+i, "k", 1)
		require(t, !d.Allowed && d.RetryAfter == time.Duration(3*second-i), "%+v", d)
	}
	l.RecordAt(noon, "k", 1)
	c.RecordAt(noon, user("k"), 1)
	d := c.CheckAt(noon+3*second-1, user("k"), 1)
	expect(t, !d.Allowed && d.RetryAfter == 1, "a moment before its end: %+v", d)
	d = l.CheckAt(noon+3*second, "k", 1)
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
	expect(t, !l.CheckAt(noon, "k", 1).Allowed && !limiter(t, c, "b").CheckAt(noon, "k", 1).Allowed,
		"a rule has changed, or come: allowed")
	c.SetBlocks([]Block{{"b", "k", time.Unix(0, noon+second)}})
	d := l.CheckAt(noon, "k", 1)
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
	byText, byHash := c.CheckAt(noon, user("text"), 1), c.CheckAt(noon, user("hash"), 1)
	expect(t, byText.Allowed && byText.Shadow == "dark" && !byHash.Allowed, "by attributes: %+v, %+v", byText, byHash)
	byText, byHash = limiter(t, c, "dark").CheckAt(noon, "text", 1), limiter(t, c, "r").CheckAt(noon, "hash", 1)
	expect(t, byText.Allowed && byText.Shadow == "dark" && !byHash.Allowed, "by key: %+v, %+v", byText, byHash)
}

// TestBlocksTakeEffectAtOnce while other goroutines check.
func TestBlocksTakeEffectAtOnce(t *testing.T) {
	c, l := checkerAndLimiter(t, Options{}, rule("r", 1_000_000_000, time.Hour, 1), rule("s", 1_000_000_000, time.Hour, 1))
	stop := meanwhile(2, func(int) {
		d := l.CheckAt(noon, "good", 1)
		expect(t, d.Allowed, "%+v", d)
		l.CheckAt(noon, "bad", 1)
		c.CheckAt(noon, user("bad"), 1)
	})
	defer stop()
	for i := range 300 {
		for _, blocks := range [][]Block{{{"r", "bad", time.Unix(0, noon+second)}}, nil} {
			c.SetBlocks(blocks)
			one, all := l.CheckAt(noon, "bad", 1), c.CheckAt(noon, user("bad"), 1)
			blocked := blocks != nil
			require(t, one.Allowed != blocked && all.Allowed != blocked, "round %d, blocked: %v: %+v, %+v", i, blocked, one, all)
		}
	}
}

// TestBlockedKeyNeedsNoPermits of a strict rule.
func TestBlockedKeyNeedsNoPermits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, Options{}, strictRule("r", 100, time.Hour, 1))
		block(f.Checker, "r", "k")
		for way, ask := range ways {
			d := ask(f.Checker, limiter(t, f.Checker, "r"), "k")
			expect(t, !d.Allowed && d.RetryAfter == time.Hour, "%s: %+v", way, d)
		}
		f.Step(noon + ms)
		f.Step(noon + 100*ms)
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
		f.grants(ownTime(), 0, 5, 0, 0)
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

// TestBlocksLeaveOtherKeysAlone: a rule with blocks counts them under the same name, also beside a rule
// with the same key.
func TestBlocksLeaveOtherKeysAlone(t *testing.T) {
	c := newChecker(t, Options{}, rule("a", 100, time.Hour, 1), rule("b", 100, time.Hour, 1), rule("c", 100, time.Hour, 1))
	c.SetBlocks([]Block{{"b", "bad", time.Unix(0, noon+second)}, {"c", "bad", time.Unix(0, noon+second)}})
	for range 7 {
		c.CheckAt(noon, user("good"), 1)
	}
	for _, name := range []string{"a", "b", "c"} {
		equal(t, limiter(t, c, name).PeekAt(noon, "good", 1).Remaining, 93, "%s: remaining", name)
	}
	_, all := c.ExplainAt(noon, user("bad"), 1)
	x := all[0]
	expect(t, x.Barred == "" && !x.Denies, "the rule without the block: %+v", x)
	x = all[1]
	expect(t, x.Barred == "its key is blocked" && x.Denies && x.Decides && x.RetryAfter == time.Second,
		"the rule with it: %+v", x)
}
