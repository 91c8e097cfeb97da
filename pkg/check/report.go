package check

import (
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/settlement"
	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/window"
)

// How a report is made of the counters that have something to tell, sent, repeated until it is
// answered, and given up when it is too old.

const (
	// reportText, lateText, settlementText and reportCells bound a report and its answer, far below
	// what NATS carries (1 MiB), and each by itself, so that none keeps the others out: the bytes
	// of its keys and of their rules, of rules with late hits alone, of settlements, and the
	// buckets that may have to be told of its keys. The latter also keeps one report from holding
	// up Redis: at 60 buckets it takes 15 µs per key.
	reportText     = 256 << 10
	lateText       = 128 << 10
	settlementText = 256 << 10
	reportCells    = 16_000
	// rowText and ruleText are what a row and a rule of a report take at most beside the key and
	// the name.
	rowText, ruleText = 10, 80
	// mostWaits bounds the back-off of repeats, in report timeouts.
	mostWaits = 8
	// soonTries are how often a report is sent before there is any back-off: it may have gone to an
	// aggregator that is no more, and the next time goes to any.
	soonTries = 4
)

// inFlightReport is a report that has been sent and not been answered. It does not change.
type inFlightReport struct {
	report   []byte
	sequence uint64
	// generation is the shard's that was known when the report was made.
	generation uint64
	text       int       // bytes of keys and rules, with some to spare
	rows       []row     // in the order of the report's keys
	hits       []ownHits // per limiter
	born       int64     // own time
	retryAt    int64
	wait       time.Duration
	tries      int
	refusals   int
	refused    int64 // own time of the first refusal
	repeated   bool
	toAny      bool   // not to one aggregator, the last time, and nobody is known to be missing
	after      uint64 // the shard's taken, before this report
	message    events.Report
	// settlements are those of the message.
	settlements []settlement.Settlement
	follow      func(TraceEvent) // nil: it is not traced
}

// row is one key of a report. The denied and refunded hits of a counter are rows of their own,
// before that of the admitted ones.
type row struct {
	cell   *counter
	newest int64 // the bucket that ages count from
	kind   int
}

// ownHits are the hits of one limiter in a report.
type ownHits struct {
	limiter *Limiter
	hits    int64
}

// report freezes the shard's oldest dirty counters, as many as fit, into a report and sends it. The
// shard has no report in flight.
func (b *reporter) report(number uint32, s *shard, now int64) {
	f := b.blank(s)
	s.missed = false
	fleet := b.checker.clock.Fleet(now)
	f.after = s.taken
	for cells := 0; s.queue.Len() > 0 && len(f.rows) < b.checker.o.Tuning.ReportKeys &&
		f.text < reportText && cells < reportCells; s.taken++ {
		c, before := s.queue.Pop(), len(f.rows)
		b.freeze(f, c, fleet)
		cells += c.limiter.live * (len(f.rows) - before) // none if it may wait
	}
	b.freezeLate(f, s, fleet)
	b.freezeSettlements(f, s, fleet)
	if len(f.hits) == 0 && len(f.message.Settlements) == 0 {
		s.spare = f
		return
	}
	b.sequence++
	f.sequence = b.sequence
	m := &f.message
	m.Epoch, m.Shard, m.Shards, m.Sequence = b.checker.o.Epoch, number, uint32(len(b.shards)), f.sequence
	m.Made, f.generation = fleet, s.generation
	f.trace(b.checker.o.Trace, number)
	f.encode()
	f.repeated = false
	f.born, f.wait, f.refusals, f.tries = now, b.checker.rounds.patience(b.checker.o.Tuning.ReportTimeout), 0, 0
	s.flight = f
	b.stats.sent++
	b.send(number, f, now)
}

// blank returns an empty flight, from the shard's spare memory if there is some.
func (b *reporter) blank(s *shard) *inFlightReport {
	f := s.spare
	s.spare = nil
	if f == nil {
		f = &inFlightReport{}
		f.message.Hits = new(events.Table)
	}
	b.build++
	f.message.Hits.Clear()
	f.message.Late = f.message.Late[:0]
	f.message.Format = 0
	clear(f.message.Settlements)
	f.message.Settlements = f.message.Settlements[:0]
	clear(f.settlements)
	f.settlements = f.settlements[:0]
	f.rows, f.hits, f.text = f.rows[:0], f.hits[:0], 0
	return f
}

