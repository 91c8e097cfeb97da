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
func (r *Reporter) welcome(m *events.Welcome, now int64) {
	if m.Epoch != r.o.Epoch {
		r.counts.Ignored++
		return
	}
	r.noteContact(now)
	r.host.Size.Store(int64(m.Checkers))
	if r.welcomes++; (r.welcomes+r.o.Epoch)%chooseEvery == 0 {
		for i := range r.shards {
			r.shards[i].aggregator = 0
		}
	}
	if step := r.host.Clock.Observe(m.Sent, m.Time, now, m.Error); step != 0 {
		r.rebucket(step, r.host.Clock.Fleet(now))
	}
	switch n := int(m.Shards); {
	case !r.host.Clock.Known(): // too slow an answer to tell the time, and so where hits belong
		r.nextHello = now
	case n == len(r.shards):
		r.other = 0
	case len(r.shards) == 0 || n == r.other:
		r.other = 0
		r.reshard(n, now)
	default: // a change is believed when it is heard twice: it costs what is in flight
		r.other = n
		r.nextHello = now
	}
	r.askAgain(m, now)
}

// askAgain asks for the totals that alarms have told lately, once they can be taken in, until a
// hello that asks is answered.
func (r *Reporter) askAgain(m *events.Welcome, now int64) {
	switch {
	case !r.missedAlarms || len(r.shards) == 0:
	case m.Sent == r.asked:
		r.missedAlarms = false
	case now-r.asked >= int64(firstHelloEvery): // or else the answer is on its way
		r.nextHello = now
		r.host.WakeUp()
	}
}

// rebucket moves every counter to where the corrected clock says that its hits belong: to the
// nearest bucket, but not beyond the one of now. It happens once, before the first report.
func (r *Reporter) rebucket(step, fleet int64) {
	r.host.Table.Each(func(c *counter.Counter) { c.Rebucket(step, fleet) })
}

// reshard takes in the number of shards: normally once, by the first welcome, which is when pending
// hits get to know where they belong. If it changes later, the store was made anew with another
// number; no report by the old numbering can ever be answered.
func (r *Reporter) reshard(shards int, now int64) {
	fleet := r.host.Clock.Fleet(now)
	old := r.shards
	r.shards = make([]shard, shards)
	if len(old) > 0 { // what was known of the old shards' counters means nothing now
		r.generations++
	}
	for i := range r.shards {
		r.shards[i].localGeneration = r.generations
	}
	r.reshardLeases()
	for i := range old {
		if f := old[i].flight; f != nil {
			r.giveUp(&old[i], f, fleet)
		}
		for old[i].queue.Len() > 0 {
			r.enqueue(old[i].queue.Pop())
		}
		for old[i].settlements.Len() > 0 {
			r.o.Settling.Return(old[i].settlements.Pop())
		}
		for old[i].late.Len() > 0 {
			l := old[i].late.Pop()
			l.Owed.QueuedLate = false
			r.host.Lates.Add(l)
		}
	}
	for _, c := range r.unsharded {
		r.enqueue(c)
	}
	r.unsharded = nil
	r.nextFlush = now
	r.hurry()
}

// hello sends a heartbeat; leaving says that it is the last one.
func (r *Reporter) hello(now int64, leaving bool) {
	m := &events.Hello{Epoch: r.o.Epoch, Sent: now, Leaving: leaving}
	wait := r.o.HelloEvery
	if r.host.Freshness() != fleetstate.Fresh {
		r.missedAlarms = true // it may have missed alarms
	}
	if m.Asks = r.missedAlarms && len(r.shards) > 0 && !leaving; m.Asks {
		r.asked = now
	}
	// Nothing can be reported before the first welcome, which may not know of all checkers yet.
	if len(r.shards) == 0 || m.Asks {
		wait = min(wait, firstHelloEvery)
	}
	r.nextHello = now + int64(wait)
	payload, err := events.Append(nil, m)
	if err == nil {
		err = r.o.Link.Hello(payload)
	}
	if err != nil {
		r.counts.Problem = err.Error()
	}
}

// chooseEvery is after how many welcomes reports go to any aggregator again, so that those that
// have joined the fleet get their share.
const chooseEvery = 16

// firstHelloEvery is the time between hellos until the first is answered.
const firstHelloEvery = 250 * time.Millisecond
