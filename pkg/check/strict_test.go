package check

import (
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
)

func strictRule(name string, limit int64, length time.Duration, buckets int) rules.Rule {
	r := rule(name, limit, length, buckets)
	r.Enforcement = rules.Strict
	return r
}

// asked returns the lease request sent last, and how many there were.
func (f *fleet) asked() (m *events.LeaseRequest, n int) {
	f.t.Helper()
	n = len(f.tape.leases)
	if n == 0 {
		f.t.Fatal("no permits were asked for")
	}
	return f.tape.leases[n-1], n
}

// grants is what an answer says of the first key of the last request, in the bucket that it spoke of, if age is
// 0, or in the one that is so much newer.
func (f *fleet) grants(now int64, newer, granted, spoken int64, wait time.Duration) {
	f.t.Helper()
	m, _ := f.asked()
	f.receive(now, events.KindGrant, &events.Grant{
		Epoch: m.Epoch, Shard: m.Shard, Sequence: m.Sequence, Generation: 1, Version: m.Sequence,
		Age: []int64{m.Age[0] - newer}, Granted: []uint64{uint64(granted)}, Spoken: []uint64{uint64(spoken)},
		WaitMs: []uint64{uint64(wait.Milliseconds())},
	})
}

// passes returns how many of n hits of cost 1 pass.
func passes(l *Limiter, now int64, n int) (passed int) {
	for range n {
		if l.CheckAt(now, "k", 1).Allowed {
			passed++
		}
	}
	return passed
}

func TestStrictSpendsWhatIsGranted(t *testing.T) {
	f := newFleet(t, Options{}, strictRule("r", 10, time.Second, 1))
	l := limiter(t, f.Checker, "r")
	d := l.CheckAt(noon, "k", 2)
	if d.Allowed || d.RetryAfter <= 0 || d.RetryAfter > 100*time.Millisecond || d.Freshness != Fresh {
		t.Errorf("without a permit: %+v", d)
	}
	f.Step(noon + ms)
	m, _ := f.asked()
	if m.Want[0] != 2 || m.Known[0] != 0 || m.Age[0] != 0 || string(m.Keys.KeyText) != "k" || m.Keys.Rules[0].Limit != 10 {
		t.Errorf("asked %+v", m)
	}
	f.grants(noon+3*ms, 0, 5, 5, 200*time.Millisecond)
	if d := l.CheckAt(noon+3*ms, "k", 2); !d.Allowed || d.Remaining != 3 {
		t.Errorf("with five permits: %+v", d)
	}
	if n := passes(l, noon+4*ms, 10); n != 3 {
		t.Errorf("%d more hits pass, want the 3 that are left", n)
	}
	if d := l.CheckAt(noon+4*ms, "k", 1); d.RetryAfter != 199*time.Millisecond {
		t.Errorf("comes again after %v, want when the grant says that a permit can be free", d.RetryAfter)
	}
	if d := l.CheckAt(noon+4*ms, "k", 11); d.RetryAfter != Never {
		t.Errorf("a cost above the limit: %+v", d)
	}
	f.Step(noon + 50*ms)
	if got := hits(f.last())["k"]; got != 5 {
		t.Errorf("%d hits are reported, want the 5 that passed", got)
	}
}

func TestStrictWithoutAFleet(t *testing.T) {
	c := newChecker(t, Options{Link: new(tape)}, strictRule("r", 10, time.Second, 1))
	l := limiter(t, c, "r")
	for at := noon; at < noon+2*second; at += 100 * ms {
		if d := l.CheckAt(at, "k", 1); d.Allowed || d.Freshness != Local {
			t.Fatalf("before the first welcome: %+v", d)
		}
		c.Step(at)
	}
	local := newChecker(t, Options{}, strictRule("r", 10, time.Second, 1))
	if n := passes(limiter(t, local, "r"), noon, 20); n != 10 {
		t.Errorf("a local limiter lets %d hits pass, want 10: it knows everything", n)
	}
}

