package check

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/window"
)

// behind is everything off the critical path: the queues of cells to report, the reports in flight,
// the cells that may leave. One lock holds it all together; no check ever takes it.
type behind struct {
	checker *Checker
	anyLate atomic.Bool // some limiter has late hits to report

	mu        sync.Mutex
	shards    []shard // none until the first welcome
	homeless  []*cell // dirty cells while the shards are not known
	ageing    ageingCells
	build     uint64 // numbers the reports built, to give rules their index
	sequence  uint64 // of the last report, of whichever shard; it never starts again
	states    uint8  // counts the generations that shards have entered
	now       int64  // own time of the last step or message
	other     int    // a number of shards that differs, and was heard once
	nextFlush int64
	lastFlush int64
	nextHello int64
	heard     int64 // own time of the last word from an aggregator
	draining  bool
	problem   string // why the last report was refused, until one is answered
	stats     behindStats
	leases    leases
	formers   formers
	installs  uint64 // how many programs there have been
	swept     uint64 // the last one after which the weak pointers were looked through
}

// shard is one shard's queue and report.
type shard struct {
	queue queue[*cell]
	late  []*Limiter // with late hits to report here
	// settlements to report here.
	settlements queue[*events.Settlement]
	taken       uint64 // cells ever taken off the queue
	generation  uint64
	version     uint64
	state       uint8 // stands for the generation; cells compare it with theirs
	flight      *flight
	missed      bool    // a round came while it was not answered
	spare       *flight // the last one, for its memory
}

// flight is a report that has been sent and not been answered. It does not change.
type flight struct {
	report   []byte
	sequence uint64
	rows     []row     // in the order of the report's keys
	hits     []ownHits // per limiter
	born     int64     // own time
	retryAt  int64
	wait     time.Duration
	refusals int
	repeated bool
	after    uint64 // the shard's taken, before this report
	message  events.Report
}

// row is one key of a report. The denied and refunded hits of a cell are rows of their own, before that of the admitted
// ones.
type row struct {
	cell   *cell
	newest int64 // the bucket that ages count from
	kind   int
}

// ownHits are the hits of one limiter in a report.
type ownHits struct {
	limiter *Limiter
	hits    int64
}

// owed is what behind keeps of a limiter, under its lock.
type owed struct {
	build          uint64      // the report that the indices belong to
	index          [kinds]int  // of the rule in that report, by kind of hits; -1 if it is not there
	queuedLate     bool        // in its shard's list of late limiters
	waiting        queue[aged] // quiet cells, and when their hits have waited long enough
	answered, lost int64       // hits
	inFlight       int64
	told           RuleStats // what has been put down as past
}

const (
	// reportText and reportCells bound a report and its answer, far below what NATS carries (1 MiB):
	// the bytes of its keys, and the buckets that may have to be told of them. The latter also keeps
	// one report from holding up Redis: at 60 buckets it takes 15 µs per key.
	reportText  = 256 << 10
	reportCells = 16_000
	// mostWaits bounds the back-off of repeats, in report timeouts.
	mostWaits = 8
)

// Step does everything that is due at own time now, in Unix nanoseconds: heartbeat, flush, repeats,
// and letting idle cells go. Run calls it; whoever brings a clock of their own calls it instead of
// Run. It returns the time of the next call, which may come sooner, and should if Wake says so.
func (c *Checker) Step(now int64) (next int64) { return c.behind.step(now, false) }

func (b *behind) step(now int64, drain bool) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now = now
	b.checker.clock.slew(now)
	b.judgeFreshness(now)
	if b.checker.o.Link != nil && now >= b.nextHello {
		b.hello(now, false)
	}
	b.early(now)
	if b.crowded() { // there is little room for new keys: report at once, so that some can leave
		b.nextFlush = min(b.nextFlush, b.lastFlush+int64(b.checker.o.FlushFloor))
	}
	if now >= b.nextFlush || drain {
		b.flush(now)
	}
	b.repeat(now)
	return min(b.nextFlush, b.nextHelloOrNever(), b.stepLeases(now))
}

func (b *behind) nextHelloOrNever() int64 {
	if b.checker.o.Link == nil {
		return b.nextFlush
	}
	return b.nextHello
}

// hurry brings the next flush forward to the next tick, and says so to Run.
func (b *behind) hurry() {
	if !b.onTimerOnly() {
		b.flushBy(b.now, b.tick())
		b.checker.wakeUp()
	}
}

// Wake is sent to when the next Step should come sooner than the last one said: a check or a message
// wants an early flush. It is for those who call Step themselves; Run reads it too. Options.FlushFloor
// holds however soon they call.
func (c *Checker) Wake() <-chan struct{} { return c.wake }

