package check

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"
	"weak"

	"github.com/offpath-io/offpath/pkg/rules"
)

// TestFlood walks through new keys, far more than there is room for, while blocked keys keep
// sending: memory stays within its bound, and none of them gets through.
func TestFlood(t *testing.T) {
	keys, bound := 2_000_000, 50_000
	if testing.Short() {
		keys, bound = 50_000, 10_000
	}
	for name, down := range map[string]bool{"NATS up": false, "NATS down": true} {
		t.Run(name, func(t *testing.T) { flood(t, keys, bound, down) })
	}
}

func flood(t *testing.T, keys, bound int, down bool) {
	blocked := make([]string, bound/50)
	for i := range blocked {
		blocked[i] = fmt.Sprint("blocked", i)
	}
	link := new(echo)
	o := Options{Link: link, MaxLiveKeys: bound, MaxIdleKeys: bound}
	c := newChecker(t, o, rule("tight", 1, time.Hour, 1), rule("loose", 1000, 10*time.Second, 1))
	openIdle(t, c, bound)
	tight, loose := limiter(t, c, "tight"), limiter(t, c, "loose")
	now := noon
	link.step(c, now)
	for _, key := range blocked {
		require(t, atTime(now, tight).Check(key, 1).Allowed, "the first hit was denied")
	}
	for range 20 {
		now += 50 * ms
		link.step(c, now)
	}
	link.down = down
	before, most, through := heap(), 0, 0
	for i := range keys {
		require(t, atTime(now, loose).Check(fmt.Sprintf("2001:db8::%x", i), 1).Allowed, "denied; the rule is open on outage")
		if i%len(blocked) == 0 { // at which rate all live keys are new after 50 ms
			now += ms
			link.step(c, now)
		}
		if i%100 == 0 && atTime(now, tight).Check(blocked[i/100%len(blocked)], 1).Allowed {
			through++
		}
		if (i+1)%(keys/10) == 0 {
			most = max(most, heap()-before)
		}
	}
	s := c.Stats()
	expect(t, through == 0 && s.LiveKeys <= bound,
		"%d hits of blocked keys got through; %d live keys, the bound is %d", through, s.LiveKeys, bound)
	// Live and idle keys of about 200 bytes; as much again for tables and queues.
	expect(t, most <= 2*bound*200*2, "the heap grew by %d bytes", most)
	r := s.Rules[1]
	expect(t, r.Charged == r.Answered+r.InFlight+r.Pending+r.Overflow+r.Lost && r.Charged >= int64(keys-bound), "counts: %+v", r)
	if down {
		expect(t, r.Overflow >= int64(keys-2*bound), "%d of %d hits overflowed", r.Overflow, keys)
	} else {
		expect(t, r.Overflow <= int64(keys/2), "%d of %d hits overflowed", r.Overflow, keys)
	}
	t.Logf("heap at most +%d bytes for %d live and %d idle keys; overflow %d, answered %d",
		most, s.LiveKeys, s.IdleKeys, r.Overflow, r.Answered)
	runtime.KeepAlive(blocked)
}

func heap() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// TestCheckerIsForgotten when nobody holds it, although another one is at work.
func TestCheckerIsForgotten(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	other := newChecker(t, Options{}, rule("a", 10, time.Hour, 1))
	gone := func() weak.Pointer[Checker] {
		c := newChecker(t, Options{}, rule("a", 10, time.Hour, 1), rule("b", 10, time.Hour, 1))
		c.Check(user("k"), 1)
		return weak.Make(c)
	}()
	for range 10 { // pools give up what they hold in the second
		other.Check(user("k"), 1)
		runtime.GC()
	}
	expect(t, gone.Value() == nil, "the memory of the other's checks holds it")
}