// TestPermitsEndWithTheirBucket: less the clock's error, which here is the margin alone. What is left is given
// back.
func TestPermitsEndWithTheirBucket(t *testing.T) {
	f := newFleet(t, Options{}, strictRule("r", 10, time.Second, 1))
	l := limiter(t, f.Checker, "r")
	passes(l, noon, 1)
	f.Step(noon + ms)
	f.grants(noon+2*ms, 0, 8, 8, 0)
	f.welcome(noon+990*ms, 1) // keeps the error small
	if n := passes(l, noon+995*ms, 1); n != 1 {
		t.Error("a permit does not hold until its bucket ends")
	}
	before := len(f.tape.leases)
	if n := passes(l, noon+second-ms, 3); n != 0 {
		t.Errorf("%d hits pass within the clock's error of the end", n)
	}
	if d := l.CheckAt(noon+second-ms, "k", 1); d.RetryAfter < time.Millisecond {
		t.Errorf("comes again after %v, before the next bucket", d.RetryAfter)
	}
	if n := passes(l, noon+second, 3); n != 0 {
		t.Errorf("%d hits pass in the next bucket by permits of this one", n)
	}
	f.Step(noon + second + ms)
	m, n := f.asked()
	if n == before || len(m.Keys.Value) != 1 || m.Keys.Value[0] != 7 || m.Keys.Age[0] != 1 {
		t.Errorf("want the seven that are left given back, of the bucket before: %+v", m)
	}
}

func TestIdlePermitsAreGivenBack(t *testing.T) {
	f := newFleet(t, Options{}, strictRule("r", 10, time.Second, 1))
	l := limiter(t, f.Checker, "r")
	passes(l, noon, 1)
	f.Step(noon + ms)
	f.grants(noon+2*ms, 0, 4, 4, 0)
	passes(l, noon+10*ms, 1)
	for at := noon + 10*ms; at < noon+300*ms; at += 10 * ms {
		f.Step(at)
	}
	m, _ := f.asked()
	if len(m.Keys.Value) != 1 || m.Keys.Value[0] != 3 || m.Want[0] != 0 || m.Known[0] != 4 {
		t.Errorf("want three given back, and none asked for: %+v", m)
	}
	if n := passes(l, noon+300*ms, 3); n != 0 {
		t.Errorf("%d hits pass by permits that have been given back", n)
	}
	_, n := f.asked()
	f.grants(noon+310*ms, 0, 4, 4, 0)
	f.Step(noon + 320*ms) // for those denied just now
	if m, again := f.asked(); again != n+1 || m.Known[0] != 4 || m.Want[0] == 0 || len(m.Keys.Value) != 0 {
		t.Errorf("%d requests: %+v; want one more, that returns nothing again", again-n, m)
	}
}

// TestLostGrant: a request that is not answered is made anew, and speaks of the bucket of the first.
func TestLostGrant(t *testing.T) {
	f := newFleet(t, Options{}, strictRule("r", 10, time.Second, 1))
	l := limiter(t, f.Checker, "r")
	passes(l, noon+900*ms, 1)
	f.Step(noon + 900*ms)
	first, n := f.asked()
	f.Step(noon + 910*ms)
	if _, again := f.asked(); again != n {
		t.Fatal("asked again at once")
	}
	f.Step(noon + 1050*ms) // in the next bucket
	m, again := f.asked()
	if again != n+1 || m.Sequence <= first.Sequence || m.Age[0] != 1 || m.Known[0] != 0 {
		t.Fatalf("%d requests, the last is %+v; want one more, of the bucket before", again-n, m)
	}
	if got := f.Stats().LeasesRepeated; got != 1 {
		t.Errorf("%d repeats, want 1", got)
	}
	// The answer to the first comes now, and is one of its own time.
	f.receive(noon+1051*ms, events.KindGrant, &events.Grant{
		Epoch: first.Epoch, Sequence: first.Sequence, Generation: 1, Version: 1,
		Age: []int64{0}, Granted: []uint64{9}, Spoken: []uint64{9}, WaitMs: []uint64{0},
	})
	f.grants(noon+1052*ms, 1, 2, 1, 0) // one had been granted before, and two are now
	if n := passes(l, noon+1052*ms, 5); n != 2 {
		t.Errorf("%d hits pass, want the 2 of this bucket", n)
	}
	f.Step(noon + 1060*ms)
	if m, _ := f.asked(); len(m.Keys.Value) != 1 || m.Keys.Value[0] != 1 || m.Keys.Age[0] != 1 {
		t.Errorf("want the one that nobody knew of given back: %+v", m)
	}
}

