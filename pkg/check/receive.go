package check

import (
	"fmt"
	"time"
	"unsafe"

	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/window"
)

// Receive takes in a message for this checker: the answer to a report or to a hello, or an alarm.
// It counts and ignores what it cannot read. Run calls it for everything that the Link hears. It
// does not keep payload.
func (c *Checker) Receive(kind events.Kind, payload []byte) {
	now := c.ownTime()
	b := &c.reporter
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now = max(b.now, now)
	if err := b.receive(now, kind, payload); err != nil {
		b.stats.unreadable++
		b.problem = err.Error()
	}
}

func (b *reporter) receive(now int64, kind events.Kind, payload []byte) error {
	switch kind {
	case events.KindRefresh:
		m, err := events.DecodeRefresh(payload)
		if err != nil {
			return err
		}
		return b.refresh(m, now)
	case events.KindAlarm:
		m, err := events.DecodeAlarm(payload)
		if err != nil {
			return err
		}
		b.alarm(m, now)
		return nil
	case events.KindWelcome:
		m, err := events.DecodeWelcome(payload)
		if err != nil {
			return err
		}
		b.welcome(m, now)
		return nil
	case events.KindUnheard:
		b.unheard(now)
		return nil
	case events.KindGrant:
		m, err := events.DecodeGrant(payload)
		if err != nil {
			return err
		}
		return b.granted(m, now)
	}
	return fmt.Errorf("receive: not a message for a checker: %v", kind)
}

// noteContact notes that an aggregator is there.
func (b *reporter) noteContact(now int64) {
	b.lastContact = now
	b.judgeFreshness(now)
}

// unheard takes in that something that was sent to one aggregator has not reached it: any will do
// now. It is not known what it was, so all is sent again that may be; where any was asked before
// there is none, and what is sent waits for its time. If something is on its way to any, it is
// taken to be that: a shard that nobody attends to says nothing of others.
func (b *reporter) unheard(now int64) {
	for i := range b.shards {
		if f := b.shards[i].flight; f != nil && f.toAny {
			f.toAny = false
			return
		}
		if f := b.leases.lines[i].flight; f != nil && f.toAny {
			f.toAny = false
			return
		}
	}
	for i := range b.shards {
		s := &b.shards[i]
		if s.aggregator == 0 {
			if s.flight != nil && s.flight.message.Format > events.FormatPlain { // none knows it
				b.toOlder(s.flight, now)
				s.flight.retryAt = now
			}
			continue
		}
		s.aggregator = 0
		if s.flight != nil {
			s.flight.retryAt = now
		}
		if x := &b.leases.lines[i]; x.flight != nil {
			x.flight.retryAt = now
		}
	}
	b.checker.wakeUp()
}

// refresh takes in the answer to the report in flight. Answers to anything else are late or
// repeated and tell nothing new.
func (b *reporter) refresh(m *events.Refresh, now int64) error {
	if m.Epoch != b.checker.o.Epoch || int64(m.Shard) >= int64(len(b.shards)) {
		return fmt.Errorf("refresh: for epoch %x, shard %d of %d", m.Epoch, m.Shard, len(b.shards))
	}
	b.noteContact(now)
	s := &b.shards[m.Shard]
	f := s.flight
	if f == nil || f.sequence != m.Sequence {
		b.stats.ignored++
		return nil
	}
	if m.Error != "" {
		return b.refused(s, f, m.Error, now)
	}
	if len(m.KeyCells) != len(f.rows) {
		return fmt.Errorf("refresh: totals of %d keys for %d", len(m.KeyCells), len(f.rows))
	}
	s.aggregator = m.Aggregator
	f.tell(TraceAnswered)
	if f.repeated {
		b.checker.rounds.repeated(now - f.born)
	} else {
		b.checker.rounds.answered(now - f.born)
	}
	b.mergeRefresh(s, f, m, b.checker.clock.Fleet(now))
	b.hint(f, m.Refunding)
	b.landSettlements(f, m.Settlements > 0, m.Uncovered, b.checker.clock.Fleet(now))
	b.land(s, f, func(o *reportState, hits int64) { o.answered += hits })
	f.tell(TraceMerged)
	b.stats.answered++
	b.problem = ""
	switch {
	case s.queue.Len() == 0 && s.settlements.Len() == 0 && s.late.Len() == 0:
	case s.missed && s.queue.Len() < b.checker.o.Tuning.ReportKeys: // the round has to be made up for in one
		b.hurry()
	default: // these have waited for their turn since the last flush
		b.report(m.Shard, s, now)
	}
	return nil
}

