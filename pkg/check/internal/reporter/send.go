package reporter

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

// soonTries are how often a report is sent before there is any back-off: it may have gone to an
// aggregator that is no more, and the next time goes to any.
const soonTries = 4