// TestABlockedKeyCostsNothing: while the store has said that no permit can be free, nobody asks; and after that
// only if somebody comes.
func TestABlockedKeyCostsNothing(t *testing.T) {
	f := newFleet(t, Options{}, strictRule("r", 10, time.Second, 1))
	l := limiter(t, f.Checker, "r")
	passes(l, noon, 1)
	f.Step(noon + ms)
	f.grants(noon+2*ms, 0, 0, 0, 150*time.Millisecond)
	_, n := f.asked()
	for at := noon + 2*ms; at < noon+150*ms; at += ms {
		passes(l, at, 5)
		f.Step(at)
	}
	if _, m := f.asked(); m != n {
		t.Errorf("%d requests while it is blocked", m-n)
	}
	for at := noon + 160*ms; at < noon+900*ms; at += 10 * ms {
		f.Step(at)
	}
	if _, m := f.asked(); m != n {
		t.Errorf("%d requests without a hit", m-n)
	}
	passes(l, noon+900*ms, 1)
	f.Step(noon + 901*ms)
	if _, m := f.asked(); m != n+1 {
		t.Errorf("%d requests for a hit after the block, want 1", m-n)
	}
	if got := f.Stats().Rules[0].Denied; got != 2+148*5 {
		t.Errorf("%d denials counted, want %d", got, 2+148*5)
	}
}

// TestHotKeyIsRenewedInTime: at a steady rate a key that is answered after 4 ms is denied while it is cold, and
// then never again within the bucket; it asks a few times per round trip at the most.
func TestHotKeyIsRenewedInTime(t *testing.T) {
	f := newFleet(t, Options{}, strictRule("r", 100_000, time.Minute, 1))
	l := limiter(t, f.Checker, "r")
	var granted, answerAt int64
	denied, late, requests := 0, 0, 0
	for at := noon; at < noon+second; at += ms / 2 {
		if !l.CheckAt(at, "k", 1).Allowed {
			denied++
			if at > noon+100*ms {
				late++
			}
		}
		f.Step(at)
		if n := len(f.tape.leases); n > requests {
			requests, answerAt = n, at+4*ms
		}
		if at == answerAt {
			m, _ := f.asked()
			granted += int64(m.Want[0])
			f.grants(at, 0, granted, granted, 0)
			if n := len(f.tape.leases); n > requests {
				requests, answerAt = n, at+4*ms
			}
		}
	}
	if denied > 60 || late > 0 {
		t.Errorf("%d of 2000 hits are denied, %d of them later than 100 ms after the first", denied, late)
	}
	if requests > 250 {
		t.Errorf("%d requests in a second with round trips of 4 ms", requests)
	}
	if granted > 2000+200 {
		t.Errorf("%d permits asked for, for 2000 hits", granted)
	}
}

// TestForgottenSpendings: a key that had to make room and comes back in the same bucket has been granted
// permits of which nobody knows how many are spent. It spends none of them.
func TestForgottenSpendings(t *testing.T) {
	f := newFleet(t, Options{MaxLiveKeys: 4, MaxIdleKeys: -1}, strictRule("r", 10, time.Minute, 1))
	l := limiter(t, f.Checker, "r")
	passes(l, noon, 1)
	f.Step(noon + ms)
	f.grants(noon+2*ms, 0, 1, 1, 0)
	if passes(l, noon+3*ms, 1) != 1 {
		t.Fatal("no permit")
	}
	f.Step(noon + 50*ms)
	f.answer(noon+51*ms, 1)
	first := f.cells.load(l, "k")
	for i, at := 0, noon+60*ms; f.cells.load(l, "k") == first; at += 10 * ms { // others come, until it leaves
		if i++; i > 1000 {
			t.Fatal("it stays")
		}
		l.CheckAt(at, string(rune('a'+i%3)), 20) // asks for nothing
		f.Step(at)
	}
	at := noon + 30*second
	passes(l, at, 1)
	f.Step(at)
	m, _ := f.asked()
	if string(m.Keys.KeyText) != "k" || m.Want[0] != 0 {
		t.Fatalf("want a question without a wish: %+v", m)
	}
	f.grants(at+2*ms, 0, 1, 1, 0)
	if n := passes(l, at+2*ms, 1); n != 0 {
		t.Error("a permit that has been spent is spent again")
	}
	f.Step(at + 4*ms)
	if m, _ = f.asked(); m.Known[0] != 1 || m.Want[0] != 1 || len(m.Keys.Value) != 0 {
		t.Fatalf("want one asked for, all that was granted known: %+v", m)
	}
	f.grants(at+6*ms, 0, 2, 2, 0)
	if n := passes(l, at+6*ms, 3); n != 1 {
		t.Errorf("%d hits pass, want 1", n)
	}
}

