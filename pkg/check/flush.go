package check

import (
	"sync"
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/queue"
	"github.com/offpath-io/offpath/pkg/check/internal/settlement"
	"github.com/offpath-io/offpath/pkg/events"
)

// reporter is everything off the critical path: the queues of counters to report, the reports in
// flight, the counters that may leave. One lock holds it all together; no check ever takes it.
type reporter struct {
	checker *Checker
	lates   lates

	mu        sync.Mutex
	shards    []shard    // none until the first welcome
	unsharded []*counter // dirty counters while the shards are not known
	ageing    evictionQueues
	sweeps    uint   // how many queues, and counters without one, have been swept
	build     uint64 // numbers the reports built, to give rules their index
	sequence  uint64 // of the last report, of whichever shard; it never starts again
	// olderUntil is the fleet's time until which reports are made for aggregators that do not know
	// of refunds.
	olderUntil   int64
	states       uint8 // counts the generations that shards have entered
	now          int64 // own time of the last step or message
	other        int   // a number of shards that differs, and was heard once
	nextFlush    int64
	lastFlush    int64
	nextHello    int64
	lastContact  int64 // own time of the last word from an aggregator
	welcomes     uint64
	missedAlarms bool  // alarms may have been missed, which the next hello asks for
	asked        int64 // own time of the last hello that did
	draining     bool
	problem      string // why the last report was refused, until one is answered
	stats        reporterStats
	leases       leases
	waits        queue.Heap[*Limiter] // those with quiet counters, by when the first wait ends
	formers      retirees
	installs     uint64 // how many rulesets there have been
	swept        uint64 // the last one after which the weak pointers were looked through
}

// shard is one shard's queue and report.
type shard struct {
	queue queue.FIFO[*counter]
	late  queue.FIFO[*Limiter] // with late hits to report here
	// settlements to report here.
	settlements queue.FIFO[settlement.Settlement]
	taken       uint64 // counters ever taken off the queue
	generation  uint64
	state       uint8 // stands for the generation; counters compare it with theirs
	flight      *inFlightReport
	// aggregator is the ID of the one that has answered last, which is asked first; 0 for any.
	aggregator uint64
	missed     bool            // a round came while it was not answered
	gaveUp     int64           // own time at which a report had become too old; 0 if none has
	spare      *inFlightReport // the last one, for its memory
}

// reportState is what behind keeps of a limiter, under its lock.
type reportState struct {
	build          uint64           // the report that the indices belong to
	index          [kinds]int       // of the rule in that report, by kind of hits; -1 if it is not there
	queuedLate     bool             // in its shard's list of late limiters
	waiting        queue.FIFO[aged] // quiet counters, and when their hits have waited long enough
	answered, lost int64            // hits
	inFlight       int64
	told           RuleStats // what has been put down as past
}

// Step does everything that is due: heartbeat, flush, repeats, and eviction of idle counters. Run
// calls it. A simulation that has a clock of its own (Options.Now) calls it instead of Run. It
// returns the time of the next call by the same clock; that may come sooner, and should if Wake
// says so.
func (c *Checker) Step() (next time.Time) {
	return time.Unix(0, c.reporter.step(c.ownTime(), false))
}

func (b *reporter) step(now int64, drain bool) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now = now
	b.checker.clock.Slew(now)
	b.judgeFreshness(now)
	if b.checker.o.Link != nil && now >= b.nextHello {
		b.hello(now, false)
	}
	b.early(now)
	if b.crowded() { // there is little room for new keys: report at once, so that some can leave
		b.nextFlush = min(b.nextFlush, b.lastFlush+int64(b.checker.o.Tuning.FlushFloor))
	}
	if now >= b.nextFlush || drain {
		b.flush(now)
	}
	b.repeat(now)
	return min(b.nextFlush, b.nextHelloOrNever(), b.stepLeases(now))
}

