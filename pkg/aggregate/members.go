package aggregate

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate/internal/member"
	"github.com/offpath-io/offpath/pkg/aggregate/internal/queue"
	"github.com/offpath-io/offpath/pkg/events"
)

// receiveMember takes in what an aggregator has told all of them.
func (w *Worker) receiveMember(now int64, payload []byte) {
	said, err := events.DecodeMember(payload)
	if err != nil {
		w.counters.add(func(c *Stats) { c.Malformed++ })
		return
	}
	if w.members.Observe(said, now) {
		w.reviewSoon()
	}
	w.observeFleet(said, now)
}

// observeFleet takes in what an aggregator says of the fleet's time, and that this one hears
// itself.
func (w *Worker) observeFleet(said *events.Member, now int64) {
	switch {
	case said.GetId() == w.members.ID():
		w.checkers.Listen(now)
	case said.GetTime() != 0 && !w.clockless.Load():
		w.clock.Hear(now, said.GetTime(), said.GetError())
		if sent, trip, ok := w.members.Trip(said, now); ok {
			keeper := said.GetId() == w.members.Keeper()
			w.clock.ObservePeer(sent, now, said.GetTime()+trip/2, trip/2+said.GetError(), keeper)
		}
	}
	w.startClock(now)
}

// startClock sets the fleet's time, if it is not known and can be. From then on this worker takes
// requests.
func (w *Worker) startClock(now int64) {
	if w.clock.Known() || w.shards() == nil {
		return
	}
	told, _ := w.members.Told()
	if w.clock.Start(now, w.clockless.Load() || w.members.Listened(now), told) {
		w.attended.Lock()
		defer w.attended.Unlock()
		w.reviewOwnersLocked(now, true)
	}
}

// liveCheckers is the number of live checkers; 0 while neither this worker nor another one knows
// it.
func (w *Worker) liveCheckers(now int64) uint32 {
	_, told := w.members.Told()
	return w.checkers.Count(now, told)
}

// noteRequest takes in a request to any worker: if its shard has another owner, the checker has not
// reached that one.
func (w *Worker) noteRequest(shard uint32, now int64) {
	if owned := *w.owned.Load(); !owned[shard] && w.members.Doubt(shard, now) {
		w.reviewSoon()
	}
}

// reviewSoon has Run or Step review at once which shards this worker owns: once for all that has
// changed meanwhile.
func (w *Worker) reviewSoon() {
	select {
	case w.told.review <- struct{}{}:
	default:
	}
}

// reviewOwnersLocked decides which shards this worker owns at own time now, and has the bus follow;
// attended says that the attended shards have changed, too.
func (w *Worker) reviewOwnersLocked(now int64, attended bool) {
	serves := w.servesLocked(now)
	owned, news := w.members.Own(serves, now)
	if !news && !attended && !w.attended.failed {
		return
	}
	w.owned.Store(&owned)
	err := w.o.Bus.Attend(serves, owned)
	if err != nil && w.attended.failureLog.allow(now) {
		w.o.Log.Warn("cannot subscribe to shards", slog.Any("error", err))
	}
	w.attended.failed = err != nil // then the next review tries again, which is not news
	if news || attended {
		w.attended.news = true
		w.reviewSoon()
	}
}

// servesLocked are the shards whose requests are to come to this worker: none before it knows the
// fleet's time, and none that another worker serves before the store has once applied a batch of
// it. The result is not changed later.
func (w *Worker) servesLocked(now int64) []bool {
	if !w.clock.Known() {
		return make([]bool, len(w.attended.shards))
	}
	serves := slices.Clone(w.attended.shards)
	if w.running.Load() { // or nobody would probe them
		for i, s := range w.shards() {
			serves[i] = serves[i] && (s.lastOK.Load() > 0 || !w.members.ServedByOther(s.number, now))
		}
	}
	return serves
}

// tell reviews which shards this worker owns, and tells the other aggregators about it, if that is
// due or there is something new.
func (w *Worker) tell(now int64, due bool) {
	w.startClock(now)
	w.attended.Lock()
	if due {
		w.leaveOverloadedLocked(now)
	}
	w.reviewOwnersLocked(now, false)
	serves, news := w.servesLocked(now), w.attended.news
	w.attended.news = false
	w.attended.Unlock()
	if !due && !news {
		return
	}
	said := w.members.Message(serves, now)
	if w.clock.Known() {
		said.Time, said.Error = w.clock.Tell(now)
	}
	said.Checkers = w.checkers.Count(now, 0)
	w.tellMember(said)
}

// tellMember tells all aggregators something. What cannot be sent is lost: the next one is soon.
func (w *Worker) tellMember(said *events.Member) {
	data, err := events.Append(nil, said)
	if err == nil {
		err = w.o.Bus.Tell(data)
	}
	if err != nil {
		w.counters.add(func(c *Stats) { c.ReplyErrors++ })
	}
}

// stepMembers reviews which shards this worker owns, and tells the others, if that is due, and
// returns when it is due next.
func (w *Worker) stepMembers(now int64) (next int64) {
	if w.shards() == nil {
		return queue.Never
	}
	due := now >= w.told.next
	select {
	case <-w.told.review:
	default:
		if !due {
			return w.told.next
		}
	}
	if w.tell(now, due); due { // news put off nothing that is due
		w.told.next = now + int64(member.Every)
	}
	return w.told.next
}

// keepTelling does the same until ctx is done, and then tells the others that this worker leaves.
func (w *Worker) keepTelling(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		due := false
		select {
		case <-ctx.Done():
			w.tellMember(w.members.Leave(w.now()))
			return
		case <-timer.C:
			due = true
		case <-w.told.review:
		}
		if w.tell(w.now(), due); due {
			timer.Reset(member.Every)
		}
	}
}
