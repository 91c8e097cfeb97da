package reporter

import (
	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/events"
)

// How a report is made of dirty counters and sent. retry.go repeats it until it is answered, or
// gives it up.

const (
	// These bound a report and its answer, far below NATS' limit of 1 MiB: reportText the bytes of
	// keys and their rules, lateText those of rules that only have late hits, settlementText those
	// of settlements, and reportCells the buckets of its keys, which the answer may contain. Each
	// is a bound of its own, so that no part takes another part's room. reportCells also keeps one
	// report from occupying Redis for long: at 60 buckets it takes 15 µs per key.
	reportText     = 256 << 10
	lateText       = 128 << 10
	settlementText = 256 << 10
	reportCells    = 16_000
	// rowText and ruleText are how many bytes a row and a rule of a report take at most, beside the
	// key and the name.
	rowText, ruleText = 10, 80
)

// report makes the shard's next report and sends it, if there is anything to report. The shard has
// no report in flight.
func (r *Reporter) report(number uint32, s *shard, now int64) {
	s.missed = false
	due := now
	if r.draining {
		due = neverDue
	}
	s.eachTurn(due, func(about *suspect) bool {
		r.reportTurn(number, s, about, now)
		return s.flight != nil
	})
}

// reportTurn moves the hits of the oldest dirty counters of a turn, as many as fit, into a report
// and sends it.
func (r *Reporter) reportTurn(number uint32, s *shard, about *suspect, now int64) {
	f, l := r.blank(s), s.of(about)
	fleet := r.host.Clock.Fleet(now)
	f.after = l.taken
	rows := rowSink{r, f, fleet}
	for cells := 0; l.queue.Len() > 0 && len(f.rows) < r.o.Tuning.ReportKeys &&
		f.text < reportText && cells < reportCells; {
		c, before := l.queue.Pop(), len(f.rows)
		l.taken++
		if about == nil {
			if apart := s.suspect(c.Group, now); apart != nil {
				if apart.queue.Push(c); l.taken <= l.goal {
					apart.setGoal()
				}
				continue
			}
		}
		c.Flush(&rows, fleet, !r.draining, now < r.olderUntil)
		cells += c.Group.Live * (len(f.rows) - before) // none if it was deferred
	}
	if about == nil {
		r.freezeLates(f, s, now)
		r.freezeSettlements(f, s, fleet)
	} else if f.suspect = about; about.late {
		r.freezeLate(f, about.group, fleet)
		about.late = false
	}
	if len(f.hits) == 0 && len(f.message.Settlements) == 0 {
		s.spare = f
		return
	}
	r.sequence++
	f.sequence = r.sequence
	m := &f.message
	m.Epoch, m.Shard, m.Shards, m.Sequence = r.o.Epoch, number, uint32(len(r.shards)), f.sequence
	m.Made, f.known = fleet, s.state
	f.trace(r.o.Trace, number)
	f.encode()
	f.repeated = false
	f.born, f.wait, f.refusals, f.tries = now, r.patience(), 0, 0
	s.flight = f
	s.noteWait(now)
	r.counts.Sent++
	r.send(number, f, now)
}

// blank returns an empty report, in the shard's spare memory if there is some.
func (r *Reporter) blank(s *shard) *inFlightReport {
	f := s.spare
	s.spare = nil
	if f == nil {
		f = &inFlightReport{}
		f.message.Hits = new(events.Table)
	}
	r.build++
	f.message.Hits.Clear()
	f.message.Late = f.message.Late[:0]
	f.message.Format = 0
	clear(f.message.Settlements)
	f.message.Settlements = f.message.Settlements[:0]
	clear(f.settlements)
	f.settlements = f.settlements[:0]
	f.rows, f.hits, f.text, f.suspect = f.rows[:0], f.hits[:0], 0, nil
	return f
}

