package check

import (
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/events"
)

// TestLostGrant: a request that is not answered is made anew, of the bucket of the first.
func TestLostGrant(t *testing.T) {
	f, l := strictFleet(t, 10, time.Second)
	f.pass(l, 900, 1, 0)
	first := f.asks(900, leaseWish{want: 1})
	f.asksNothing(910, 911, 1)
	m := f.asks(1050, leaseWish{want: 1, age: 1}) // in the next bucket
	got := f.Stats().LeasesRepeated
	expect(t, got == 1 && m.Sequence > first.Sequence,
		"%d repeats, want 1; sequence %d after %d", got, m.Sequence, first.Sequence)
	// The answer to the first comes now, too late.
	f.receive(noon+1051*ms, events.KindGrant, &events.Grant{
		Epoch: first.Epoch, Sequence: first.Sequence, Generation: 1, Version: 1,
		Age: []int64{0}, Granted: []uint64{9}, Spoken: []uint64{9}, WaitMs: []uint64{0},
	})
	f.grants(noon+1052*ms, 1, 2, 1, 0) // one had been granted before, and two are now
	f.pass(l, 1052, 5, 2)
	atTime(noon+1060*ms, f).Step()
	f.wishes(leaseWish{known: 2, returned: 1, of: 1}) // the one of before
}

func TestLeaseRefused(t *testing.T) {
	f, l := strictFleet(t, 10, time.Second)
	f.pass(l, 0, 1, 0)
	m := f.asks(1, leaseWish{want: 1})
	hellos := len(f.tape.hellos)
	f.receive(noon+2*ms, events.KindGrant, &events.Grant{Epoch: m.Epoch, Sequence: m.Sequence, Error: "no"})
	f.asksNothing(3, 11, 7)
	s := f.Stats()
	expect(t, s.LeasesRefused == 1 && s.Problem != "" && len(f.tape.hellos) == hellos+1,
		"%+v, %d more hellos; want a refusal, and a hello", s, len(f.tape.hellos)-hellos)
	f.asks(100, leaseWish{want: 1})
}

// TestBlockedStrictKeyCostsNothing: while the store has said that no permit can be free, none is
// asked for; and after that only for a hit.
func TestBlockedStrictKeyCostsNothing(t *testing.T) {
	f, l := strictFleet(t, 10, time.Second)
	f.firstGrant(l, 0, 150*time.Millisecond)
	for at := int64(2); at < 150; at++ {
		f.pass(l, at, 5, 0)
		f.asksNothing(at, at+1, 1)
	}
	f.asksNothing(160, 900, 10)
	f.pass(l, 900, 1, 0)
	f.asks(901, leaseWish{want: 5})
	equal(t, f.Stats().Rules[0].Denied, 2+148*5, "denials counted")
}

// TestBlocksEndWithTheNextAnswer: in a long block a key asks now and then for the hits that come,
// and an answer that names no wait ends it.
func TestBlocksEndWithTheNextAnswer(t *testing.T) {
	f, l := strictFleet(t, 10, time.Minute)
	f.firstGrant(l, 0, 30*time.Second)
	_, before := f.asked()
	now := noon + 3*ms
	for ; len(f.tape.leases) == before && now < noon+20*second; now += 10 * ms {
		passes(l, now, 1)
		atTime(now, f).Step()
	}
	_, n := f.asked()
	require(t, n == before+1, "%d requests in the block, want one", n-before)
	f.grants(now, 0, 0, 0, 0)
	d := wantHit(t, l, now, 1, false, "nothing is granted")
	expect(t, d.RetryAfter <= time.Second, "blocked still: %+v", d)
}

// TestHotKeyIsRenewedInTime: at a steady rate a key whose answers take 4 ms is denied while it is
// cold, and then never again within the bucket.
func TestHotKeyIsRenewedInTime(t *testing.T) {
	f, l := strictFleet(t, 100_000, time.Minute)
	var granted, answerAt int64
	denied, late, requests := 0, 0, 0
	asks := func(now int64) {
		if n := len(f.tape.leases); n > requests {
			requests, answerAt = n, now+4*ms
		}
	}
	for at := noon; at < noon+second; at += ms / 2 {
		if !atTime(at, l).Check("k", 1).Allowed {
			denied++
			if at > noon+100*ms {
				late++
			}
		}
		atTime(at, f).Step()
		asks(at)
		if at == answerAt {
			m, _ := f.asked()
			granted += int64(m.Want[0])
			f.grants(at, 0, granted, granted, 0)
			asks(at)
		}
	}
	expect(t, denied <= 60 && late <= 0 && requests <= 250 && granted <= 2000+200,
		"of 2000 hits %d are denied, %d of them after the first 100 ms; %d requests for %d permits", denied, late, requests, granted)
}

// TestOldRefusalsAreNoDemand: a refusal of long ago is no reason to ask.
func TestOldRefusalsAreNoDemand(t *testing.T) {
	f, l := strictFleet(t, 10, time.Minute)
	f.pass(l, 0, 1, 0)
	f.asks(1, leaseWish{want: 1})
	f.pass(l, 2, 1, 0) // while the first is asked for
	f.grants(noon+3*ms, 0, 1, 1, 0)
	f.steps(10, 2000, 10)
	f.wishes(leaseWish{known: 1, returned: 1})
	f.grants(noon+2*second, 0, 1, 1, 0)
	f.asksNothing(2000, 20_000, 50)
}

