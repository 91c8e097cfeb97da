package counter

// A sink receives the hits that a flush moves into a report.
type sink interface {
	// AddRow begins a row of the counter's hits of a kind.
	AddRow(c *Counter, kind int)
	// AddHits adds hits of a bucket to the row that was begun last.
	AddHits(bucket, hits int64)
}

// Flush moves the counter's pending hits into a report. If mayWait, hits of a key far below its
// limit are deferred instead. older means that the report is for an aggregator that does not know
// of refunds.
func (counter *Counter) Flush(s sink, fleet int64, mayWait, older bool) {
	c := counter.Lock()
	defer c.Unlock()
	c.CatchUp(fleet)
	c.State &^= queued
	if c.mayDefer(fleet, mayWait) {
		return
	}
	asks := !older && c.asksForRefunds()
	if !c.flushDenied(s, fleet) && !c.hasPending() && !asks {
		c.age(fleet)
		return
	}
	if !older && (asks || c.Group.Refunds.Load()) {
		s.AddRow(c.Counter, RefundedHits)
	}
	s.AddRow(c.Counter, AdmittedHits)
	pending := c.Pending()
	for i, n := range pending {
		if n > 0 {
			s.AddHits(c.Newest-int64(i), n)
			pending[i] = 0
			if c.Forecast() != nil {
				c.Forecast().inFlight[i] = n
			}
		}
	}
	c.State |= InFlight
	c.Touch(fleet)
}

// flushDenied moves the denied hits of a counter with a forecast into the report, and asks for
// those of all checkers. It returns whether there was anything to report or to ask for.
func (c Locked) flushDenied(s sink, fleet int64) bool {
	a := c.Forecast()
	if a == nil {
		return false
	}
	a.Reported(fleet, c.Group.Host.ForecastFleet())
	if a.DeniedOwn == 0 && (!a.AnyDenied || !c.hasPending()) {
		return false
	}
	s.AddRow(c.Counter, DeniedHits)
	if a.DeniedOwn > 0 {
		s.AddHits(c.Newest, a.DeniedOwn)
		a.DeniedOwn = 0
	}
	return true
}

// FlushLocally is Flush for a checker without a link, which reports nothing.
func (counter *Counter) FlushLocally(fleet int64) {
	c := counter.Lock()
	defer c.Unlock()
	c.CatchUp(fleet)
	clear(c.Pending())
	c.State &^= queued
	c.Touch(fleet)
	c.age(fleet)
}
