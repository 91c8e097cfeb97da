// Package alarm decides which keys all checkers have to hear of, and makes the messages: the totals
// of keys that have reached half of their limit.
package alarm

import (
	"math"
	"sync"

	"github.com/offpath-io/offpath/pkg/aggregate/internal/refund"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/events"
)

// Queue holds the totals of one shard's keys near their limit until the next alarm. However often a
// key is reported meanwhile, only its latest totals are sent. If there are too many keys for one
// alarm, those that most checkers have reported are, and the others when they are reported again:
// they would be old news by then. Its methods are safe for concurrent use.
type Queue struct {
	shard uint32
	most  int // keys in an alarm

	mu      sync.Mutex
	state   storage.State
	made    int64 // when the newest report in the totals was made, by the fleet's time
	pending table
	recent  recent
	nextDue int64 // own time
	flush   bool  // the next alarm has all keys

	net    []storage.Cell // memory to work with
	counts []int64        // the same
}

// NewQueue returns an empty queue of a shard, whose alarms are of at most so many keys.
func NewQueue(shard uint32, most int) *Queue {
	return &Queue{shard: shard, most: most, pending: newTable(), recent: newRecent()}
}

// Observe keeps the totals of those keys of an applied batch that have reached half of their limit;
// reporters says of each which checkers have reported it: each checker has one of 64 bits.
func (q *Queue) Observe(batch *storage.Batch, applied *storage.Applied, reporters []uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if applied.State.Generation < q.state.Generation {
		return // the totals of a generation that has ended
	}
	if applied.State.Generation > q.state.Generation {
		q.pending.clear()
		q.recent = newRecent()
		q.state = applied.State
	}
	q.state.Version = max(q.state.Version, applied.State.Version)
	q.made = max(q.made, batch.Made)
	pairs := refund.PairsOf(batch)
	for i := range batch.Keys {
		key := &batch.Keys[i]
		rule := &batch.Rules[key.Rule]
		if rule.Kind == storage.Refunded {
			continue // sent with the admitted ones
		}
		e := entry{version: applied.State.Version, totals: applied.Totals[i], reporters: reporters[i]}
		if rule.Drains() {
			e.level = applied.Levels[i]
		}
		back, refunded := pairs.Of(key)
		weighed := e
		if refunded {
			q.net = refund.Net(q.net, e.totals, applied.Totals[back], batch.Keys[back].Cells)
			weighed.totals = q.net
		}
		if !q.isNearLocked(rule, &weighed, batch.Now) && !pairs.FreesPermits(key) {
			continue
		}
		q.pending.put(rule, key.Text, e)
		if refunded {
			e = entry{version: e.version, totals: applied.Totals[back], refunds: len(batch.Keys[back].Cells) > 0}
			q.pending.put(&batch.Rules[batch.Keys[back].Rule], key.Text, e)
		}
	}
}

// isNearLocked reports whether a key has reached half of its rule's limit, or of its burst if it
// drains.
func (q *Queue) isNearLocked(r *storage.Rule, e *entry, now int64) bool {
	if !r.Drains() && (r.Limit == 0 || storage.Total(e.totals) < r.Limit-r.Limit/2) { // most keys: even in full not near
		return false
	}
	q.counts = storage.ByAge(q.counts, r.Shape, e.totals, now)
	if r.Drains() {
		return r.Drain().Use(e.level, q.counts, now) >= 0.5
	}
	return r.Shape.Count(q.counts, now)*2 >= float64(r.Limit)
}

// Due is when the next alarm should be sent, in own time; queue.Never if there is none to send.
func (q *Queue) Due() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	due := q.recent.due()
	if len(q.pending.entries) > 0 {
		due = min(due, q.nextDue)
	}
	return due
}

// Flush makes all pending totals due at once.
func (q *Queue) Flush() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.nextDue, q.flush = math.MinInt64, true
}

// Repeat has the totals of recent alarms sent again soon, for a checker that has not received them.
func (q *Queue) Repeat() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.recent.wanted = true
}

// Take returns the messages that are due at own time now, with the number of keys in them, and
// forgets them; fleet is the fleet's time. The next ones are due after interval nanoseconds.
func (q *Queue) Take(now, fleet, interval int64) (messages [][]byte, keys int, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if now >= q.recent.due() {
		again := q.recentLocked(now, fleet, interval)
		keys = len(again.entries)
		if messages, err = again.messages(nil, q.envelopeLocked(0), fleet); err != nil {
			return nil, 0, err
		}
	}
	if len(q.pending.entries) == 0 || now < q.nextDue {
		return messages, keys, nil
	}
	if !q.flush {
		q.pending.thin(q.most)
	}
	q.nextDue, q.flush = now+interval, false
	defer q.pending.clear()
	q.recent.add(&q.pending)
	messages, err = q.pending.messages(messages, q.envelopeLocked(q.made), fleet)
	return messages, keys + len(q.pending.entries), err
}

// recentLocked returns the totals to send again at own time now: of keys that are still near their
// limit at the fleet's time.
func (q *Queue) recentLocked(now, fleet, interval int64) *table {
	q.recent.wanted, q.recent.nextDue = false, now+repeatPart*interval
	all := newTable()
	for _, t := range []*table{&q.recent.older, &q.recent.newer} {
		for _, e := range t.entries {
			r := &t.rules[e.rule]
			// Refunds are sent with whichever key they belong to.
			if r.Kind == storage.Refunded || q.isNearLocked(r, &e, fleet) {
				all.put(r, e.text, e)
			}
		}
	}
	return &all
}

// envelopeLocked returns an alarm without totals.
func (q *Queue) envelopeLocked(made int64) *events.Alarm {
	return &events.Alarm{
		Shard: q.shard, Generation: q.state.Generation, Version: q.state.Version, Made: made,
	}
}