// TestMemoryPerKey measures what a live key takes beside its text, far from its limit and near it.
func TestMemoryPerKey(t *testing.T) {
	keys := 300_000
	if testing.Short() {
		keys = 20_000
	}
	for _, test := range []struct {
		length int
		hits   int64 // of 100
		room   int   // for so many times the keys
		most   int
	}{{11, 1, 1, 200}, {40, 1, 1, 200}, {11, 60, 1, 400}, {11, 60, 4, 1000}} {
		text := make([]string, keys)
		for i := range text {
			text[i] = fmt.Sprintf("%0*d", test.length, i)
		}
		f, l := newFleetOf(t, 2, Options{MaxLiveKeys: test.room * keys}, 100, time.Hour)
		before := heap()
		for _, key := range text {
			atTime(noon, l).Check(key, test.hits-test.hits/2)
			if test.hits > 1 {
				atTime(noon, l).Check(key, test.hits/2)
			}
		}
		beside := (heap()-before)/keys - test.length
		require(t, f.Stats().LiveKeys == keys, "not all keys are live")
		t.Logf("a live key of %d bytes with %d hits of 100: %d bytes beside its text", test.length, test.hits, beside)
		expect(t, beside <= test.most, "that is more than %d", test.most)
		runtime.KeepAlive(f)
		runtime.KeepAlive(text)
	}
}

// TestNoRoomForKeys: then on_outage decides, shadow rules still deny nothing, and keys that have
// their counter are decided as ever.
func TestNoRoomForKeys(t *testing.T) {
	open, closed := rule("open", 3, time.Minute, 1), rule("closed", 3, time.Minute, 1)
	closed.OnOutage = rules.Closed
	f := newFleet(t, Options{MaxLiveKeys: 2}, open, closed)
	o, cl := limiter(t, f.Checker, "open"), limiter(t, f.Checker, "closed")
	atTime(noon, o).Check("a", 1)
	atTime(noon, cl).Check("a", 1)
	for range 5 {
		d := atTime(noon, o).Check("b", 1)
		expect(t, d.Allowed && d.Remaining == 0, "open: %+v", d)
		d = atTime(noon, cl).Check("b", 1)
		expect(t, !d.Allowed && d.RetryAfter > 0, "closed: %+v", d)
	}
	d := atTime(noon, o).Check("b", 4)
	expect(t, !d.Allowed, "a cost above the limit passed: %+v", d)
	r := f.Stats().Rules
	expect(t, r[0].Overflow == 5 && r[1].Overflow == 0, "overflow: %+v", r)
	d = atTime(noon, o).Check("a", 1)
	expect(t, d.Allowed && d.Remaining == 1, "a key that has its counter: %+v", d)

	c := ofYAML(t, Options{MaxLiveKeys: 1}, `
rules:
  - {name: open, key: [user], limit: 10/minute, count: all, priority: {by: class, shares: {default: 50%}}}
  - {name: dark, match: {dark: "*"}, key: [user], limit: 10/minute, on_outage: closed, shadow: true}
  - {name: closed, match: {closed: "*"}, key: [user], limit: 10/minute, on_outage: closed, throttle: soft, soft: {exceed: 10%}}
`)
	atTime(noon, c).Check(user("first"), 1)
	for r, want := range map[string]Decision{
		"user=a":          {Allowed: true, Rule: "open", Limit: 5},
		"user=a dark=1":   {Allowed: true, Rule: "open", Limit: 5, Shadow: "dark"},
		"user=a closed=1": {Rule: "closed", Limit: 11, RetryAfter: 50 * time.Millisecond, Status: 429},
	} {
		for _, d := range []Decision{atTime(noon, c).try(Peek, request(r), 1).Decision, atTime(noon, c).Check(request(r), 1)} {
			d.Reset = 0
			expect(t, d == want, "%s: %+v, want %+v", r, d, want)
		}
	}
	d = atTime(noon, c).Check(user("a"), 6)
	expect(t, !d.Allowed && d.RetryAfter == Never, "more than its share: %+v", d)
	atTime(noon, c).try(Record, user("a"), 6)
	s := c.Stats().Rules[0]
	expect(t, s.Overflow == 1+1+6 && s.Charged == s.Overflow+1, "%+v", s)
}

