package reporter

import (
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/fleetstate"
)

// How current the checker's knowledge of each shard is. The store's nodes fail one by one, so what
// one shard answers says nothing of the others.

// freshness is the part of a shard's state that its degradation level depends on. Times are own
// times.
type freshness struct {
	level fleetstate.Freshness
	// since is when the wait for an answer began; 0 if nothing waits. News of the shard ends it,
	// and so does a refusal of the message that it began with. If another one waits, a new wait
	// begins.
	since  int64
	waited int64 // when something last waited
}

// judgeFreshness sets the degradation levels. *Fresh* decides by totals from aggregators, and by a
// forecast of the hits that others admit. *Stale* does the same, but the forecast fades. *Local
// share* keeps own hits within the limit divided by the last known number of checkers. *Outage*
// follows rules with rules.Open or rules.Closed on outage; other rules keep to the local share.
//
// A shard's level is the worse of two: by the time that its oldest message has waited for an
// answer, and by the time without messages from any aggregator. The first answer or alarm of the
// shard makes it fresh at once. A shard of which nothing waits is as fresh as the last welcome.
func (r *Reporter) judgeFreshness(now int64) {
	r.judged = now
	if len(r.shards) == 0 {
		r.host.SetFreshness(0, r.contact(now))
	}
	for i := range r.shards {
		r.judgeShard(i, now)
	}
	r.host.SetRefused(r.judgeRefused(now))
}

// judgeEvery is the time between two looks at all shards, for every 64 of them: a step may be due
// every millisecond, and with this a look takes a hundredth of the time at most.
const judgeEvery = 100 * time.Microsecond

// judgeShard sets the degradation level of a shard.
func (r *Reporter) judgeShard(number int, now int64) {
	s, x := &r.shards[number], &r.leases.queues[number]
	level := r.contact(now)
	switch {
	case s.since == 0:
	case s.flight != nil || x.flight != nil || x.queue.Len() > 0:
		s.waited = now
	case now-s.waited > int64(r.o.StaleAfter): // its hits are gone, and with them the reason to ask
		s.since = 0
	}
	if s.since != 0 {
		level = max(level, r.after(now-s.since))
	}
	if s.level > fleetstate.Fresh && level == fleetstate.Fresh {
		r.missedAlarms = true // it may have
	}
	s.level = level
	r.host.SetFreshness(number, level)
}

// judgeRefused returns the levels of rules in shards whose reports are refused, nil if there are
// none: by the time since the first refusal, and local share at the worst, so that there are hits
// by which to find out that their reports are accepted.
func (r *Reporter) judgeRefused(now int64) (levels map[fleetstate.Refused]fleetstate.Freshness) {
	for i := range r.shards {
		r.leases.queues[i].forget(now)
		r.shards[i].forget(now)
		for _, s := range r.shards[i].apart {
			if s.since == 0 || s.group.Retired.Load() {
				continue
			}
			if levels == nil {
				levels = make(map[fleetstate.Refused]fleetstate.Freshness)
			}
			at := fleetstate.Refused{Rule: s.group.Name, Shard: uint32(i)} // no other group in force has it
			levels[at] = min(r.after(now-s.since), fleetstate.LocalShare)
		}
	}
	return levels
}

// contact returns the degradation level by the time without messages from any aggregator.
func (r *Reporter) contact(now int64) fleetstate.Freshness {
	switch {
	case r.lastContact == 0 && r.o.ExpectCheckers > 1:
		return fleetstate.LocalShare
	case r.lastContact == 0:
		return fleetstate.Local
	}
	return r.after(now - r.lastContact)
}

// after returns the degradation level after a silence.
func (r *Reporter) after(silence int64) fleetstate.Freshness {
	switch o := &r.o; {
	case silence > int64(o.OutageAfter):
		return fleetstate.Outage
	case silence > int64(o.ShareAfter):
		return fleetstate.LocalShare
	case silence > int64(o.StaleAfter):
		return fleetstate.Stale
	}
	return fleetstate.Fresh
}

// noteContact records that an aggregator has sent a message, other than a refusal. After a silence
// of all of them, everything in flight is sent again at once.
func (r *Reporter) noteContact(now int64) {
	before := r.contact(now)
	r.lastContact = now
	if before > fleetstate.Fresh {
		r.retryAll(now)
	}
	if before != fleetstate.Fresh {
		r.judgeFreshness(now)
	}
}

// endWait ends the shard's wait if it began with the message that was refused, sent at that time.
func (r *Reporter) endWait(number uint32, began int64) {
	s, x := &r.shards[number], &r.leases.queues[number]
	if s.since != began {
		return
	}
	s.since = 0
	if s.flight != nil {
		s.since = s.flight.born
	}
	if x.flight != nil && (s.since == 0 || x.flight.sent < s.since) {
		s.since = x.flight.sent
	}
}

// noteNews records news of a shard: an answer, or an alarm of what was just counted.
func (r *Reporter) noteNews(number uint32, now int64) {
	s := &r.shards[number]
	if s.since = 0; s.flight != nil || r.leases.queues[number].flight != nil {
		s.since = now
	}
	r.noteContact(now)
	r.judgeShard(int(number), now)
}

// noteWait records that a message of the shard waits for its answer.
func (s *freshness) noteWait(now int64) {
	if s.waited = now; s.since == 0 {
		s.since = now
	}
}