// A report that is refused is given up when it has been refused so often, and for so long.
// Meanwhile it is sent again as often as one whose answer is overdue: in a fleet that is being
// upgraded another aggregator may know what this one does not.
const (
	mostRefusals = 3
	refusedFor   = 10 * time.Second
)

// refused takes in that an aggregator will not count a report. The number of shards may have
// changed, so it asks for that first; but a report that nobody takes must not keep others from
// being sent.
func (b *reporter) refused(s *shard, f *inFlightReport, reason string, now int64) error {
	if f.refusals == 0 {
		f.refused = now
	}
	f.refusals++
	s.aggregator = 0
	f.tell(TraceRefused)
	b.nextHello = now
	f.wait = b.checker.o.Tuning.ReportTimeout
	f.retryAt = now + int64(f.wait)
	if f.refusals >= mostRefusals && now-f.refused >= int64(refusedFor) {
		b.checker.settling.GiveUp(len(f.settlements)) // they may be why
		f.settlements = f.settlements[:0]
		b.giveUp(s, f, b.checker.clock.Fleet(now))
	}
	return fmt.Errorf("refresh: report refused: %s", reason)
}

func (b *reporter) mergeRefresh(s *shard, f *inFlightReport, m *events.Refresh, fleet int64) {
	current := b.follow(s, m.Generation, f.generation)
	age, value, overflow := m.Age, m.Total, m.Overflow
	var others [kinds]totals
	for i, r := range f.rows {
		n := m.KeyCells[i]
		news := totals{newest: r.newest, age: age[:n], value: value[:n]}
		if len(m.Level) > 0 {
			news.level = window.Level{Bucket: r.newest - m.LevelAge[i], Parts: int64(m.Level[i])}
		}
		age, value = age[n:], value[n:]
		overflows := len(overflow) > 0 && int(overflow[0]) == i
		if overflows {
			overflow = overflow[1:]
		}
		if r.kind != ofAdmitted { // the row of the admitted ones follows
			others[r.kind] = news
			continue
		}
		r.cell.mu.Lock()
		b.landed(r.cell, fleet)
		switch {
		case current && overflows: // there is nothing to hear
			r.cell.noteOverflow(f.message.Made, fleet)
		case current:
			b.observeTotals(r.cell, s, update{fleet, f.message.Made, news, others[ofDenied], others[ofRefunded]})
		}
		r.cell.mu.Unlock()
		others = [kinds]totals{}
	}
}

// noteOverflow takes in that the store has no room for the key, as it answered a report that was
// made then. If another slice of time has begun since, there may be room again. The lock is held.
func (c *counter) noteOverflow(made, fleet int64) {
	c.withdraw(fleet)
	c.rotate(fleet)
	l := c.limiter
	c.overflow = l.slice(l.shape.Bucket(made)) == l.slice(c.newest)
	c.state |= informed
}

// observeTotals takes in a key's totals. The counter's lock is held, and nothing of it is in flight,
// or else what is has just been answered.
func (b *reporter) observeTotals(c *counter, s *shard, w update) {
	c.withdraw(w.fleet)
	c.rotate(w.fleet)
	c.enter(s)
	b.merge(c, w)
}

