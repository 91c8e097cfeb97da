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
			s.aggregator = 0
			f.tell(Repeated)
			if f.tries >= newerTries {
				r.toOlder(f, now)
			}
			r.send(uint32(i), f, now)
		}
	}
}

// newerTries is how often a report of a newer format is sent before it is changed to a format that
// older aggregators know.
const newerTries = 2
