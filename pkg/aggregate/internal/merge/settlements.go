package merge

import (
	"maps"

	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/events"
)

// settling is what is known of a batch's settlements.
type settling struct {
	fates   map[storage.Settled]fate   // without senders
	left    map[storage.CreditID]int64 // what is left of credits that were overdrawn before
	credits map[storage.CreditID]int   // their indices in this batch
	rules   []bool                     // by rule of the batch: its hits may be settled
}

// fate is what is known of a settlement.
type fate uint8

const (
	merged fate = iota + 1 // it is in this batch
	spent                  // it was counted before
	full                   // the store has no room for it
)

func newSettling() settling {
	return settling{
		fates:   make(map[storage.Settled]fate),
		left:    make(map[storage.CreditID]int64),
		credits: make(map[storage.CreditID]int),
	}
}

// forget makes the next batch one of which nothing is known.
func (s *settling) forget() {
	clear(s.fates)
	clear(s.left)
}

// reset makes room for another batch of the same reports.
func (s *settling) reset() {
	maps.DeleteFunc(s.fates, func(_ storage.Settled, f fate) bool { return f == merged })
	clear(s.credits)
	s.rules = s.rules[:0]
}

// credit finds the batch's credit of a credential for a rule's bucket; a new one is added.
func (b *Reports) credit(
	credential uint32, rule int32, bucket int64,
) (*storage.Credit, storage.CreditID) {
	c := storage.Credit{Credential: credential, Rule: int(rule)}
	c.Window = bucket / int64(b.rules.list[rule].Shape.Buckets)
	id := c.ID(b.rules.list)
	i, ok := b.settling.credits[id]
	if !ok {
		i = len(b.batch.Credits)
		b.settling.credits[id] = i
		b.batch.Credits = append(b.batch.Credits, c)
	}
	return &b.batch.Credits[i], id
}

// findSettling finds the rules of a report whose hits may be settled. Older checkers do not say so,
// but ask for refunds.
func (b *Reports) findSettling(r *Report) {
	s := &b.settling
	s.rules = append(s.rules, make([]bool, len(b.rules.list)-len(s.rules))...)
	for i, m := range r.Message.GetHits().GetRules() {
		if r.rules[i] == none {
			continue
		}
		id := b.rules.list[r.rules[i]].ID()
		switch {
		case id.Kind == storage.Refunded:
			id.Kind = storage.Admitted
			if admitted, ok := b.rules.byID[id]; ok {
				s.rules[admitted] = true
			}
		case id.Kind == storage.Admitted && m.GetSettles():
			s.rules[r.rules[i]] = true
		}
	}
}

// excludeSettlements takes in which of the batch's settlements a store has met before, for which it
// has no room, and how much is left of overdrawn credits.
func (b *Reports) excludeSettlements(applied *storage.Applied) {
	s := &b.settling
	for _, i := range applied.Spent {
		s.fates[withoutSender(b.batch.Settled[i])] = spent
	}
	for _, i := range applied.SettledOverflow {
		s.fates[withoutSender(b.batch.Settled[i])] = full
	}
	for _, o := range applied.Overdrawn {
		s.left[b.batch.Credits[o.Credit].ID(b.rules.list)] = o.Left
	}
}

func withoutSender(s storage.Settled) storage.Settled {
	s.Sender = 0
	return s
}

// addSettlements adds the changes that a new report's settlements make. It comes after the rules
// and keys of all reports.
func (b *Reports) addSettlements(r *Report) {
	r.Uncovered, r.Overflow = r.Uncovered[:0], 0
	if r.Repeated { // its settlements come again in another report
		return
	}
	s := &b.settling
	for i, m := range r.Message.GetSettlements() {
		if m == nil { // it was invalid
			continue
		}
		id := storage.Settled{Epoch: m.GetEpoch(), Number: m.GetNumber()}
		switch s.fates[id] {
		case spent, merged:
			continue
		case full:
			r.Overflow++
			continue
		}
		if !b.settle(m, r) {
			r.Uncovered = append(r.Uncovered, uint32(i))
			continue
		}
		s.fates[id] = merged
		id.Sender = events.CredentialOf(r.Epoch)
		b.batch.Settled = append(b.batch.Settled, id)
	}
}

// settle adds the changes of one settlement, unless its sender has not reported as much as it gives
// back.
func (b *Reports) settle(m *events.Settlement, r *Report) bool {
	wire, hits := m.GetCharge().GetRule(), m.GetHits()
	if hits == 0 { // it only has to be remembered
		return true
	}
	rule := b.rule(wire, storage.Admitted)
	at := b.spanOf(rule, wire.GetNewest())
	live := at.newest >= at.first && at.newest <= at.last
	if live && hits < 0 && !r.Own && !b.cover(events.CredentialOf(r.Epoch), rule, at.newest, -hits) {
		return false
	}
	text := string(m.GetCharge().GetKey())
	ledger := b.tally(rule)
	if hits > 0 {
		ledger.Settled = storage.Sum(ledger.Settled, hits)
	} else {
		ledger.Refunded = storage.Sum(ledger.Refunded, -hits)
	}
	switch {
	case hits > 0 && live:
		b.addHits(b.key(rule, text), &at, at.newest, hits, false)
	case hits > 0:
		b.addHits(none, &at, at.newest, hits, false) // to the ledger
	case live: // with the admitted hits, whose totals alarms carry beside the refunds
		b.counts = append(b.counts, count{b.key(rule, text), storage.Cell{Bucket: at.newest}})
		back := b.key(b.rule(wire, storage.Refunded), text)
		b.counts = append(b.counts, count{back, storage.Cell{Bucket: at.newest, Count: -hits}})
	}
	if live && m.GetCharge().GetPermits() {
		b.batch.Permits = append(b.batch.Permits, storage.Permits{
			Rule: int(rule), Text: text, Bucket: at.newest, Count: hits,
		})
	}
	return true
}

// cover subtracts hits that are given back from the credit of their credential, unless the credit
// is known to be smaller.
func (b *Reports) cover(credential uint32, rule int32, bucket, hits int64) bool {
	c, id := b.credit(credential, rule, bucket)
	left, known := b.settling.left[id]
	if known && hits > storage.Sum(left, c.Reported)-c.Returned {
		return false
	}
	c.Returned = storage.Sum(c.Returned, hits)
	return true
}
