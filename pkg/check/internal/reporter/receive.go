package reporter

import (
	"fmt"

	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/events"
)

// read decodes a message for a checker. It needs no lock: answers take a tenth as long to decode as
// to process.
func read(kind events.Kind, payload []byte) (m any, err error) {
	switch kind {
	case events.KindRefresh:
		return events.DecodeRefresh(payload)
	case events.KindAlarm:
		return events.DecodeAlarm(payload)
	case events.KindWelcome:
		return events.DecodeWelcome(payload)
	case events.KindGrant:
		return events.DecodeGrant(payload)
	case events.KindUnheard:
		if to, ok := events.ParseAddress(string(payload)); ok {
			return to, nil
		}
		return nil, nil // an older NATS server does not name it: the time-out will
	}
	return nil, fmt.Errorf("receive: not a message for a checker: %v", kind)
}

func (r *Reporter) receive(now int64, m any) error {
	switch m := m.(type) {
	case *events.Refresh:
		return r.refresh(m, now)
	case *events.Grant:
		return r.granted(m, now)
	case *events.Alarm:
		r.alarm(m, now)
	case *events.Welcome:
		r.welcome(m, now)
	case events.Address:
		r.unheard(m, now)
	}
	return nil
}

// unheard processes the notice that a request had no receiver. What was sent to the shard's owner
// is sent to any aggregator instead: that is no repeat. If there is none either, it waits for its
// time-out.
func (r *Reporter) unheard(to events.Address, now int64) {
	if int64(to.Shard) >= int64(len(r.shards)) {
		return
	}
	s, leases := &r.shards[to.Shard], &r.leases.queues[to.Shard]
	switch {
	case to.ToOwner && (s.isToOwner(now) || leases.isToOwner(now)):
		s.avoidOwner(true, now)
		leases.avoidOwner(true, now)
		if f := leases.flight; f != nil && f.toOwner {
			f.retryAt = now
		}
		if f := s.flight; f != nil && f.toOwner {
			f.tries--
			r.send(to.Shard, f, now)
		}
	case !to.ToOwner && to.Format > events.FormatPlain && s.flight != nil: // no aggregator receives this format
		r.toOlder(s.flight, now)
		s.flight.retryAt = now
	default:
		return
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
	r.counts.Alarms++
	s := &r.shards[m.Shard]
	if !r.follow(s, state{m.Generation, m.Version}, state{}) {
		return
	}
	if m.Made != 0 {
		r.noteNews(m.Shard, now)
	} else { // repeated from an aggregator's memory, whatever has become of the store
		r.noteContact(now)
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
	m, err := read(kind, payload)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now = max(r.now, now)
	if err == nil {
		err = r.receive(now, m)
	}
	if err != nil {
		r.counts.Unreadable++
		r.counts.Problem = err.Error()
	}
}
