package check

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
)

func TestLocalLimiter(t *testing.T) {
	c := newChecker(t, Options{}, rule("r", 3, time.Minute, 1))
	l := limiter(t, c, "r")
	for _, step := range []struct {
		at      int64 // seconds after noon
		cost    int64
		allowed bool
		left    int64
		retry   time.Duration
		why     string
	}{
		{0, 1, true, 2, 0, "the first of three"},
		{10, 0, true, 1, 0, "a cost below 1 counts as 1"},
		{20, 2, false, 1, 70 * time.Second, "2 do not fit; at 13:01:30 half of the 2 is left, and 1+2 fit"},
		{20, 4, false, 1, Never, "4 never fit"},
		{30, 1, true, 0, 0, "the third"},
		{40, 1, false, 0, 40 * time.Second, "3·40/60 + 1 = 3 at 20 s into the next minute"},
		{79, 1, false, 0, time.Second, "3·41/60 + 1 = 3.05"},
		{80, 1, true, 0, 0, "3·40/60 + 1 = 3"},
	} {
		d := l.CheckAt(noon+step.at*second, "k", step.cost)
		if d.Allowed != step.allowed || d.Remaining != step.left || d.RetryAfter != step.retry {
			t.Errorf("at %d s, cost %d (%s): got %+v", step.at, step.cost, step.why, d)
		}
		if d.Rule != "r" || d.Limit != 3 || d.Freshness != Local {
			t.Errorf("at %d s: got %+v", step.at, d)
		}
	}
	if d := l.CheckAt(noon+80*second, "other", 1); !d.Allowed || d.Reset != 100*time.Second {
		t.Errorf("another key: got %+v, want it allowed and out of every window in 40+60 s", d)
	}
}

// TestSeveralRules is 10 per minute together with 500 per hour on one key.
func TestSeveralRules(t *testing.T) {
	c := newChecker(t, Options{}, rule("minute", 10, time.Minute, 60), rule("hour", 500, time.Hour, 60))
	user := identity.Attributes{{Name: "user", Value: "kristie"}}
	allowed := 0
	for minute := range int64(55) {
		for range 11 { // every 62 s, when those of the minute before have left the window
			d := c.CheckAt(noon+minute*62*second, user, 1)
			if d.Allowed {
				allowed++
				continue
			}
			want := "minute"
			if allowed == 500 {
				want = "hour"
			}
			if d.Rule != want {
				t.Fatalf("minute %d, after %d hits: denied by %s, want %s", minute, allowed, d.Rule, want)
			}
		}
	}
	if allowed != 500 {
		t.Errorf("%d hits passed in an hour, want 500", allowed)
	}
	s := c.Stats()
	for _, r := range s.Rules {
		if r.Charged > 500 {
			t.Errorf("%s: %d hits charged: a hit that another rule denied was charged", r.Rule, r.Charged)
		}
	}
}

func TestChargedToAllOrNone(t *testing.T) {
	wide, narrow := rule("wide", 100, time.Minute, 1), rule("narrow", 2, time.Minute, 1)
	narrow.Key = []string{"ip"}
	c := newChecker(t, Options{}, wide, narrow)
	attrs := identity.Attributes{{Name: "user", Value: "u"}, {Name: "ip", Value: "192.0.2.1"}}
	for i, want := range []bool{true, true, false, false} {
		if d := c.CheckAt(noon, attrs, 1); d.Allowed != want {
			t.Fatalf("hit %d: %+v", i, d)
		}
	}
	if got := left(limiter(t, c, "wide"), noon, "u"); got != 98 {
		t.Errorf("the wide rule has %d left, want 100-2", got)
	}
	if d := c.CheckAt(noon, attrs[:1], 1); !d.Allowed || d.Rule != "wide" || d.Remaining != 97 {
		t.Errorf("without an address only the wide rule applies: %+v", d)
	}
}

