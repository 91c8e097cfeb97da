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

// unheard takes in that something that was sent to one aggregator has not reached it: any will do
// now. It is not known what it was, so all is sent again that may be; where any was asked before
// there is none, and what is sent waits for its time. If something is on its way to any, it is
// taken to be that: a shard that nobody attends to says nothing of others.
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
			if s.flight != nil && s.flight.message.Format > events.FormatPlain { // none knows it
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

// alarm takes in totals of keys that are near their limit. Keys that this checker has never seen
// are remembered too, so that a caller who is over the limit elsewhere finds no room here.
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
	others, eager := [counter.Kinds]map[asked]counter.Totals{counter.DeniedHits: {}, counter.RefundedHits: {}}, false
	for kind := counter.DeniedHits; kind < counter.Kinds; kind++ {
		counter.EachTotals(m.Totals, kind, func(rule uint32, key []byte, news counter.Totals) {
			others[kind][asked{groups[rule], string(key)}] = news
		})
	}
	counter.EachTotals(m.Totals, counter.AdmittedHits, func(rule uint32, key []byte, news counter.Totals) {
		if l := groups[rule]; l != nil {
			id := asked{l, string(key)}
			eager = l.ObserveAlarm(key, s.localGeneration, counter.Update{
				Fleet: fleet, Made: m.Made, Admitted: news,
				Denied: others[counter.DeniedHits][id], Refunded: others[counter.RefundedHits][id],
			}) || eager
			delete(others[counter.RefundedHits], id)
		}
	})
	counter.EachTotals(m.Totals, counter.RefundedHits, func(rule uint32, key []byte, news counter.Totals) {
		l := groups[rule]
		if _, left := others[counter.RefundedHits][asked{l, string(key)}]; left && l != nil { // the admitted ones are in another message
			eager = l.ObserveAlarm(key, s.localGeneration, counter.Update{Fleet: fleet, Made: m.Made, Refunded: news}) || eager
		}
	})
	if eager {
		r.hurry()
	}
}

// asked is a key under a limiter.
type asked struct {
	group *counter.Group
	key   string
}

// Receive takes in a message for this checker. It counts and ignores what it cannot read, and does
// not keep payload.
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
