package reporter

// send sends a report, and sets when to send it again.
func (r *Reporter) send(number uint32, f *inFlightReport, now int64) {
	f.sent, f.retryAt = now, now+int64(f.wait)
	if f.tries++; f.tries > soonTries {
		f.wait = min(2*f.wait, mostWaits*r.o.Tuning.ReportTimeout)
	}
	f.toOwner = r.shards[number].isToOwner(now)
	if err := r.o.Link.Report(number, f.toOwner, f.report); err != nil {
		r.counts.Problem = err.Error()
		r.counts.Unsent++
	}
}

// soonTries is how many sendings of a report do not make the next time-out longer. The first may
// have gone to an owner that does not answer; later ones go to any aggregator.
const soonTries = 4
