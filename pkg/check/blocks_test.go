package check

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
)

// user are the attributes of a request of this user.
func user(name string) identity.Attributes { return identity.FromMap(map[string]string{"user": name}) }

// ways are all the ways to ask for a decision on one hit.
var ways = map[string]func(c *Checker, l *Limiter, name string) Decision{
	"Limiter.Check": func(_ *Checker, l *Limiter, name string) Decision { return l.Check(name, 1) },
	"Limiter.Peek":  func(_ *Checker, l *Limiter, name string) Decision { return l.Peek(name, 1) },
	"Limiter.Reserve": func(_ *Checker, l *Limiter, name string) Decision {
		_, d := l.Reserve(name, 1)
		return d
	},
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
	"Limiter.CheckToken": func(_ *Checker, l *Limiter, name string) Decision {
		d, _ := l.CheckToken(name, 1)
		return d
	},
	"Limiter.ReserveToken": func(_ *Checker, l *Limiter, name string) Decision {
		_, d, _ := l.ReserveToken(name, 1)
		return d
	},
	"Check": func(c *Checker, _ *Limiter, name string) Decision { return c.Check(user(name), 1) },
	"Peek":  func(c *Checker, _ *Limiter, name string) Decision { return c.Peek(user(name), 1) },
	"Reserve": func(c *Checker, _ *Limiter, name string) Decision {
		_, d := c.Reserve(user(name), 1)
		return d
	},
	"Acquire": func(c *Checker, _ *Limiter, name string) Decision {
		d, _ := c.Acquire(context.Background(), user(name), 1)
		return d
	},
	"CheckToken": func(c *Checker, _ *Limiter, name string) Decision {
		d, _ := c.CheckToken(user(name), 1)
		return d
	},
	"Explain": func(c *Checker, _ *Limiter, name string) Decision {
		d, _ := c.Explain(user(name), 1)
		return d
	},
}

// A blocked key is denied whoever asks, and however; other keys are not, nor is that key under another rule.
func TestBlocks(t *testing.T) {
	const name = "r"
	plain := rule(name, 1_000_000, time.Hour, 1)
	soft, classes, listed, overridden, limited, bucket, other := plain, plain, plain, plain, plain, plain, plain
	soft.Throttle = rules.Throttle{Kind: rules.Soft, Exceed: 0.5}
	classes.Priority = rules.Priority{By: "class", Shares: map[string]float64{rules.DefaultClass: 0.5}}
	listed.Allow = []rules.List{{Attribute: "user", Values: []string{"bad"}}}
	overridden.Overrides = []rules.Override{{Match: []rules.Condition{{Name: "user", Value: "bad"}}, Action: rules.Unlimited}}
	limited.Overrides = []rules.Override{{Match: []rules.Condition{{Name: "user", Value: "bad"}}, Action: rules.Limited, Limit: 7}}
	bucket.Algorithm = rules.TokenBucket
	other.Name = "other"
	secret := Options{KeyHash: hasher(t, "a secret of enough bytes")}
	tests := []struct {
		why   string
		o     Options
		rules []rules.Rule
	}{
		{"a limit", Options{}, []rules.Rule{plain}},
		{"soft", Options{}, []rules.Rule{soft}},
		{"classes", Options{}, []rules.Rule{classes}},
		{"an allow list", Options{}, []rules.Rule{listed}},
		{"an override without a limit", Options{}, []rules.Rule{overridden}},
		{"an override with one", Options{}, []rules.Rule{limited}},
		{"a token bucket", Options{}, []rules.Rule{bucket}},
		{"hashed keys", secret, []rules.Rule{plain}},
		{"one of two rules", Options{}, []rules.Rule{other, plain}},
	}
	for _, test := range tests {
		for way, ask := range ways {
			t.Run(test.why+"/"+way, func(t *testing.T) {
				c := newChecker(t, test.o, test.rules...)
				l := limiter(t, c, name)
				for range 3 { // leaves an allowance behind
					if d := ask(c, l, "bad"); !d.Allowed {
						t.Fatalf("denied before the block: %+v", d)
					}
				}
				c.SetBlocks([]Block{{Rule: name, Key: "bad", Until: time.Now().Add(time.Hour)}})
				for range 3 {
					d := ask(c, l, "bad")
					if d.Allowed || d.Rule != name || d.Status != 429 || d.RetryAfter <= 59*time.Minute || d.RetryAfter > time.Hour {
						t.Fatalf("blocked: %+v", d)
					}
					if d := ask(c, l, "good"); !d.Allowed {
						t.Fatalf("another key: %+v", d)
					}
				}
				c.SetBlocks(nil)
				if d := ask(c, l, "bad"); !d.Allowed {
					t.Fatalf("denied after the block: %+v", d)
				}
			})
		}
	}
}

