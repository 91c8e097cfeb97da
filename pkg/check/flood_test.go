package check

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/rules"
)

// echo is a Link to an aggregator that answers every report with its own hits as totals, at the next
// delivery, unless it is down.
type echo struct {
	down    bool
	answers []echoed
}

type echoed struct {
	kind    events.Kind
	payload []byte
}

func (e *echo) Report(_ uint32, report []byte) error {
	m, err := events.DecodeReport(report)
	if err != nil || e.down {
		return err
	}
	return e.answer(events.KindRefresh, &events.Refresh{
		Epoch: m.Epoch, Shard: m.Shard, Sequence: m.Sequence, Generation: 1, Version: m.Sequence,
		KeyCells: m.Hits.KeyCells, Age: m.Hits.Age, Total: m.Hits.Value,
	})
}

func (e *echo) Lease(uint32, []byte) error { return nil }

func (e *echo) Hello(hello []byte) error {
	m, err := events.DecodeHello(hello)
	if err != nil || e.down {
		return err
	}
	return e.answer(events.KindWelcome, &events.Welcome{Epoch: m.Epoch, Sent: m.Sent, Shards: 2, Time: m.Sent})
}

func (e *echo) answer(kind events.Kind, m events.Message) error {
	payload, err := events.Append(nil, m)
	e.answers = append(e.answers, echoed{kind, payload})
	return err
}

func (e *echo) Listen(ctx context.Context, _ func(events.Kind, []byte)) error {
	<-ctx.Done()
	return nil
}

func (e *echo) deliver(c *Checker, now int64) {
	answers := e.answers
	e.answers = nil
	for _, a := range answers {
		c.Receive(now, a.kind, a.payload)
	}
}

// TestFlood walks through five million keys, a million per second, while a thousand blocked keys
// keep sending: memory stays within its bound, and none of them gets through.
func TestFlood(t *testing.T) {
	for name, down := range map[string]bool{"NATS up": false, "NATS down": true} {
		t.Run(name, func(t *testing.T) { flood(t, down) })
	}
}

func flood(t *testing.T, down bool) {
	keys := 5_000_000
	if raceDetector { // it takes ten times as long; make test runs this once without it
		keys = 500_000
	}
	const blockedKeys, bound = 1000, 50_000
	link := new(echo)
	tight := rule("tight", 1, time.Hour, 1)
	c := newChecker(t, Options{Link: link, MaxLiveKeys: bound, MaxIdleKeys: bound}, tight, rule("loose", 1000, 10*time.Second, 1))
	if err := c.idle.open(bound); err != nil {
		t.Fatal(err)
	}
	defer c.idle.close()
	l, walked := limiter(t, c, "tight"), limiter(t, c, "loose")
	now := noon
	step := func() {
		c.Step(now)
		link.deliver(c, now)
	}
	step()
	blockedKey := make([]string, blockedKeys)
	for i := range blockedKey {
		blockedKey[i] = fmt.Sprint("blocked", i)
		if !l.CheckAt(now, blockedKey[i], 1).Allowed {
			t.Fatal("the first hit was denied")
		}
	}
	for range 20 {
		now += 50 * ms
		step()
	}
	link.down = down
	before := heap()
	through, most := 0, 0
	for i := range keys {
		key := fmt.Sprintf("2001:db8::%x", i)
		if d := walked.CheckAt(now, key, 1); !d.Allowed {
			t.Fatalf("hit %d was denied: %+v; the rule is open on outage", i, d)
		}
		if i%1000 == 0 {
			now += ms
			step()
		}
		if i%100 == 0 { // each blocked key sends every 100 ms
			if l.CheckAt(now, blockedKey[i/100%blockedKeys], 1).Allowed {
				through++
			}
		}
		if i%500_000 == 0 {
			most = max(most, heap()-before)
		}
	}
	s := c.Stats()
	if through > 0 {
		t.Errorf("%d hits of blocked keys got through", through)
	}
	if s.LiveKeys > bound {
		t.Errorf("%d live keys, the bound is %d", s.LiveKeys, bound)
	}
	// 50,000 live and 50,000 idle keys of about 200 bytes; as much again for tables and queues.
	if limit := 2 * bound * 200 * 2; most > limit {
		t.Errorf("the heap grew by %d bytes, the bound is %d", most, limit)
	}
	r := s.Rules[1]
	if r.Charged != r.Answered+r.InFlight+r.Pending+r.Overflow+r.Lost || r.Charged < int64(keys-bound) {
		t.Errorf("counts: %+v", r)
	}
	if !down && r.Overflow > int64(keys/2) || down && r.Overflow < int64(keys-2*bound) {
		t.Errorf("%d of %d hits overflowed", r.Overflow, keys)
	}
	t.Logf("heap at most +%d bytes for %d live and %d idle keys; overflow %d, answered %d", most, s.LiveKeys, s.IdleKeys, r.Overflow, r.Answered)
}