// TestForgottenSpendings: a key evicted and back in the same bucket has permits of which it does
// not know how many are spent. It spends none of them.
func TestForgottenSpendings(t *testing.T) {
	f, l := fleetAndLimiter(t, Options{MaxLiveKeys: 4, MaxIdleKeys: -1}, strictRule("r", 10, time.Minute, 1))
	f.firstGrant(l, 1, 0)
	f.pass(l, 3, 1, 1)
	atTime(noon+50*ms, f).Step()
	f.answer(noon+51*ms, 1)
	first := f.host.Table.Load(&l.core.Group, "k")
	for i, at := 0, noon+60*ms; f.host.Table.Load(&l.core.Group, "k") == first; at += 10 * ms { // others come, until it leaves
		if i++; i > 1000 {
			t.Fatal("it stays")
		}
		atTime(at, l).Check(string(rune('a'+i%3)), 20) // asks for nothing
		atTime(at, f).Step()
	}
	f.pass(l, 30_000, 1, 0)
	m := f.asks(30_000, leaseWish{})
	require(t, string(m.Keys.KeyText) == "k", "want a question without a wish: %+v", m)
	f.grants(noon+30_002*ms, 0, 1, 1, 0)
	f.pass(l, 30_002, 1, 0)
	f.asks(30_004, leaseWish{want: 1, known: 1})
	f.grants(noon+30_006*ms, 0, 2, 2, 0)
	f.pass(l, 30_006, 3, 1)
}

// TestPermitsKeepTheirCell: permits not yet spent or given back are not evicted.
func TestPermitsKeepTheirCell(t *testing.T) {
	f, l := fleetAndLimiter(t, Options{MaxLiveKeys: 4, MaxIdleKeys: -1}, strictRule("r", 10, time.Minute, 1))
	f.firstGrant(l, 2, 0)
	first := f.host.Table.Load(&l.core.Group, "k")
	for i, at := 0, noon+60*ms; at < noon+20*second; i, at = i+1, at+10*ms {
		atTime(at, l).Check(string(rune('a'+i%6)), 20)
		atTime(at, f).Step()
		require(t, f.host.Table.Load(&l.core.Group, "k") == first, "it has left with permits that it owes")
	}
}

// TestUnansweredCounterLeaves: a key that asked in vain leaves with its bucket, and no later.
func TestUnansweredCounterLeaves(t *testing.T) {
	f, l := fleetAndLimiter(t, Options{MaxIdleKeys: -1}, strictRule("r", 10, time.Second, 1))
	passes(l, noon, 1)
	f.steps(1, 1000, 50)
	m, _ := f.asked()
	f.receive(noon+second, events.KindAlarm, &events.Alarm{Generation: 1, Version: 1, Totals: new(events.Table)})
	f.receive(noon+second, events.KindGrant, &events.Grant{ // an answer that says nothing: its store is no more
		Epoch: m.Epoch, Sequence: m.Sequence, Age: []int64{0}, Granted: []uint64{0}, Spoken: []uint64{0}, WaitMs: []uint64{0},
	})
	f.steps(1000, 70_000, 500)
	equal(t, f.Stats().LiveKeys, 0, "keys that stay")
}

// TestLateGrantIsNoSlowOne: the process stood still while the answer waited for it. If that counted
// as a round trip, requests would be repeated seconds later, and ask for permits for seconds.
func TestLateGrantIsNoSlowOne(t *testing.T) {
	f, l := strictFleet(t, 10, time.Minute)
	f.firstGrant(l, 1, 0)
	before := f.host.LeaseRoundTrip()
	f.pass(l, 3, 2, 1)
	f.asks(4, leaseWish{want: 3, known: 1})
	f.grants(noon+8*second, 0, 2, 2, 0)
	equal(t, f.host.LeaseRoundTrip(), before, "round trip")
	f.pass(l, 8001, 1, 1)
}

// TestAnswersBehindAWelcomeAreNoSlowOnes: where the process stood still, or its clock jumped ahead,
// a welcome that waited before them makes what is in flight due at once, in the same instant. If
// they counted as round trips, a lost report would be repeated half a minute later.
func TestAnswersBehindAWelcomeAreNoSlowOnes(t *testing.T) {
	f, l := strictFleet(t, 10, time.Minute)
	f.firstGrant(l, 1, 0)
	before := f.host.LeaseRoundTrip()
	f.pass(l, 3, 2, 1)
	f.asks(4, leaseWish{want: 3, known: 1})
	now := noon + 50*ms
	atTime(now, f).Step()
	now += 58 * second
	f.join(now, 1, -58*second)
	f.grants(now, 0, 2, 2, 0)
	f.answer(now, 1)
	equal(t, f.host.LeaseRoundTrip(), before, "round trip of lease requests")
	equal(t, f.host.Rounds.Trip.Load(), 0, "round trip of reports")
}