func (b *reporter) nextHelloOrNever() int64 {
	if b.checker.o.Link == nil {
		return b.nextFlush
	}
	return b.nextHello
}

// hurry brings the next flush forward to the next fast round, and says so to Run.
func (b *reporter) hurry() {
	if !b.onTimerOnly() {
		b.flushBy(b.now, b.fastInterval())
		b.checker.wakeUp()
	}
}

// Wake is sent to when the next Step should come sooner than the last one said: a check or a
// message wants an early flush. It is for callers of Step; Run reads it too. However soon they
// call, flushes are not more frequent than the checker allows.
func (c *Checker) Wake() <-chan struct{} { return c.wake }

// wakeUp lets Run take a step soon. It does not wait.
func (c *Checker) wakeUp() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// flush moves what is dirty into reports.
func (b *reporter) flush(now int64) {
	b.lastFlush, b.nextFlush = now, now+int64(b.checker.o.FlushEvery)
	// If the timer is as fast, its flushes are the rounds.
	if fast := b.fastInterval(); fast >= int64(b.checker.o.FlushEvery) {
		b.nextFlush = now + fast
		b.flushBy(now, fast)
	}
	inRound := b.checker.rounds.wanted.Swap(0) != 0
	fleet := b.checker.clock.Fleet(now)
	b.takeRevived()
	b.endDeferrals(fleet)
	b.collect()
	b.collectLate()
	b.collectSettlements(fleet)
	if b.checker.o.Link == nil {
		b.flushLocally(fleet)
	}
	for i := range b.shards {
		switch s := &b.shards[i]; {
		case s.flight != nil:
			s.missed = s.missed || inRound
		case s.gaveUp > b.lastContact && !b.draining: // hits stay pending, and so count against this checker's share
		default:
			b.report(uint32(i), s, now)
		}
	}
	b.sweep(fleet)
	b.evict(fleet)
	b.releaseRetired(fleet)
}

// collect takes every dirty counter off the stacks and puts it into its shard's queue.
func (b *reporter) collect() {
	for i := range b.checker.dirty {
		for c := b.checker.dirty[i].takeAll(); c != nil; {
			next := c.next
			c.next = nil
			b.enqueue(c)
			c = next
		}
	}
}

func (b *reporter) enqueue(c *counter) {
	if len(b.shards) == 0 {
		b.unsharded = append(b.unsharded, c)
		return
	}
	i := events.Shard(c.limiter.name, c.key(), uint32(len(b.shards)))
	b.shards[i].queue.Push(c)
}

// collectLate notes which limiters have late hits to report, each in its own shard.
func (b *reporter) collectLate() {
	if len(b.shards) == 0 {
		return
	}
	for _, l := range b.lates.take() {
		if l.late.Load() == 0 || l.owed.queuedLate {
			continue
		}
		l.owed.queuedLate = true
		s := &b.shards[events.Shard(l.name, "", uint32(len(b.shards)))]
		s.late.Push(l)
	}
}

// lates are the limiters that have got late hits to report, of which no flush has seen any yet. Any
// goroutine adds to them.
type lates struct {
	mu   sync.Mutex
	list []*Limiter
}

func (s *lates) add(l *Limiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, l)
}

func (s *lates) take() (list []*Limiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list, s.list = s.list, nil
	return list
}

func (s *lates) any() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.list) > 0
}

// flushLocally is the flush of a checker without a link: nothing is ever reported.
func (b *reporter) flushLocally(fleet int64) {
	for _, c := range b.unsharded {
		c.mu.Lock()
		c.withdraw(fleet)
		c.rotate(fleet)
		clear(c.pending())
		c.state &^= queued
		c.touch(fleet)
		b.addAgeing(c, fleet)
		c.mu.Unlock()
	}
	clear(b.unsharded)
	b.unsharded = b.unsharded[:0]
	for _, l := range b.lates.take() {
		l.late.Store(0)
	}
}