// merge takes in a key's totals, for its counts and its forecast. The counter's lock is held, and
// it is current.
func (b *reporter) merge(c *counter, w update) {
	news := w.mergeInto(c)
	c.overflow = c.overflow && len(w.admitted.age) == 0
	c.observeOthers(w.fleet, news)
	c.observeRefunds(w)
	if len(w.admitted.age) == 0 && len(w.refunded.age) > 0 {
		return // it says nothing of hits
	}
	if !c.is(informed) && c.levelState() != nil && c.hidesRefunds(w) { // its level may be too high by them
		c.askForRefunds()
	}
	c.state |= informed
	t := c.limiter.limits.Load()
	room, at := c.room(t, w.fleet)
	if c.ensureForecast(t, at, room) != nil {
		b.ageForecast(c, w.fleet)
		c.observeForecast(b, t, at, w, news)
	}
}

// follow takes in the generation of a shard that a message speaks of. It returns false if a later
// one is known: the message's totals are of a store that has since lost data. But if the message
// answers what was sent when that later one was known already, the store itself has gone back, and
// no aggregator remembers: then its totals count from now on. Of what answers nothing, known is 0.
func (b *reporter) follow(s *shard, generation, known uint64) bool {
	switch {
	case generation == s.generation:
		return true
	case generation < s.generation && known < s.generation:
		return false
	case s.generation != 0:
		b.enterState(s)
	}
	s.generation = generation
	return true
}

// enterState lets the bases of the shard's counters count no longer.
func (b *reporter) enterState(s *shard) {
	b.states++
	s.state = b.states
}

// enter brings a counter into the shard's generation: the base of an older one no longer counts.
// The counter's lock is held, it is withdrawn, and nothing of it is in flight, or else what is has
// just been answered in that generation.
func (c *counter) enter(s *shard) {
	if c.generation != s.state {
		c.forgetBase()
		c.generation = s.state
	}
}

// alarm takes in totals of keys that are near their limit. Keys that this checker has never seen
// are remembered too, so that a caller who is over the limit elsewhere finds no room here.
func (b *reporter) alarm(m *events.Alarm, now int64) {
	if int64(m.Shard) >= int64(len(b.shards)) {
		return
	}
	b.noteContact(now)
	b.stats.alarms++
	s := &b.shards[m.Shard]
	if !b.follow(s, m.Generation, 0) {
		return
	}
	fleet := b.checker.clock.Fleet(now)
	limiters := b.resolve(m.Totals.Rules)
	others, eager := [kinds]map[asked]totals{ofDenied: {}, ofRefunded: {}}, false
	for kind := ofDenied; kind < kinds; kind++ {
		eachKey(m.Totals, kind, func(rule uint32, key []byte, news totals) {
			others[kind][asked{limiters[rule], string(key)}] = news
		})
	}
	eachKey(m.Totals, ofAdmitted, func(rule uint32, key []byte, news totals) {
		if l := limiters[rule]; l != nil {
			id := asked{l, string(key)}
			eager = l.alarm(s, key, update{fleet, m.Made, news, others[ofDenied][id], others[ofRefunded][id]}) || eager
			delete(others[ofRefunded], id)
		}
	})
	eachKey(m.Totals, ofRefunded, func(rule uint32, key []byte, news totals) {
		l := limiters[rule]
		if _, left := others[ofRefunded][asked{l, string(key)}]; left && l != nil { // the admitted ones are in another message
			eager = l.alarm(s, key, update{fleet: fleet, made: m.Made, refunded: news}) || eager
		}
	})
	if eager {
		b.hurry()
	}
}

// asked is a key under a limiter.
type asked struct {
	limiter *Limiter
	key     string
}

// update is what an answer or an alarm says of a key.
type update struct {
	fleet, made int64 // when it came, and when the newest report that it tells of was made
	admitted    totals
	denied      totals // empty if it says nothing of them
	refunded    totals // the same
}

// kindOf is of which kind a message's hits of a rule are; it may be one that this build does not
// know.
func kindOf(r *events.Rule) int { return int(r.Kind) }