// TestPermitsKeepTheirCell: what may still be spent, or is still to be said, is not forgotten to make room.
func TestPermitsKeepTheirCell(t *testing.T) {
	f := newFleet(t, Options{MaxLiveKeys: 4, MaxIdleKeys: -1}, strictRule("r", 10, time.Minute, 1))
	l := limiter(t, f.Checker, "r")
	passes(l, noon, 1)
	f.Step(noon + ms)
	f.grants(noon+2*ms, 0, 2, 2, 0)
	first := f.cells.load(l, "k")
	for i, at := 0, noon+60*ms; at < noon+20*second; i, at = i+1, at+10*ms {
		l.CheckAt(at, string(rune('a'+i%6)), 20)
		f.Step(at)
		if f.cells.load(l, "k") != first {
			t.Fatal("it has left with permits that it owes")
		}
	}
}

// TestUnansweredCellLeaves: a key that has asked in vain is kept until its bucket has left the window, and no
// longer.
func TestUnansweredCellLeaves(t *testing.T) {
	f := newFleet(t, Options{MaxIdleKeys: -1}, strictRule("r", 10, time.Second, 1))
	l := limiter(t, f.Checker, "r")
	passes(l, noon, 1)
	for at := noon + ms; at < noon+second; at += 50 * ms {
		f.Step(at)
	}
	m, _ := f.asked()
	f.behind.shards[0].generation = 1
	f.receive(noon+second, events.KindGrant, &events.Grant{ // an answer that says nothing: its store is no more
		Epoch: m.Epoch, Sequence: m.Sequence, Age: []int64{0}, Granted: []uint64{0}, Spoken: []uint64{0}, WaitMs: []uint64{0},
	})
	for at := noon + second; at < noon+70*second; at += 500 * ms {
		f.Step(at)
	}
	if n := f.Stats().LiveKeys; n != 0 {
		t.Errorf("%d keys stay", n)
	}
}

// TestDemandThatHasGone: a refusal of long ago is no reason to ask, though a lot is looked at.
func TestDemandThatHasGone(t *testing.T) {
	f := newFleet(t, Options{}, strictRule("r", 10, time.Minute, 1))
	l := limiter(t, f.Checker, "r")
	passes(l, noon, 1)
	f.Step(noon + ms)
	passes(l, noon+2*ms, 1) // while the first is asked for
	f.grants(noon+3*ms, 0, 1, 1, 0)
	for at := noon + 10*ms; at < noon+2*second; at += 10 * ms {
		f.Step(at)
	}
	_, n := f.asked()
	f.grants(noon+2*second, 0, 1, 1, 0) // the one has been given back
	for at := noon + 2*second; at < noon+20*second; at += 50 * ms {
		f.Step(at)
	}
	if m, again := f.asked(); again != n || m.Want[0] != 0 {
		t.Errorf("%d more requests: %+v", again-n, m)
	}
}

