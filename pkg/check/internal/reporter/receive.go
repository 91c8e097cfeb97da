package reporter

import (
	"fmt"

	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/events"
)

func (r *Reporter) receive(now int64, kind events.Kind, payload []byte) error {
	switch kind {
	case events.KindRefresh:
		m, err := events.DecodeRefresh(payload)
		if err != nil {
			return err
		}
		return r.refresh(m, now)
	case events.KindAlarm:
		m, err := events.DecodeAlarm(payload)
		if err != nil {
			return err
		}
		r.alarm(m, now)
		return nil
	case events.KindWelcome:
		m, err := events.DecodeWelcome(payload)
		if err != nil {
			return err
		}
		r.welcome(m, now)
		return nil
	case events.KindUnheard:
		r.unheard(now)
		return nil
	case events.KindGrant:
		m, err := events.DecodeGrant(payload)
		if err != nil {
			return err
		}
		return r.granted(m, now)
	}
	return fmt.Errorf("receive: not a message for a checker: %v", kind)
}

// unheard processes the notice that a message to an aggregator had no receiver. It does not say
// which message. If a report or lease request is in flight to any aggregator of a shard, it is
// taken to be that one: that shard has no aggregator, and the message waits for its time-out.
// Otherwise everything in flight to one particular aggregator is sent again, to any.
func (r *Reporter) unheard(now int64) {
	for i := range r.shards {
		if f := r.shards[i].flight; f != nil && f.toAny {
			f.toAny = false
			return
		}
		if f := r.leases.queues[i].flight; f != nil && f.toAny {
			f.toAny = false
			return
		}
	}
	for i := range r.shards {
		s := &r.shards[i]
		if s.aggregator == 0 {
			if s.flight != nil && s.flight.message.Format > events.FormatPlain { // no aggregator receives this format
				r.toOlder(s.flight, now)
				s.flight.retryAt = now
			}
			continue
		}
		s.aggregator = 0
		if s.flight != nil {
			s.flight.retryAt = now
		}
		if x := &r.leases.queues[i]; x.flight != nil {
			x.flight.retryAt = now
		}
	}
	r.host.WakeUp()
}

// alarm processes the totals of keys that have reached the alarm threshold. Keys that this checker
// has never seen are recorded too, so that a caller that is over the limit elsewhere finds no room
// here.
func (r *Reporter) alarm(m *events.Alarm, now int64) {
	if int64(m.Shard) >= int64(len(r.shards)) {
		return
	}
	r.noteContact(now)
	r.counts.Alarms++
	s := &r.shards[m.Shard]
	if !r.follow(s, m.Generation, 0) {
		return
	}
	fleet := r.host.Clock.Fleet(now)
	groups := make([]*counter.Group, len(m.Totals.Rules))
	for i, rule := range m.Totals.Rules {
		groups[i] = r.o.Groups.Find(rule)
	}
	others, eager := [counter.Kinds]map[groupKey]counter.Totals{counter.DeniedHits: {}, counter.RefundedHits: {}}, false
	for kind := counter.DeniedHits; kind < counter.Kinds; kind++ {
		counter.EachTotals(m.Totals, kind, func(rule uint32, key []byte, news counter.Totals) {
			others[kind][groupKey{groups[rule], string(key)}] = news
		})
	}
	counter.EachTotals(m.Totals, counter.AdmittedHits, func(rule uint32, key []byte, news counter.Totals) {
		if g := groups[rule]; g != nil {
			id := groupKey{g, string(key)}
			eager = g.ObserveAlarm(key, s.localGeneration, counter.Update{
				Fleet: fleet, Made: m.Made, Admitted: news,
				Denied: others[counter.DeniedHits][id], Refunded: others[counter.RefundedHits][id],
			}) || eager
			delete(others[counter.RefundedHits], id)
		}
	})
	counter.EachTotals(m.Totals, counter.RefundedHits, func(rule uint32, key []byte, news counter.Totals) {
		g := groups[rule]
		if _, left := others[counter.RefundedHits][groupKey{g, string(key)}]; left && g != nil { // the admitted hits are in another message
			eager = g.ObserveAlarm(key, s.localGeneration, counter.Update{Fleet: fleet, Made: m.Made, Refunded: news}) || eager
		}
	})
	if eager {
		r.hurry()
	}
}

// groupKey is a key of a group.
type groupKey struct {
	group *counter.Group
	key   string
}

// Receive processes a message for this checker. It counts, as Unreadable, messages that it cannot
// read, answers that make no sense, and refusals of reports and lease requests. It does not keep
// payload.
func (r *Reporter) Receive(kind events.Kind, payload []byte) {
	now := r.o.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now = max(r.now, now)
	if err := r.receive(now, kind, payload); err != nil {
		r.counts.Unreadable++
		r.counts.Problem = err.Error()
	}
}
