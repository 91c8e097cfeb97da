package reporter

import "github.com/offpath-io/offpath/pkg/events"

// Reports whose time-out has passed without an answer.

// repeat sends reports again whose time-out has passed, and gives up reports that are too old.
func (r *Reporter) repeat(now int64) {
	for i := range r.shards {
		s := &r.shards[i]
		switch f := s.flight; {
		case f == nil || now < f.retryAt:
		case now-f.born > int64(events.MaxReportAge):
			s.gaveUp = now
			r.giveUp(s, f, r.host.Clock.Fleet(now))
		default:
			r.counts.Repeated++
			f.repeated = true
			s.avoidOwner(f.toOwner, now)
			f.tell(Repeated)
			if f.tries >= newerTries {
				r.toOlder(f, now)
			}
			r.send(uint32(i), f, now)
		}
	}
}

// retryAll sends everything in flight again in the next step: after a silence of all aggregators
// one has been heard, and only answers make shards fresh. That nobody answered says nothing of
// owners.
func (r *Reporter) retryAll(now int64) {
	for i := range r.shards {
		r.shards[i].ownerAfter = 0
		if f := r.shards[i].flight; f != nil {
			f.retryAt, f.toOwner = now, false
		}
		if f := r.leases.queues[i].flight; f != nil {
			f.retryAt, f.toOwner = now, false
		}
	}
	r.host.WakeUp()
}

// newerTries is how often a report of a newer format is sent before it is changed to a format that
// older aggregators know.
const newerTries = 2