func heap() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

func TestOverflowClosed(t *testing.T) {
	open, closed := rule("open", 3, time.Minute, 1), rule("closed", 3, time.Minute, 1)
	closed.OnOutage = rules.Closed
	f := newFleet(t, Options{MaxLiveKeys: 2}, open, closed)
	o, cl := limiter(t, f.Checker, "open"), limiter(t, f.Checker, "closed")
	o.CheckAt(noon, "a", 1)
	cl.CheckAt(noon, "a", 1)
	for range 5 {
		if d := o.CheckAt(noon, "b", 1); !d.Allowed || d.Remaining != 0 {
			t.Errorf("open: %+v", d)
		}
		if d := cl.CheckAt(noon, "b", 1); d.Allowed || d.RetryAfter <= 0 {
			t.Errorf("closed: %+v", d)
		}
	}
	if d := o.CheckAt(noon, "b", 4); d.Allowed {
		t.Errorf("a cost above the limit passed: %+v", d)
	}
	if r := f.Stats().Rules; r[0].Overflow != 5 || r[1].Overflow != 0 {
		t.Errorf("overflow: %+v", r)
	}
	if d := o.CheckAt(noon, "a", 1); !d.Allowed || d.Remaining != 1 {
		t.Errorf("a key that has its cell: %+v", d)
	}
}

// TestIdleKeysAreRemembered: what had to make room still counts when it comes back.
func TestIdleKeysAreRemembered(t *testing.T) {
	link := new(echo)
	c := newChecker(t, Options{Link: link, MaxLiveKeys: 8, MaxIdleKeys: 1000}, rule("r", 10, time.Hour, 1))
	if err := c.idle.open(1000); err != nil {
		t.Fatal(err)
	}
	defer c.idle.close()
	l := limiter(t, c, "r")
	now := noon
	c.Step(now)
	link.deliver(c, now)
	l.CheckAt(now, "k", 7)
	for i := range 40 {
		now += 50 * ms
		c.Step(now)
		link.deliver(c, now)
		l.CheckAt(now, fmt.Sprint(i), 1)
		c.idle.cache.Wait()
	}
	if c.cells.load(l, "k") != nil {
		t.Fatal("the key is still live: the test shows nothing")
	}
	if d := l.CheckAt(now, "k", 1); !d.Allowed || d.Remaining != 2 {
		t.Errorf("after its return: %+v, want 10-7-1 left", d)
	}
}

// TestMemoryPerKey measures what a live key takes beside its text, far from its limit and near it.
func TestMemoryPerKey(t *testing.T) {
	for _, test := range []struct {
		length int
		hits   int64 // of 100
		most   int
	}{{11, 1, 200}, {40, 1, 200}, {11, 60, 1000}} {
		keys := 300_000
		if raceDetector {
			keys = 50_000
		}
		text := make([]string, keys)
		for i := range text {
			text[i] = fmt.Sprintf("%0*d", test.length, i)
		}
		f, l := newFleetOf(t, 2, Options{MaxLiveKeys: keys}, 100, time.Hour)
		before := heap()
		for _, key := range text {
			l.CheckAt(noon, key, test.hits-test.hits/2)
			if test.hits > 1 {
				l.CheckAt(noon, key, test.hits/2)
			}
		}
		got := (heap() - before) / keys
		if f.Stats().LiveKeys != keys {
			t.Fatal("not all keys are live")
		}
		beside := got - test.length
		t.Logf("a live key of %d bytes with %d hits of 100: %d bytes, %d beside its text", test.length, test.hits, got, beside)
		if beside > test.most {
			t.Errorf("a live key of %d bytes with %d hits of 100 takes %d bytes beside its text, want at most %d",
				test.length, test.hits, beside, test.most)
		}
		runtime.KeepAlive(f)
		runtime.KeepAlive(text)
	}
}