// Blocks end at their time, and charge nothing; denials are counted.
func TestBlockEndsAndCharges(t *testing.T) {
	c := newChecker(t, Options{}, rule("r", 5, time.Hour, 1))
	l := limiter(t, c, "r")
	c.SetBlocks([]Block{
		{Rule: "r", Key: "k", Until: time.Unix(0, noon+second)},
		{Rule: "r", Key: "k", Until: time.Unix(0, noon+3*second)}, // the later end holds
		{Rule: "r", Key: "k", Until: time.Unix(0, noon+2*second)},
	})
	for i := range int64(10) {
		if d := l.CheckAt(noon+i, "k", 1); d.Allowed || d.RetryAfter != time.Duration(3*second-i) {
			t.Fatalf("%+v", d)
		}
	}
	l.RecordAt(noon, "k", 1)
	c.RecordAt(noon, user("k"), 1)
	if d := c.CheckAt(noon+3*second-1, user("k"), 1); d.Allowed || d.RetryAfter != 1 {
		t.Errorf("a moment before its end: %+v", d)
	}
	if d := l.CheckAt(noon+3*second, "k", 1); !d.Allowed || d.Remaining != 4 {
		t.Errorf("at its end: %+v", d)
	}
	if s := c.Stats().Rules[0]; s.Denied != 11 || s.Allowed != 1 || s.Charged != 1 {
		t.Errorf("%+v", s)
	}
}

// Blocks outlive a change of rules, and wait for a rule that is not there.
func TestBlocksAndRules(t *testing.T) {
	a, b := rule("a", 100, time.Hour, 1), rule("b", 100, time.Hour, 1)
	c := newChecker(t, Options{}, a)
	l := limiter(t, c, "a")
	c.SetBlocks([]Block{{"a", "k", time.Unix(0, noon+second)}, {"b", "k", time.Unix(0, noon+second)}})
	a.Limit = 200
	reload(t, c, noon, a, b)
	if l.CheckAt(noon, "k", 1).Allowed {
		t.Error("the rule has changed: allowed")
	}
	if limiter(t, c, "b").CheckAt(noon, "k", 1).Allowed {
		t.Error("the rule has come: allowed")
	}
	c.SetBlocks([]Block{{"b", "k", time.Unix(0, noon+second)}})
	if d := l.CheckAt(noon, "k", 1); !d.Allowed || d.Limit != 200 {
		t.Errorf("unblocked: %+v", d)
	}
}

// Under a rule that is only watched, a block denies nothing and shows.
func TestBlockOfShadow(t *testing.T) {
	shadow := rule("r", 100, time.Hour, 1)
	shadow.Shadow = true
	c := newChecker(t, Options{}, shadow, rule("other", 100, time.Hour, 1))
	c.SetBlocks([]Block{{"r", "k", time.Unix(0, noon+second)}})
	if d := c.CheckAt(noon, user("k"), 1); !d.Allowed || d.Shadow != "r" {
		t.Errorf("by attributes: %+v", d)
	}
	if d := limiter(t, c, "r").CheckAt(noon, "k", 1); !d.Allowed || d.Shadow != "r" {
		t.Errorf("by key: %+v", d)
	}
}

// Who only knows the hash of a key can block it, too.
func TestBlockOfHash(t *testing.T) {
	h := hasher(t, "a secret of enough bytes")
	c := newChecker(t, Options{KeyHash: h}, rule("r", 100, time.Hour, 1))
	c.SetBlocks([]Block{{"r", h.Hash("k"), time.Unix(0, noon+second)}})
	if c.CheckAt(noon, user("k"), 1).Allowed || limiter(t, c, "r").CheckAt(noon, "k", 1).Allowed {
		t.Error("allowed")
	}
}

// Checks go on while blocks come and go, and see each of them as a whole.
func TestBlocksRace(t *testing.T) {
	c := newChecker(t, Options{}, rule("r", 1_000_000, time.Hour, 1), rule("s", 1_000_000, time.Hour, 1))
	l := limiter(t, c, "r")
	stop := make(chan struct{})
	var askers sync.WaitGroup
	for range 2 {
		askers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if d := l.CheckAt(noon, "good", 1); !d.Allowed {
					t.Errorf("%+v", d)
					return
				}
				l.CheckAt(noon, "bad", 1)
				c.CheckAt(noon, user("bad"), 1)
			}
		})
	}
	for i := range 300 {
		c.SetBlocks([]Block{{"r", "bad", time.Unix(0, noon+second)}})
		if l.CheckAt(noon, "bad", 1).Allowed || c.CheckAt(noon, user("bad"), 1).Allowed {
			t.Fatalf("round %d: allowed", i)
		}
		c.SetBlocks(nil)
		if !l.CheckAt(noon, "bad", 1).Allowed || !c.CheckAt(noon, user("bad"), 1).Allowed {
			t.Fatalf("round %d: denied", i)
		}
	}
	close(stop)
	askers.Wait()
}