// freeze moves one counter's pending hits into the report.
func (b *reporter) freeze(f *inFlightReport, c *counter, fleet int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.withdraw(fleet)
	c.rotate(fleet)
	c.state &^= queued
	if b.mayDefer(c, fleet) {
		return
	}
	older := fleet < b.olderUntil
	asks := !older && c.asksForRefunds()
	if !b.freezeDenied(f, c, fleet) && !c.hasPending() && !asks {
		b.addAgeing(c, fleet)
		return
	}
	l := c.limiter
	if !older && (asks || l.refunds.Load()) {
		b.addRow(f, c, fleet, ofRefunded)
	}
	rule, newest := b.addRow(f, c, fleet, ofAdmitted)
	pending := c.pending()
	for i, n := range pending {
		if n > 0 {
			f.message.Hits.AddCell(newest-(c.newest-int64(i)), events.Count(n))
			f.hits[rule].hits += n
			l.owed.inFlight += n
			pending[i] = 0
			if c.keyForecast() != nil {
				c.keyForecast().inFlight[i] = n
			}
		}
	}
	c.state |= inFlight
	c.touch(fleet)
}

// freezeDenied moves the denied hits of a counter near its limit into the report, and asks for
// everybody's. It returns whether there was anything to be told or asked.
func (b *reporter) freezeDenied(f *inFlightReport, c *counter, fleet int64) bool {
	a := c.keyForecast()
	if a == nil {
		return false
	}
	a.Reported(fleet, b.checker.rounds.fleet(b.checker))
	if a.denied == 0 && (!a.anyDenied || !c.hasPending()) {
		return false
	}
	_, newest := b.addRow(f, c, fleet, ofDenied)
	if a.denied > 0 {
		f.message.Hits.AddCell(newest-c.newest, events.Count(a.denied))
		a.denied = 0
	}
	return true
}

// addRow adds a key to the report.
func (b *reporter) addRow(f *inFlightReport, c *counter, fleet int64, kind int) (rule int, newest int64) {
	rule = b.ruleIndex(f, c.limiter, fleet, kind)
	newest = f.message.Hits.Rules[rule].Newest
	f.message.Hits.Rules[rule].Settles = c.limiter.settles.Load() // which may be newer than the row of an earlier counter
	f.message.Hits.AddKey(uint32(rule), c.key())
	f.text += len(c.key()) + rowText
	f.rows = append(f.rows, row{c, newest, kind})
	return rule, newest
}

// ruleIndex returns the index of the limiter's rule in the report, adding it if need be.
func (b *reporter) ruleIndex(f *inFlightReport, l *Limiter, fleet int64, kind int) int {
	if l.owed.build != b.build {
		l.owed.build, l.owed.index = b.build, [kinds]int{-1, -1, -1}
	}
	index := &l.owed.index[kind]
	if *index < 0 {
		*index = len(f.hits)
		f.hits = append(f.hits, ownHits{limiter: l})
		rule := l.wire(fleet)
		rule.Kind, rule.Denied = events.RowKind(kind), kind == ofDenied
		if kind == ofRefunded {
			f.message.Format = events.FormatRefunds
		}
		f.message.Hits.Rules = append(f.message.Hits.Rules, rule)
		f.text += len(rule.Name) + ruleText
	}
	return *index
}

// freezeLate moves the late hits that are to be reported to this shard into the report, as many as
// fit.
func (b *reporter) freezeLate(f *inFlightReport, s *shard, fleet int64) {
	for end := f.text + lateText; s.late.Len() > 0 && f.text < end; {
		l := s.late.Pop()
		n := min(l.late.Load(), events.MaxCount)
		if l.late.Add(-n) > 0 { // more than one report may say
			b.lates.add(l)
		}
		l.owed.queuedLate = false
		i := b.ruleIndex(f, l, fleet, ofAdmitted)
		for len(f.message.Late) <= i {
			f.message.Late = append(f.message.Late, 0)
		}
		f.message.Late[i] = events.Count(n)
		f.hits[i].hits += n
		l.owed.inFlight += n
	}
}

// wire is what a message says of this limiter's rule.
func (l *Limiter) wire(fleet int64) *events.Rule {
	t := l.limits.Load()
	return &events.Rule{
		Name:      l.name,
		Revision:  t.revision,
		WindowMs:  uint64(l.shape.Length.Milliseconds()),
		Buckets:   uint32(l.shape.Buckets),
		Algorithm: l.algorithm(),
		Limit:     events.Count(t.wire),
		Burst:     events.Count(t.rule.Burst),
		Newest:    l.shape.Bucket(fleet),
		Loose:     l.isLoose(t),
		Settles:   l.settles.Load(),
	}
}

// isLoose says whether more hits than the limit that others are told of may pass as the rule wants
// it.
func (l *Limiter) isLoose(t *limits) bool {
	return t.rule.Loose() || isInline(l.name)
}

func (l *Limiter) algorithm() events.Algorithm {
	switch l.shape.Kind {
	case window.Log:
		return events.Algorithm_SLIDING_LOG
	case window.Token:
		return events.Algorithm_TOKEN_BUCKET
	case window.Leaky:
		return events.Algorithm_LEAKY_BUCKET
	}
	if l.shape.Fixed {
		return events.Algorithm_FIXED_WINDOW
	}
	return events.Algorithm_SLIDING_WINDOW
}

