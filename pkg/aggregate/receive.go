package aggregate

import "github.com/offpath-io/offpath/pkg/events"

// Receive takes in one message at own time now. A report or lease request waits for a Step (or Run)
// to be applied; it is answered by reply, once or never. A hello is answered at once, unless reply
// is nil. Whatever the payload, Receive does not panic, and keeps nothing of it. It is safe for
// concurrent use.
func (w *Worker) Receive(now int64, kind events.Kind, payload []byte, reply func([]byte) error) {
	switch kind {
	case events.KindReport:
		w.receiveReport(now, payload, reply, false)
	case events.KindLease:
		w.receiveLease(now, payload, reply)
	case events.KindHello:
		w.receiveHello(now, payload, reply)
	case events.KindMember:
		w.receiveMember(now, payload)
	}
}

// queued are the requests of one kind that wait.
type queued interface {
	Repeats(epoch, sequence uint64, size int, reply func([]byte) error) bool
}

// repeats returns whether a payload repeats a request that waits in a queue of its shard. While the
// store hangs, most are such repeats: they are not even decoded.
func (w *Worker) repeats(
	payload []byte, reply func([]byte) error, queueOf func(*shard) queued,
) bool {
	shards := w.shards()
	epoch, shard, sequence, ok := events.PeekRequest(payload)
	return ok && int64(shard) < int64(len(shards)) &&
		queueOf(shards[shard]).Repeats(epoch, sequence, len(payload), reply)
}

// receiveHello takes in a heartbeat, and answers it with the number of shards, the fleet's time and
// size. There is no answer until the fleet's time is known, and while the store answers for less
// than half of the shards: an aggregator that cannot count must not let checkers believe that their
// knowledge is fresh. They ask others, or decide by a lower degradation level.
func (w *Worker) receiveHello(now int64, payload []byte, reply func([]byte) error) {
	w.counters.add(func(c *Stats) { c.Hellos++ })
	h, err := events.DecodeHello(payload)
	if err != nil {
		return
	}
	w.checkers.Observe(h, now)
	shards := w.known()
	if reply != nil && len(shards) > 0 && !h.GetLeaving() && w.canCount() {
		_ = w.send(reply, &events.Welcome{
			Epoch:    h.GetEpoch(),
			Sent:     h.GetSent(),
			Shards:   uint32(len(shards)),
			Time:     w.clock.Time(now),
			Checkers: w.liveCheckers(now),
			Error:    w.clock.Error(now),
		})
	}
	if h.GetAsks() {
		for _, s := range shards {
			s.alarms.Repeat()
			s.reports.WakeUp()
		}
	}
}
