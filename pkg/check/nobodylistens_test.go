package check

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/events"
)

// twoShards is a checker that has a report of each of two shards on their way to the owners.
func twoShards(t *testing.T) (f *fleet, now int64) {
	t.Helper()
	f = unwelcomed(t, Options{Tuning: tuning{ReportTimeout: 100 * time.Millisecond}}, rule("r", 100, time.Minute, 1))
	atTime(noon, f).Step()
	f.welcome(noon, 2)
	atTime(noon, f).Step()
	l := limiter(t, f.Checker, "r")
	now = noon + 50*ms
	atTime(now, l).Check(keyOf("r", 0), 1)
	atTime(now, l).Check(keyOf("r", 1), 1)
	atTime(now, f).Step()
	f.wantSent(t, "the reports", "0 to its owner", "1 to its owner")
	return f, now
}

// unheard has the carrier say that a report has reached nobody.
func (f *fleet) unheard(now int64, shard uint32, toOwner bool) {
	to := events.Address{Kind: events.KindReport, Format: events.FormatPlain, Shard: shard, ToOwner: toOwner}
	atTime(now, f).Receive(events.KindUnheard, []byte(to.String()))
	atTime(now+ms, f).Step()
}

// wantSent checks which reports were sent since the last time: the shard, and to whom.
func (f *fleet) wantSent(t *testing.T, why string, want ...string) {
	t.Helper()
	slices.Sort(f.tape.to)
	expect(t, slices.Equal(f.tape.to, want), "%s: sent %q, want %q", why, f.tape.to, want)
	f.tape.to = nil
}

// TestOwnerIsGone: what was sent to an owner that is not there goes to any aggregator, at once, and
// so does what follows, for a while. Reports of other shards go to their owners.
func TestOwnerIsGone(t *testing.T) {
	f, now := twoShards(t)
	f.unheard(now, 0, true)
	f.wantSent(t, "the owner was not there", "0 to any")
	f.unheard(now+ms, 0, true)
	f.wantSent(t, "that is known")
	f.unheard(now+2*ms, 0, false)
	f.wantSent(t, "nobody at all is there: the time-out counts")
	f.unheard(now+3*ms, 7, true)
	f.wantSent(t, "there is no such shard")
	atTime(now+4*ms, f).Receive(events.KindUnheard, []byte("nonsense"))
	atTime(now+4*ms, f).Step()
	f.wantSent(t, "nor such an address")
	now += int64(time.Second)
	atTime(now, f).Step()
	f.wantSent(t, "no answer came either", "0 to its owner", "1 to any")
	for now += ms; len(f.tape.to) == 0; now += 10 * ms { // time-outs grow
		atTime(now, f).Step()
		require(t, now <= noon+int64(time.Minute), "nothing is sent any more")
	}
}

// TestUnheardIsNoRepeat: a report that has reached nobody is sent for the first time when it goes
// to another aggregator: it is no repeat, and its time-outs do not grow for it.
func TestUnheardIsNoRepeat(t *testing.T) {
	f, now := twoShards(t)
	f.unheard(now+20*ms, 0, true)
	f.wantSent(t, "the owner was not there", "0 to any")
	equal(t, f.Stats().ReportsRepeated, 0, "reports repeated")
	for range 2000 {
		now += ms
		atTime(now, f).Step()
	}
	sent := map[byte]int{}
	for _, to := range f.tape.to {
		sent[to[0]]++
	}
	equal(t, sent['0'], sent['1'], "repeats of the one that was unheard, and of the other")
}

// TestALateGrantKeepsReportsAtTheOwner: a lease request may take longer than its time-out, as when
// the store is busy. Reports go to the owner all the same, which remembers their totals.
func TestALateGrantKeepsReportsAtTheOwner(t *testing.T) {
	f, l := fleetAndLimiter(t, Options{}, strictRule("strict", 100, time.Minute, 1), rule("r", 100, time.Minute, 1))
	atTime(noon, l).Check("k", 1)
	for now := noon; now < noon+200*ms; now += ms {
		if now == noon+50*ms {
			atTime(now, limiter(t, f.Checker, "r")).Check("k", 1)
		}
		atTime(now, f).Step()
	}
	_, asked := f.asked()
	expect(t, asked > 1, "permits were asked for %d times", asked)
	require(t, len(f.tape.to) > 0, "nothing was reported")
	expect(t, f.tape.to[0] == "0 to its owner", "the first report went %s", f.tape.to[0])
}

// TestOwnerIsTriedAgain: a while after an owner was not reached, reports go to the owner again.
func TestOwnerIsTriedAgain(t *testing.T) {
	f, now := twoShards(t)
	f.unheard(now, 0, true)
	f.wantSent(t, "the owner was not there", "0 to any")
	for _, m := range f.tape.reports {
		if m.Shard == 0 {
			f.receive(now+2*ms, events.KindRefresh, answerTo(m))
		}
	}
	for i := range 8 { // of both shards
		atTime(now+2*ms, limiter(t, f.Checker, "r")).Check(fmt.Sprint("more ", i), 1)
	}
	now += 2 * int64(time.Second)
	atTime(now, f).Step()
	expect(t, slices.Contains(f.tape.to, "0 to its owner"), "two seconds later: %q", f.tape.to)
}