// ruleIndex returns the index of the group's rule in the report, for a kind of hits, and adds the
// rule if it is not there.
func (r *Reporter) ruleIndex(f *inFlightReport, g *counter.Group, fleet int64, kind int) int {
	if g.Reports.Build != r.build {
		g.Reports.Build, g.Reports.Index = r.build, [counter.Kinds]int{-1, -1, -1}
	}
	index := &g.Reports.Index[kind]
	if *index < 0 {
		*index = len(f.hits)
		f.hits = append(f.hits, ownHits{group: g})
		rule := g.Wire(fleet)
		rule.Kind, rule.Denied = events.RowKind(kind), kind == counter.DeniedHits
		if kind == counter.RefundedHits {
			f.message.Format = events.FormatRefunds
		}
		f.message.Hits.Rules = append(f.message.Hits.Rules, rule)
		f.text += len(rule.Name) + ruleText
	}
	return *index
}

// freezeLates moves late hits that belong to this shard into the report, as many as fit, except
// those of suspect rules.
func (r *Reporter) freezeLates(f *inFlightReport, s *shard, now int64) {
	for end := f.text + lateText; s.late.Len() > 0 && f.text < end; {
		g := s.late.Pop()
		if apart := s.suspect(g, now); apart != nil {
			apart.late = true
			continue
		}
		r.freezeLate(f, g, r.host.Clock.Fleet(now))
	}
}

// freezeLate moves a group's late hits into the report.
func (r *Reporter) freezeLate(f *inFlightReport, g *counter.Group, fleet int64) {
	n := min(g.Late.Load(), events.MaxCount)
	if g.Late.Add(-n) > 0 { // more than one report may contain
		r.host.Lates.Add(g)
	}
	g.Reports.QueuedLate = false
	i := r.ruleIndex(f, g, fleet, counter.AdmittedHits)
	for len(f.message.Late) <= i {
		f.message.Late = append(f.message.Late, 0)
	}
	f.message.Late[i] = events.Count(n)
	f.hits[i].hits += n
	g.Reports.InFlight += n
}

// encode encodes the message.
func (f *inFlightReport) encode() {
	var err error
	if f.report, err = events.Append(f.report[:0], &f.message); err != nil {
		panic("check: " + err.Error()) // unreachable: the message has no field that can fail
	}
}

// rowSink adds rows to a report.
type rowSink struct {
	*Reporter
	*inFlightReport
	fleet int64
}

// AddRow adds a key to the report.
func (s *rowSink) AddRow(c *counter.Counter, kind int) {
	rule := s.ruleIndex(s.inFlightReport, c.Group, s.fleet, kind)
	to := s.message.Hits.Rules[rule]
	to.Settles = c.Group.Settles.Load() // it may have been set after the rule was added
	s.message.Hits.AddKey(uint32(rule), c.Key())
	s.text += len(c.Key()) + rowText
	s.rows = append(s.rows, row{c, to.Newest, rule, kind})
}

// AddHits adds hits to the last row. Only admitted hits are counted as in flight.
func (s *rowSink) AddHits(bucket, hits int64) {
	r := &s.rows[len(s.rows)-1]
	s.message.Hits.AddCell(r.newest-bucket, events.Count(hits))
	if r.kind == counter.AdmittedHits {
		s.hits[r.rule].hits += hits
		r.counter.Group.Reports.InFlight += hits
	}
}

// freezeSettlements moves the shard's oldest settlements into the report, as many as fit.
// Settlements that are too old for any aggregator are given up.
func (r *Reporter) freezeSettlements(f *inFlightReport, s *shard, fleet int64) {
	m := &f.message
	for size := 0; s.settlements.Len() > 0 && len(m.Settlements) < events.MaxSettlements &&
		size < settlementText; {
		one := s.settlements.Pop()
		if one.IsTooOld(fleet) {
			r.o.Settling.GiveUp(1)
			continue
		}
		size += one.Size()
		f.settlements = append(f.settlements, one)
		m.Settlements = append(m.Settlements, one.Settlement)
	}
}
