package reporter

// Step does everything that is due at the checker's own time now: hello, flush, repeats, lease
// requests, eviction. It flushes even if none is due if drain is set. It returns when the next step
// is due, by the same clock.
func (b *Reporter) Step(now int64, drain bool) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now = now
	b.host.Clock.Slew(now)
	b.judgeFreshness(now)
	if b.o.Link != nil && now >= b.nextHello {
		b.hello(now, false)
	}
	b.early(now)
	if b.host.Crowded() { // there is little room for new keys: report at once, so that some can leave
		b.nextFlush = min(b.nextFlush, b.lastFlush+int64(b.o.Tuning.FlushFloor))
	}
	if now >= b.nextFlush || drain {
		b.flush(now)
	}
	b.repeat(now)
	return min(b.nextFlush, b.nextHelloOrNever(), b.stepLeases(now))
}

func (b *Reporter) nextHelloOrNever() int64 {
	if b.o.Link == nil {
		return b.nextFlush
	}
	return b.nextHello
}

// flush moves what is dirty into reports.
func (b *Reporter) flush(now int64) {
	b.lastFlush, b.nextFlush = now, now+int64(b.o.FlushEvery)
	// If the timer is as fast, its flushes are the rounds.
	if fast := b.host.FastInterval(); fast >= int64(b.o.FlushEvery) {
		b.nextFlush = now + fast
		b.flushBy(now, fast)
	}
	inRound := b.host.Rounds.Wanted.Swap(0) != 0
	fleet := b.host.Clock.Fleet(now)
	b.o.Groups.Revive()
	b.host.EndDeferrals(fleet, b.draining, b.enqueue)
	b.host.Collect(b.enqueue)
	b.collectLate()
	b.collectSettlements(fleet)
	if b.o.Link == nil {
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
	b.host.Evict(fleet)
	b.o.Groups.Release(fleet)
}

// flushLocally is the flush of a checker without a link: nothing is ever reported.
func (b *Reporter) flushLocally(fleet int64) {
	for _, c := range b.unsharded {
		c.FlushLocally(fleet)
	}
	clear(b.unsharded)
	b.unsharded = b.unsharded[:0]
	for _, l := range b.host.Lates.Take() {
		l.Late.Store(0)
	}
}

// sweptAtOnce bounds the counters looked at in one step that nobody takes reports of.
const sweptAtOnce = 512

// sweep lets counters leave that wait for their report when the table is crowded, if all their
// hits have become late meanwhile: the limiter tells of these. Nobody may take reports for days,
// and keys that find no room have no limit.
func (b *Reporter) sweep(fleet int64) {
	if !b.host.Crowded() || b.draining {
		return
	}
	left := sweptAtOnce
	for range b.shards {
		b.sweeps++
		s := &b.shards[b.sweeps%uint(len(b.shards))]
		if s.gaveUp <= b.lastContact && (s.flight == nil || s.flight.tries <= soonTries) {
			continue
		}
		for range min(left, s.queue.Len()) {
			left--
			if c := s.queue.Pop(); !c.Spare(fleet) {
				s.queue.Push(c)
			}
		}
	}
	for range min(left, len(b.unsharded)) {
		b.sweeps++
		last := len(b.unsharded) - 1
		if i := b.sweeps % uint(last+1); b.unsharded[i].Spare(fleet) {
			b.unsharded[i], b.unsharded[last] = b.unsharded[last], nil
			b.unsharded = b.unsharded[:last]
		}
	}
}