// wakeUp lets Run take a step soon. It does not wait.
func (c *Checker) wakeUp() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// flush moves what is dirty into reports.
func (b *behind) flush(now int64) {
	b.lastFlush, b.nextFlush = now, now+int64(b.checker.o.FlushEvery)
	if tick := b.tick(); tick >= int64(b.checker.o.FlushEvery) { // these are the rounds then
		b.nextFlush = now + tick
		b.flushBy(now, tick)
	}
	inRound := b.checker.rounds.wanted.Swap(0) != 0
	fleet := b.checker.clock.fleet(now)
	b.takeStrays()
	b.endWaits(fleet)
	b.collect()
	b.collectLate()
	b.collectSettlements()
	if b.checker.o.Link == nil {
		b.settleLocally(fleet)
	}
	for i := range b.shards {
		s := &b.shards[i]
		if s.flight == nil {
			b.report(uint32(i), s, now)
		} else {
			s.missed = s.missed || inRound
		}
	}
	b.letGo(fleet)
	b.letLimitersGo(fleet)
}

// collect takes every dirty cell off the stacks and puts it into its shard's queue.
func (b *behind) collect() {
	for i := range b.checker.dirty {
		for c := b.checker.dirty[i].takeAll(); c != nil; {
			next := c.next
			c.next = nil
			b.enqueue(c)
			c = next
		}
	}
}

func (b *behind) enqueue(c *cell) {
	if len(b.shards) == 0 {
		b.homeless = append(b.homeless, c)
		return
	}
	i := events.Shard(c.limiter.name, c.key(), uint32(len(b.shards)))
	b.shards[i].queue.push(c)
}

// collectLate notes which limiters have late hits to report, each in its own shard.
func (b *behind) collectLate() {
	if len(b.shards) == 0 || !b.anyLate.Swap(false) {
		return
	}
	for l := range b.limiters() {
		if l.late.Load() == 0 || l.owed.queuedLate {
			continue
		}
		l.owed.queuedLate = true
		s := &b.shards[events.Shard(l.name, "", uint32(len(b.shards)))]
		s.late = append(s.late, l)
	}
}

// settleLocally is the flush of a checker without a link: nothing is ever reported.
func (b *behind) settleLocally(fleet int64) {
	for _, c := range b.homeless {
		c.mu.Lock()
		c.settle(fleet)
		c.rotate(fleet)
		clear(c.pending())
		c.state &^= queued
		c.touch(fleet)
		b.addAgeing(c, fleet)
		c.mu.Unlock()
	}
	clear(b.homeless)
	b.homeless = b.homeless[:0]
	for l := range b.limiters() {
		l.late.Store(0)
	}
}

// report freezes the shard's oldest dirty cells, as many as fit, into a report and sends it. The
// shard has no report in flight.
func (b *behind) report(number uint32, s *shard, now int64) {
	f := b.blank(s)
	s.missed = false
	fleet := b.checker.clock.fleet(now)
	table := f.message.Hits
	f.after = s.taken
	for cells := 0; s.queue.len() > 0 && len(f.rows) < b.checker.o.ReportKeys &&
		len(table.KeyText) < reportText && cells < reportCells; s.taken++ {
		c, before := s.queue.pop(), len(f.rows)
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
	m.Generation, m.Version, m.Made = s.generation, s.version, fleet
	var err error
	if f.report, err = events.Append(f.report[:0], m); err != nil {
		panic("check: " + err.Error()) // unreachable: the message has no field that can fail
	}
	f.repeated = false
	f.born, f.wait, f.refusals = now, b.checker.rounds.patience(b.checker.o.ReportTimeout), 0
	s.flight = f
	b.stats.sent++
	b.send(number, f, now)
}

// blank returns an empty flight, from the shard's spare memory if there is some.
func (b *behind) blank(s *shard) *flight {
	f := s.spare
	s.spare = nil
	if f == nil {
		f = &flight{}
		f.message.Hits = new(events.Table)
	}
	b.build++
	f.message.Hits.Clear()
	f.message.Late = f.message.Late[:0]
	clear(f.message.Settlements)
	f.message.Settlements = f.message.Settlements[:0]
	f.rows, f.hits = f.rows[:0], f.hits[:0]
	return f
}

// freeze moves one cell's pending hits into the report.
func (b *behind) freeze(f *flight, c *cell, fleet int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settle(fleet)
	c.rotate(fleet)
	c.state &^= queued
	if b.mayWait(c, fleet) {
		return
	}
	asks := c.asksForRefunds()
	if !b.freezeDenied(f, c, fleet) && !c.hasPending() && !asks {
		b.addAgeing(c, fleet)
		return
	}
	l := c.limiter
	if asks || l.refunds.Load() {
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
			if c.ahead() != nil {
				c.ahead().inFlight[i] = n
			}
		}
	}
	c.state |= inFlight
	c.touch(fleet)
}