// Neither a blocked key nor its neighbours make a check allocate.
func TestBlocksAlloc(t *testing.T) {
	c := newChecker(t, Options{}, rule("r", 1_000_000, time.Hour, 1))
	l := limiter(t, c, "r")
	c.SetBlocks([]Block{{"r", "bad", time.Now().Add(time.Hour)}})
	good, bad := user("good"), user("bad")
	for name, f := range map[string]func(){
		"a blocked key":           func() { l.Check("bad", 1) },
		"another":                 func() { l.Check("good", 1) },
		"a blocked key's request": func() { c.Check(bad, 1) },
		"another request":         func() { c.Check(good, 1) },
	} {
		if n := testing.AllocsPerRun(1000, f); n != 0 && !raceDetector {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// Under strict enforcement nobody asks for permits of a blocked key, nor waits for them.
func TestBlockOfStrict(t *testing.T) {
	strict := rule("r", 100, time.Hour, 1)
	strict.Enforcement, strict.OnOutage = rules.Strict, rules.Closed
	f := newFleet(t, Options{}, strict)
	f.SetBlocks([]Block{{"r", "k", time.Now().Add(time.Hour)}})
	l := limiter(t, f.Checker, "r")
	for way, ask := range ways {
		if d := ask(f.Checker, l, "k"); d.Allowed || d.RetryAfter <= 59*time.Minute {
			t.Errorf("%s: %+v", way, d)
		}
	}
	f.Step(noon + ms)
	f.Step(noon + 100*ms)
	if n := len(f.tape.leases); n != 0 {
		t.Errorf("%d lease requests for a blocked key", n)
	}
}

// A caller who waits for permits when its key is blocked is denied when they come, and so is who would have found some left.
func TestBlockOfWaiters(t *testing.T) {
	inBubble(t, Options{}, []rules.Rule{strictRule("r", 10, time.Minute, 1)}, func(t *testing.T, f *fleet) {
		l := limiter(t, f.Checker, "r")
		waiting := acquire(t.Context(), l, 1)
		f.settled()
		f.SetBlocks([]Block{{"r", "k", time.Now().Add(time.Minute)}})
		f.grants(ownTime(), 0, 5, 0, 0)
		if o := ended(waiting); o == nil || o.d.Allowed || o.d.RetryAfter < 50*time.Second {
			t.Fatalf("who waited: %+v", o)
		}
		f.SetBlocks(nil)
		if d := l.Check("k", 1); !d.Allowed { // leaves permits for the next checks
			t.Fatalf("%+v", d)
		}
		f.SetBlocks([]Block{{"r", "k", time.Now().Add(time.Minute)}})
		if o := ended(acquire(t.Context(), l, 1)); o == nil || o.d.Allowed {
			t.Fatalf("who finds permits: %+v", o)
		}
	})
}

// A rule with blocks counts other keys under the names that it always did, also beside a rule with the same key.
func TestKeysBesideBlocks(t *testing.T) {
	c := newChecker(t, Options{}, rule("a", 100, time.Hour, 1), rule("b", 100, time.Hour, 1), rule("c", 100, time.Hour, 1))
	c.SetBlocks([]Block{{"b", "bad", time.Unix(0, noon+second)}, {"c", "bad", time.Unix(0, noon+second)}})
	for range 7 {
		c.CheckAt(noon, user("good"), 1)
	}
	for _, name := range []string{"a", "b", "c"} {
		if d := limiter(t, c, name).PeekAt(noon, "good", 1); d.Remaining != 93 {
			t.Errorf("%s: %+v", name, d)
		}
	}
}

func TestExplainBlock(t *testing.T) {
	c := newChecker(t, Options{}, rule("a", 100, time.Hour, 1), rule("b", 100, time.Hour, 1))
	c.SetBlocks([]Block{{"b", "k", time.Unix(0, noon+second)}})
	_, all := c.ExplainAt(noon, user("k"), 1)
	if all[0].Barred != "" || all[0].Denies || all[1].Barred != "its key is blocked" || !all[1].Denies || !all[1].Decides || all[1].RetryAfter != time.Second {
		t.Errorf("%+v", all)
	}
}
