package reporter

import (
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/check/internal/fleetstate"
	"github.com/offpath-io/offpath/pkg/events"
)

// What a checker and its aggregators tell each other about themselves: hellos, and welcomes with
// the time and the number of shards.

// welcome takes in the answer to a hello.
func (b *Reporter) welcome(m *events.Welcome, now int64) {
	if m.Epoch != b.o.Epoch {
		b.counts.Ignored++
		return
	}
	b.noteContact(now)
	b.host.Size.Store(int64(m.Checkers))
	if b.welcomes++; (b.welcomes+b.o.Epoch)%chooseEvery == 0 {
		for i := range b.shards {
			b.shards[i].aggregator = 0
		}
	}
	if step := b.host.Clock.Observe(m.Sent, m.Time, now, m.Error); step != 0 {
		b.rebucket(step, b.host.Clock.Fleet(now))
	}
	switch n := int(m.Shards); {
	case !b.host.Clock.Known(): // too slow an answer to tell the time, and so where hits belong
		b.nextHello = now
	case n == len(b.shards):
		b.other = 0
	case len(b.shards) == 0 || n == b.other:
		b.other = 0
		b.reshard(n, now)
	default: // a change is believed when it is heard twice: it costs what is in flight
		b.other = n
		b.nextHello = now
	}
	b.askAgain(m, now)
}

// askAgain asks for the totals that alarms have told lately, once they can be taken in, until a
// hello that asks is answered.
func (b *Reporter) askAgain(m *events.Welcome, now int64) {
	switch {
	case !b.missedAlarms || len(b.shards) == 0:
	case m.Sent == b.asked:
		b.missedAlarms = false
	case now-b.asked >= int64(firstHelloEvery): // or else the answer is on its way
		b.nextHello = now
		b.host.WakeUp()
	}
}

// rebucket moves every counter to where the corrected clock says that its hits belong: to the
// nearest bucket, but not beyond the one of now. It happens once, before the first report.
func (b *Reporter) rebucket(step, fleet int64) {
	b.host.Table.Each(func(c *counter.Counter) { c.Rebucket(step, fleet) })
}

// reshard takes in the number of shards: normally once, by the first welcome, which is when pending
// hits get to know where they belong. If it changes later, the store was made anew with another
// number; no report by the old numbering can ever be answered.
func (b *Reporter) reshard(shards int, now int64) {
	fleet := b.host.Clock.Fleet(now)
	old := b.shards
	b.shards = make([]shard, shards)
	if len(old) > 0 { // what was known of the old shards' counters means nothing now
		b.states++
	}
	for i := range b.shards {
		b.shards[i].state = b.states
	}
	b.reshardLeases()
	for i := range old {
		if f := old[i].flight; f != nil {
			b.giveUp(&old[i], f, fleet)
		}
		for old[i].queue.Len() > 0 {
			b.enqueue(old[i].queue.Pop())
		}
		for old[i].settlements.Len() > 0 {
			b.o.Settling.Return(old[i].settlements.Pop())
		}
		for old[i].late.Len() > 0 {
			l := old[i].late.Pop()
			l.Owed.QueuedLate = false
			b.host.Lates.Add(l)
		}
	}
	for _, c := range b.unsharded {
		b.enqueue(c)
	}
	b.unsharded = nil
	b.nextFlush = now
	b.hurry()
}

// hello sends a heartbeat; leaving says that it is the last one.
func (b *Reporter) hello(now int64, leaving bool) {
	m := &events.Hello{Epoch: b.o.Epoch, Sent: now, Leaving: leaving}
	wait := b.o.HelloEvery
	if b.host.Freshness() != fleetstate.Fresh {
		b.missedAlarms = true // it may have missed alarms
	}
	if m.Asks = b.missedAlarms && len(b.shards) > 0 && !leaving; m.Asks {
		b.asked = now
	}
	// Nothing can be reported before the first welcome, which may not know of all checkers yet.
	if len(b.shards) == 0 || m.Asks {
		wait = min(wait, firstHelloEvery)
	}
	b.nextHello = now + int64(wait)
	payload, err := events.Append(nil, m)
	if err == nil {
		err = b.o.Link.Hello(payload)
	}
	if err != nil {
		b.counts.Problem = err.Error()
	}
}

// chooseEvery is after how many welcomes reports go to any aggregator again, so that those that
// have joined the fleet get their share.
const chooseEvery = 16

// firstHelloEvery is the time between hellos until the first is answered.
const firstHelloEvery = 250 * time.Millisecond