// freezeDenied moves the denied hits of a cell near its limit into the report, and asks for everybody's.
// It returns whether there was anything to be told or asked.
func (b *behind) freezeDenied(f *flight, c *cell, fleet int64) bool {
	a := c.ahead()
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
func (b *behind) addRow(f *flight, c *cell, fleet int64, kind int) (rule int, newest int64) {
	rule = b.ruleIndex(f, c.limiter, fleet, kind)
	newest = f.message.Hits.Rules[rule].Newest
	f.message.Hits.AddKey(uint32(rule), c.key())
	f.rows = append(f.rows, row{c, newest, kind})
	return rule, newest
}

// ruleIndex returns the index of the limiter's rule in the report, adding it if need be.
func (b *behind) ruleIndex(f *flight, l *Limiter, fleet int64, kind int) int {
	if l.owed.build != b.build {
		l.owed.build, l.owed.index = b.build, [kinds]int{-1, -1, -1}
	}
	index := &l.owed.index[kind]
	if *index < 0 {
		*index = len(f.hits)
		f.hits = append(f.hits, ownHits{limiter: l})
		rule := l.wire(fleet)
		rule.Denied, rule.Refunded = kind == ofDenied, kind == ofRefunded
		f.message.Hits.Rules = append(f.message.Hits.Rules, rule)
	}
	return *index
}

// freezeLate moves the late hits that are to be reported to this shard into the report.
func (b *behind) freezeLate(f *flight, s *shard, fleet int64) {
	for _, l := range s.late {
		n := min(l.late.Load(), events.MaxCount)
		if l.late.Add(-n) > 0 { // more than one report may say
			b.anyLate.Store(true)
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
	s.late = s.late[:0]
}

// wire is what a message says of this limiter's rule.
func (l *Limiter) wire(fleet int64) *events.Rule {
	t := l.terms.Load()
	return &events.Rule{
		Name:      l.name,
		Revision:  t.revision,
		WindowMs:  uint64(l.shape.Length.Milliseconds()),
		Buckets:   uint32(l.shape.Buckets),
		Algorithm: l.algorithm(),
		Limit:     events.Count(t.wire),
		Burst:     events.Count(t.rule.Burst),
		Newest:    l.shape.Bucket(fleet),
	}
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
func (b *behind) send(number uint32, f *flight, now int64) {
	f.retryAt = now + int64(f.wait)
	f.wait = min(2*f.wait, mostWaits*b.checker.o.ReportTimeout)
	if err := b.checker.o.Link.Report(number, f.report); err != nil {
		b.problem = err.Error()
		b.stats.unsent++
	}
}

// repeat sends again what has waited too long for its answer, and gives up what is too old.
func (b *behind) repeat(now int64) {
	for i := range b.shards {
		s := &b.shards[i]
		switch f := s.flight; {
		case f == nil || now < f.retryAt:
		case now-f.born > int64(events.MaxReportAge):
			b.giveUp(s, f, b.checker.clock.fleet(now))
		default:
			b.stats.repeated++
			f.repeated = true
			b.send(uint32(i), f, now)
		}
	}
}

// giveUp ends a flight whose answer will not come or not count: its hits are put down as lost.
func (b *behind) giveUp(s *shard, f *flight, fleet int64) {
	b.stats.givenUp++
	b.landSettlements(f, false)
	for _, r := range f.rows {
		r.cell.mu.Lock()
		b.landed(r.cell, fleet)
		r.cell.mu.Unlock()
	}
	b.land(s, f, func(o *owed, hits int64) { o.lost += hits })
}

// landed notes that a cell's report has ended; the cell may leave unless it has new hits. Its lock
// is held.
func (b *behind) landed(c *cell, fleet int64) {
	c.state &^= inFlight
	if c.ahead() != nil {
		clear(c.ahead().inFlight)
	}
	if !c.is(queued) {
		b.addAgeing(c, fleet)
	}
}

// land ends a flight, and puts its hits down as answered or lost.
func (b *behind) land(s *shard, f *flight, putDown func(o *owed, hits int64)) {
	for _, h := range f.hits {
		h.limiter.owed.inFlight -= h.hits
		putDown(&h.limiter.owed, h.hits)
	}
	clear(f.rows) // their cells may leave, and should not be kept by a report that is over
	clear(f.hits)
	s.flight, s.spare = nil, f
}