func TestAttributesMissing(t *testing.T) {
	skip, deny, empty := rule("skip", 5, time.Minute, 1), rule("deny", 5, time.Minute, 1), rule("empty", 1, time.Minute, 1)
	deny.OnMissing, empty.OnMissing = rules.Deny, rules.Empty
	deny.Key = []string{"token"}
	c := newChecker(t, Options{}, skip)
	if d := c.CheckAt(noon, nil, 1); !d.Allowed || d.Rule != "" {
		t.Errorf("skip: got %+v, want no rule", d)
	}
	c = newChecker(t, Options{}, skip, deny)
	if d := c.CheckAt(noon, identity.Attributes{{Name: "user", Value: "u"}}, 1); d.Allowed || d.Rule != "deny" || d.RetryAfter != Never {
		t.Errorf("deny: got %+v", d)
	}
	c = newChecker(t, Options{}, empty)
	for i, want := range []bool{true, false} {
		if d := c.CheckAt(noon, nil, 1); d.Allowed != want {
			t.Errorf("empty, hit %d: got %+v: all without the attribute are one entity", i, d)
		}
	}
}

// TestLastPlace: however many goroutines there are, exactly as many hits pass as fit.
func TestLastPlace(t *testing.T) {
	const limit, keys, tries = 1000, 3, 700
	r := rule("r", limit, time.Hour, 1)
	second := rule("second", limit/2, time.Hour, 60)
	c := newChecker(t, Options{}, r, second)
	var admitted [keys]atomic.Int64
	var running, stepping sync.WaitGroup
	done := make(chan struct{})
	stepping.Go(func() { // flushes withdraw allowances all the while
		for now := noon; ; now += ms {
			select {
			case <-done:
				return
			default:
				c.behind.step(now, true)
			}
		}
	})
	names := [keys]string{"a", "b", "c"}
	for g := range 8 {
		running.Go(func() {
			for i := range tries {
				k := (g + i) % keys
				cost := int64(1 + i%3)
				var d Decision
				if k == 0 { // this one by both rules
					d = c.CheckAt(noon, identity.Attributes{{Name: "user", Value: names[k]}}, cost)
				} else {
					d = limiter(t, c, "r").CheckAt(noon, names[k], cost)
				}
				if d.Allowed {
					admitted[k].Add(cost)
				}
			}
		})
	}
	running.Wait()
	close(done)
	stepping.Wait()
	for k, want := range [keys]int64{limit / 2, limit, limit} {
		if got := admitted[k].Load(); got > want || got < want-2 {
			t.Errorf("key %s: %d hits passed, the limit is %d", names[k], got, want)
		}
	}
	var charged int64
	for _, r := range c.Stats().Rules {
		charged += r.Charged
	}
	if want := 2*admitted[0].Load() + admitted[1].Load() + admitted[2].Load(); charged != want {
		t.Errorf("%d hits charged, %d admitted", charged, want)
	}
}

func TestNoAllocations(t *testing.T) {
	c := newChecker(t, Options{}, rule("r", 1e9, time.Minute, 1), rule("tight", 1, time.Hour, 60))
	l, tight := limiter(t, c, "r"), limiter(t, c, "tight")
	tight.CheckAt(noon, "k", 1)
	attrs := identity.Attributes{{Name: "user", Value: "k"}}
	for name, f := range map[string]func(){
		"by rule and key": func() { l.CheckAt(noon, "k", 1) },
		"cost above 1":    func() { l.CheckAt(noon, "k", 7) },
		"denied":          func() { tight.CheckAt(noon, "k", 1) },
		"by attributes":   func() { c.CheckAt(noon, attrs, 1) },
		"a peek":          func() { c.PeekAt(noon, attrs, 1) },
	} {
		// The race detector makes sync.Pool forget at random; make test runs this once without it.
		if n := testing.AllocsPerRun(1000, f); n != 0 && !raceDetector {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func TestOptions(t *testing.T) {
	set, _ := rules.NewSet(rule("r", 1, time.Second, 1))
	for name, o := range map[string]Options{
		"no rules":     {},
		"flush":        {Rules: set, FlushEvery: time.Microsecond},
		"floor":        {Rules: set, FlushFloor: time.Microsecond},
		"high floor":   {Rules: set, FlushEvery: 10 * time.Millisecond, FlushFloor: 11 * time.Millisecond},
		"hello":        {Rules: set, HelloEvery: time.Millisecond},
		"live keys":    {Rules: set, MaxLiveKeys: -1},
		"report keys":  {Rules: set, ReportKeys: -1},
		"timeout":      {Rules: set, ReportTimeout: 1},
		"drain":        {Rules: set, DrainTimeout: -1},
		"report keys2": {Rules: set, ReportKeys: 1 << 20},
	} {
		if _, err := New(o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, ok := newChecker(t, Options{}, rule("r", 1, time.Second, 1)).Limiter("other"); ok {
		t.Error("found a limiter for a rule that is not there")
	}
}
