package reporter

import "github.com/offpath-io/offpath/pkg/events"

// How a report is sent, and again when it has waited too long for its answer.

// send puts a report on its way and notes when to do so again.
func (r *Reporter) send(number uint32, f *inFlightReport, now int64) {
	f.retryAt = now + int64(f.wait)
	if f.tries++; f.tries > soonTries {
		f.wait = min(2*f.wait, mostWaits*r.o.Tuning.ReportTimeout)
	}
	f.toAny = r.shards[number].aggregator == 0
	if err := r.o.Link.Report(number, r.shards[number].aggregator, f.report); err != nil {
		r.counts.Problem = err.Error()
		r.counts.Unsent++
	}
}

// repeat sends again what has waited too long for its answer, and gives up what is too old.
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

// newerTries are how often a report of a newer format is sent before it is made one that older
// aggregators know.
const newerTries = 2