// TestAFairShare: a hot key asks for half of its share before the permits are needed, not for all there is.
func TestAFairShare(t *testing.T) {
	d := demand{measured: noon, asked: 5000}
	d.measure(noon+10*ms, 0, 5*time.Millisecond, 100*time.Millisecond, 60)
	if got := d.wanted(0); got != 60 || d.low >= got {
		t.Errorf("%d wanted, more from %d; want the share, 60", got, d.low)
	}
	if got := d.wanted(70); got != 70 {
		t.Errorf("%d wanted, want what waiters need", got)
	}
	d.refused, d.refusal = 80, noon+10*ms
	if got := d.wanted(70); got != 80 {
		t.Errorf("%d wanted, want what was refused", got)
	}
	d.measure(noon+60*second, 0, 5*time.Millisecond, 100*time.Millisecond, 60)
	if got := d.wanted(0); got != 0 {
		t.Errorf("%d wanted a minute later, want none", got)
	}
}

// TestGrantOfAnOlderGeneration: a store that has lost its data since does not know of these permits.
func TestGrantOfAnOlderGeneration(t *testing.T) {
	f := newFleet(t, Options{}, strictRule("r", 10, time.Second, 1))
	l := limiter(t, f.Checker, "r")
	f.behind.shards[0].generation = 2
	passes(l, noon, 1)
	f.Step(noon + ms)
	f.grants(noon+2*ms, 0, 3, 3, 0) // of generation 1
	m, _ := f.asked()
	if m.Generation != 2 {
		t.Errorf("the request says generation %d, want the highest seen", m.Generation)
	}
	if n := passes(l, noon+3*ms, 3); n != 0 {
		t.Errorf("%d hits pass", n)
	}
}

// TestPermitsOfAClosedLot: those that are heard of when their time is over are given back at once.
func TestPermitsOfAClosedLot(t *testing.T) {
	shape := rule("r", 10, time.Second, 1).Window
	var p permits
	p.forgotten = -1
	now := shape.Bucket(noon)
	p.learn(now, 3)
	p.spend(now, 2)
	p.close(shape, noon+second-2*ms, ms)
	if p.lot(now).closed {
		t.Fatal("closed too soon")
	}
	p.close(shape, noon+second-ms, ms)
	if got := *p.lot(now); !got.closed || got.returned != 1 || got.left() != 0 {
		t.Errorf("closed: %+v, want one given back", got)
	}
	p.learn(now, 5)
	if got := *p.lot(now); got.returned != 3 || got.left() != 0 {
		t.Errorf("two more were granted: %+v, want three given back", got)
	}
	p.forget(shape, noon+second)
	if p.lot(now) == nil {
		t.Fatal("forgotten before it was said")
	}
	p.lots[0].acked = 3
	if p.forget(shape, noon+second); p.lot(now) != nil || p.forgotten != now {
		t.Errorf("%+v: want it forgotten", p.lots)
	}
	p.learn(now, 5) // and told of again
	if got := *p.lot(now); got.left() != 0 || p.owes() {
		t.Errorf("%+v: want all of it spent, and nothing given back", got)
	}
}

func TestSeveralRulesSpendTogether(t *testing.T) {
	f := newFleet(t, Options{}, strictRule("a", 10, time.Second, 1), strictRule("b", 5, time.Second, 1), rule("c", 100, time.Second, 1))
	attrs := identity.Attributes{{Name: "user", Value: "u"}}
	a, b := limiter(t, f.Checker, "a"), limiter(t, f.Checker, "b")
	key := func(l *Limiter) string {
		text, _ := l.Rule().AppendKey(nil, attrs)
		return string(text)
	}
	lot := func(l *Limiter) *lot {
		c := f.cells.load(l, key(l))
		c.mu.Lock()
		defer c.mu.Unlock()
		c.settle(0)
		return c.permits().lot(c.newest)
	}
	if d := f.CheckAt(noon, attrs, 1); d.Allowed {
		t.Errorf("without permits: %+v", d)
	}
	f.Step(noon + ms)
	m, _ := f.asked()
	if m.Keys.Keys() != 2 {
		t.Fatalf("want one request of both keys: %+v", m)
	}
	grant := func(now int64, first, second uint64) {
		m, _ := f.asked()
		f.receive(now, events.KindGrant, &events.Grant{
			Epoch: m.Epoch, Sequence: m.Sequence, Generation: 1, Version: m.Sequence, Age: []int64{0, 0},
			Granted: []uint64{first, second}, Spoken: []uint64{first, second}, WaitMs: []uint64{500, 500},
		})
	}
	of := map[string]uint64{"a": 3, "b": 0}
	grant(noon+2*ms, of[m.Keys.Rules[m.Keys.KeyRule[0]].Name], of[m.Keys.Rules[m.Keys.KeyRule[1]].Name])
	if d := f.CheckAt(noon+3*ms, attrs, 1); d.Allowed || d.Rule != "b" {
		t.Errorf("with permits of one rule only: %+v", d)
	}
	if got := lot(a); got.spent != 0 {
		t.Errorf("%d permits of the other are spent", got.spent)
	}
	if got := left(limiter(t, f.Checker, "c"), noon+3*ms, key(limiter(t, f.Checker, "c"))); got != 100 {
		t.Errorf("%d left of the rule that is not strict", got)
	}
	cell := f.cells.load(b, key(b))
	cell.permits().learn(cell.newest, 2)
	for i, want := range []bool{true, true, false} {
		if d := f.CheckAt(noon+4*ms, attrs, 1); d.Allowed != want {
			t.Errorf("request %d: %+v", i+1, d)
		}
	}
	if lot(a).spent != 2 || lot(b).spent != 2 {
		t.Errorf("spent: %+v, %+v; want 2 of each", lot(a), lot(b))
	}
}