// send puts a report on its way and notes when to do so again.
func (b *reporter) send(number uint32, f *inFlightReport, now int64) {
	f.retryAt = now + int64(f.wait)
	if f.tries++; f.tries > soonTries {
		f.wait = min(2*f.wait, mostWaits*b.checker.o.Tuning.ReportTimeout)
	}
	f.toAny = b.shards[number].aggregator == 0
	if err := b.checker.o.Link.Report(number, b.shards[number].aggregator, f.report); err != nil {
		b.problem = err.Error()
		b.stats.unsent++
	}
}

// repeat sends again what has waited too long for its answer, and gives up what is too old.
func (b *reporter) repeat(now int64) {
	for i := range b.shards {
		s := &b.shards[i]
		switch f := s.flight; {
		case f == nil || now < f.retryAt:
		case now-f.born > int64(events.MaxReportAge):
			s.gaveUp = now
			b.giveUp(s, f, b.checker.clock.Fleet(now))
		default:
			b.stats.repeated++
			f.repeated = true
			s.aggregator = 0
			f.tell(TraceRepeated)
			if f.tries >= newerTries {
				b.toOlder(f, now)
			}
			b.send(uint32(i), f, now)
		}
	}
}

const (
	// newerTries are how often a report of a newer format is sent before it is made one that older
	// aggregators know, and olderFor is how long others are then made so.
	newerTries = 2
	olderFor   = 10 * time.Second
)

// toOlder makes a report one for aggregators that do not know of refunds, since it seems that there
// are no others: without the rows that ask for these. They hold no hits, so it counts for the same,
// and may have been counted already.
func (b *reporter) toOlder(f *inFlightReport, now int64) {
	m := &f.message
	if m.Format <= events.FormatPlain {
		return
	}
	b.olderUntil = b.checker.clock.Fleet(now) + int64(olderFor)
	table := &events.Table{}
	rows, hits, late := f.rows[:0:0], f.hits[:0:0], m.Late[:0:0]
	index := make([]uint32, len(m.Hits.Rules))
	for i, rule := range m.Hits.Rules {
		if rule.Kind == events.RowKind_REFUNDED {
			continue
		}
		index[i] = uint32(len(table.Rules))
		table.Rules, hits = append(table.Rules, rule), append(hits, f.hits[i])
		if i < len(m.Late) {
			late = append(late, m.Late[i])
		}
	}
	text, age, value := m.Hits.KeyText, m.Hits.Age, m.Hits.Value
	for i, length := range m.Hits.KeyLength {
		rule, cells := m.Hits.KeyRule[i], m.Hits.KeyCells[i]
		if f.rows[i].kind != ofRefunded {
			table.AddKey(index[rule], string(text[:length]))
			for j := range cells {
				table.AddCell(age[j], value[j])
			}
			rows = append(rows, f.rows[i])
		}
		text, age, value = text[length:], age[cells:], value[cells:]
	}
	f.rows, f.hits, m.Late, m.Hits, m.Format = rows, hits, late, table, 0
	f.encode()
}

// encode makes the message's bytes.
func (f *inFlightReport) encode() {
	var err error
	if f.report, err = events.Append(f.report[:0], &f.message); err != nil {
		panic("check: " + err.Error()) // unreachable: the message has no field that can fail
	}
}

// giveUp ends a flight whose answer will not come or not count: its hits are put down as lost.
func (b *reporter) giveUp(s *shard, f *inFlightReport, fleet int64) {
	b.stats.givenUp++
	f.tell(TraceGivenUp)
	b.landSettlements(f, false, nil, fleet)
	for _, r := range f.rows {
		r.cell.mu.Lock()
		b.landed(r.cell, fleet)
		r.cell.mu.Unlock()
	}
	b.land(s, f, func(o *reportState, hits int64) { o.lost += hits })
}

// landed notes that a counter's report has ended; the counter may leave unless it has new hits. Its
// lock is held.
func (b *reporter) landed(c *counter, fleet int64) {
	c.state &^= inFlight
	if c.keyForecast() != nil {
		clear(c.keyForecast().inFlight)
	}
	if !c.is(queued) {
		b.addAgeing(c, fleet)
	}
}

// land ends a flight, and puts its hits down as answered or lost.
func (b *reporter) land(s *shard, f *inFlightReport, putDown func(o *reportState, hits int64)) {
	for _, h := range f.hits {
		h.limiter.owed.inFlight -= h.hits
		putDown(&h.limiter.owed, h.hits)
	}
	clear(f.rows) // their counters may leave, and should not be kept by a report that is over
	clear(f.hits)
	s.flight, s.spare = nil, f
}