// TestIdleKeysAreRemembered: a key that had to make room still counts, for a peek and an
// explanation too, which do not bring it back.
func TestIdleKeysAreRemembered(t *testing.T) {
	link := new(echo)
	c := newChecker(t, Options{Link: link, MaxLiveKeys: 8, MaxIdleKeys: 1000}, rule("r", 10, time.Hour, 1))
	openIdle(t, c, 1000)
	l, now := limiter(t, c, "r"), noon
	link.step(c, now)
	atTime(now, l).Check("k", 7)
	for i := range 40 {
		now += 50 * ms
		link.step(c, now)
		atTime(now, l).Check(fmt.Sprint(i), 1)
		c.host.Idle.Wait()
	}
	d := atTime(now, l).try(Peek, "k", 4).Decision
	expect(t, !d.Allowed && d.Remaining == 3, "a peek: %+v, want 10-7 left", d)
	_, all := atTime(now, c).tryExplain(user("k"), 1)
	expect(t, all[0].Count == 7, "%+v", all[0])
	require(t, c.host.Table.Load(&l.core.Group, "k") == nil, "the key is live, or live again")
	d = atTime(now, l).Check("k", 1)
	expect(t, d.Allowed && d.Remaining == 2, "after its return: %+v, want 10-7-1 left", d)
}

// TestAlarmsCountWithoutRoom for a counter.
func TestAlarmsCountWithoutRoom(t *testing.T) {
	f, l := fleetAndLimiter(t, Options{MaxLiveKeys: 2}, rule("r", 100, time.Minute, 1))
	openIdle(t, f.Checker, 10)
	atTime(noon, l).Check("a", 1)
	atTime(noon, l).Check("b", 1)
	f.alarm(noon, 1, l, "blocked", 100)
	f.host.Idle.Wait()
	d := atTime(noon, l).Check("blocked", 1)
	expect(t, !d.Allowed, "passed: %+v", d)
	d = atTime(noon, l).Check("unknown", 101)
	expect(t, !d.Allowed && d.RetryAfter == Never, "a cost above the limit: %+v", d)
}

// TestSilentKeysMoveToTheIdleCache and still count when they come back. A blocked key stays in the
// table: the cache may forget it.
func TestSilentKeysMoveToTheIdleCache(t *testing.T) {
	link := new(echo)
	c := newChecker(t, Options{Link: link, HelloEvery: time.Hour}, rule("r", 10, time.Hour, 1))
	openIdle(t, c, 1000)
	l, now := limiter(t, c, "r"), noon
	link.step(c, now)
	atTime(now, l).Check("k", 7)
	atTime(now, l).Check("blocked", 10)
	for range 30 {
		now += second
		link.step(c, now)
	}
	require(t, c.Stats().LiveKeys == 2, "after 30 s: %+v", c.Stats())
	for range 50 {
		now += second
		link.step(c, now)
	}
	c.host.Idle.Wait()
	s := c.Stats()
	expect(t, s.LiveKeys == 1 && s.IdleKeys == 1, "%d live keys, %d idle ones, want one of each", s.LiveKeys, s.IdleKeys)
	d := atTime(now, l).Check("k", 1)
	expect(t, d.Allowed && d.Remaining == 2, "after its return: %+v, want 10-7-1 left", d)
	d = atTime(now, l).Check("blocked", 1)
	expect(t, !d.Allowed, "the blocked key: %+v", d)
}

// TestConcurrentChecksFindOneCell per key, whichever goroutine makes it: of all first hits one
// passes.
func TestConcurrentChecksFindOneCell(t *testing.T) {
	const goroutines, keys = 8, 2000
	c, l := checkerAndLimiter(t, Options{}, rule("a", 1, time.Hour, 1))
	passed := [goroutines]int{}
	var running sync.WaitGroup
	for g := range goroutines {
		running.Go(func() {
			for i := range keys {
				passed[g] += hit(l, noon, fmt.Sprint(i), 1)
			}
		})
	}
	running.Wait()
	sum := 0
	for _, n := range passed {
		sum += n
	}
	live := c.Stats().LiveKeys
	expect(t, sum == keys && live == keys, "%d hits passed, %d live keys, want %d", sum, live, keys)
}