// TestStrictAllocatesNothing while it has permits, or is blocked.
func TestStrictAllocatesNothing(t *testing.T) {
	f := newFleet(t, Options{}, strictRule("r", 1e9, time.Hour, 1), strictRule("shut", 1, time.Hour, 1))
	l, shut := limiter(t, f.Checker, "r"), limiter(t, f.Checker, "shut")
	l.CheckAt(noon, "k", 1e8)
	f.Step(noon + ms)
	f.grants(noon+2*ms, 0, 1e8, 1e8, 0)
	shut.CheckAt(noon+3*ms, "k", 1)
	f.Step(noon + 4*ms)
	f.grants(noon+5*ms, 0, 0, 0, time.Hour)
	for name, check := range map[string]func(){
		"allowed": func() {
			if !l.CheckAt(noon+6*ms, "k", 1).Allowed {
				t.Error("denied")
			}
		},
		"denied": func() { shut.CheckAt(noon+6*ms, "k", 1) },
		"cost 2": func() { l.CheckAt(noon+6*ms, "k", 2) },
	} {
		if n := testing.AllocsPerRun(1000, check); n != 0 && !raceDetector {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func TestLeaseRefused(t *testing.T) {
	f := newFleet(t, Options{}, strictRule("r", 10, time.Second, 1))
	l := limiter(t, f.Checker, "r")
	passes(l, noon, 1)
	f.Step(noon + ms)
	m, n := f.asked()
	hellos := len(f.tape.hellos)
	f.receive(noon+2*ms, events.KindGrant, &events.Grant{Epoch: m.Epoch, Sequence: m.Sequence, Error: "no"})
	f.Step(noon + 3*ms)
	if s := f.Stats(); s.LeasesRefused != 1 || s.Problem == "" || len(f.tape.hellos) != hellos+1 {
		t.Errorf("%+v, %d more hellos; want a refusal, and a hello", s, len(f.tape.hellos)-hellos)
	}
	f.Step(noon + 10*ms)
	if _, again := f.asked(); again != n {
		t.Error("asked again at once")
	}
	f.Step(noon + 100*ms)
	if _, again := f.asked(); again != n+1 {
		t.Errorf("%d requests 100 ms later, want one more", again-n)
	}
}

// answerTo is an answer, and its kind.
type answerTo struct {
	kind    events.Kind
	message events.Message
}

// grantOf grants as many permits of each key of a request.
func grantOf(m *events.LeaseRequest, each uint64) answerTo {
	g := &events.Grant{Epoch: m.Epoch, Shard: m.Shard, Sequence: m.Sequence, Generation: 1, Version: m.Sequence}
	for i := range m.Age {
		g.Age = append(g.Age, m.Age[i])
		g.Granted, g.Spoken, g.WaitMs = append(g.Granted, each), append(g.Spoken, each), append(g.WaitMs, 0)
	}
	return answerTo{events.KindGrant, g}
}