// eachKey calls f for each key of a table that is of hits of a kind.
func eachKey(t *events.Table, kind int, f func(rule uint32, key []byte, news totals)) {
	text, age, value := t.KeyText, t.Age, t.Value
	for i, n := range t.KeyLength {
		rule, cells := t.KeyRule[i], t.KeyCells[i]
		if kindOf(t.Rules[rule]) == kind {
			news := totals{newest: t.Rules[rule].Newest, age: age[:cells], value: value[:cells]}
			if len(t.Level) > 0 {
				news.level = window.Level{Bucket: news.newest - t.LevelAge[i], Parts: int64(t.Level[i])}
			}
			f(rule, text[:n], news)
		}
		text, age, value = text[n:], age[cells:], value[cells:]
	}
}

// totals are one key's totals in a message.
type totals struct {
	newest int64
	age    []int64
	value  []uint64
	level  window.Level // of what drains, before all of them
}

// mergeInto raises a counter's totals, and returns by how much.
func (w update) mergeInto(c *counter) (news int64) {
	c.observeLevel(w)
	t := w.admitted
	for i, age := range t.age {
		news += c.merge(t.newest-age, int64(t.value[i]))
	}
	return news
}

// resolve finds the limiters of a message's rules; nil for one that this checker does not have, or
// has with another window or algorithm, which makes it another counter.
func (b *reporter) resolve(rules []*events.Rule) []*Limiter {
	p, found := b.checker.ruleset.Load(), make([]*Limiter, len(rules))
	for i, r := range rules {
		l := p.byName[r.Name]
		if l == nil {
			l = b.checker.inline.find(r.Name)
		}
		if l != nil && l.counts(r) {
			found[i] = l
		}
	}
	return found
}

// counts says whether this limiter's counters are those of a rule of a message.
func (l *Limiter) counts(r *events.Rule) bool {
	return l.name == r.Name && uint64(l.shape.Length.Milliseconds()) == r.WindowMs &&
		l.shape.Buckets == int(r.Buckets) && l.algorithm() == r.Algorithm
}

// alarm takes in an alarm for one key. It returns true if this checker holds pending hits of it,
// which the fleet should hear of soon.
func (l *Limiter) alarm(s *shard, key []byte, w update) (eager bool) {
	c, fleet := l.holds(key), w.fleet
	if c == nil {
		if l.strict != nil { // counts decide nothing there
			return false
		}
		if c = l.noteUnknown(s, string(key), w); c == nil {
			return false
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.is(dead) {
		return false
	}
	c.withdraw(fleet)
	c.rotate(fleet)
	// The report in flight may or may not be in these totals. They are a floor, and as long as it
	// is in flight the old generation's base is the only place where its hits are counted.
	if !c.is(inFlight) {
		c.enter(s)
	}
	waits := c.is(deferred)
	c.endDeferral()
	l.checker.reporter.merge(c, w)
	// A key that had a forecast before is reported in the rounds that it needs.
	return c.hasPending() && (waits || c.keyForecast() == nil)
}

// holds returns the live counter of a key, or nil.
func (l *Limiter) holds(key []byte) *counter {
	return l.checker.table.load(l, unsafe.String(unsafe.SliceData(key), len(key)))
}

// noteUnknown remembers an alarm for a key without a live counter. It gets one, which is returned,
// if it is blocked or there is plenty of room; otherwise it goes to the idle cache.
func (l *Limiter) noteUnknown(s *shard, key string, w update) *counter {
	fleet := w.fleet
	c := newCell(l, key, fleet)
	if old := l.recall(key); old != nil {
		c.learn(old)
	}
	c.rotate(fleet)
	c.enter(s)
	w.mergeInto(c)
	c.observeRefunds(w)
	if room, _ := c.room(l.limits.Load(), fleet); room < 1 || !l.checker.reporter.crowded() {
		if live := l.make(fleet, key); live != nil {
			return live
		}
	}
	c.state = dead
	l.remember(c)
	return nil
}
