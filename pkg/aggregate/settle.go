package aggregate

import (
	"errors"
	"time"

	"github.com/offpath-io/offpath/pkg/events"
)

var (
	errOldToken   = errors.New("settlement: its token is too old")
	errNewToken   = errors.New("settlement: its token is of the future")
	errOtherShard = errors.New("settlement: its key is of another shard")
)

// Settled is a settlement's number among those of the checker that made its token. A store remembers for a day which
// it has met; by then every token with that number is too old to be settled.
type Settled struct {
	Epoch, Number uint64
}

// Permits are hits under strict enforcement that a settlement adds to what is held of a key's permits, or takes off
// it: as if so many more had been granted, or returned. There is a lease to change only if there is one on record.
type Permits struct {
	// Rule is an index in the fold's rules.
	Rule   int
	Text   string
	Bucket int64
	// Count may be negative. What is held stays at 0 at least.
	Count int64
}

// settler is what a folder knows of settlements.
type settler struct {
	spent  map[Settled]struct{} // counted before, as far as is known
	folded map[Settled]struct{} // in this fold
}

func newSettler() settler {
	return settler{spent: make(map[Settled]struct{}), folded: make(map[Settled]struct{})}
}

// addSettlements adds what a new report's settlements change. It comes after the report's rules and keys.
func (f *folder) addSettlements(r *request, now int64) {
	if r.repeated {
		return
	}
	for _, m := range r.report.GetSettlements() {
		id := Settled{m.GetEpoch(), m.GetNumber()}
		if _, spent := f.spent[id]; spent {
			continue
		}
		if _, twice := f.folded[id]; twice {
			continue
		}
		f.folded[id] = struct{}{}
		f.fold.Settled = append(f.fold.Settled, id)
		f.settle(m, now)
	}
}

// settle adds what one settlement changes.
func (f *folder) settle(m *events.Settlement, now int64) {
	wire, hits := m.GetCharge().GetRule(), m.GetHits()
	if hits == 0 { // it only has to be remembered
		return
	}
	rule := f.rule(wire, Admitted)
	at := f.spanOf(rule, wire.GetNewest(), now)
	live := at.newest >= at.first && at.newest <= at.last
	text := string(m.GetCharge().GetKey())
	ledger := f.tally(rule)
	if hits > 0 {
		ledger.Settled = Sum(ledger.Settled, hits)
	} else {
		ledger.Refunded = Sum(ledger.Refunded, -hits)
	}
	switch {
	case hits > 0 && live:
		f.addCell(f.find(rule, text), &at, at.newest, hits, false)
	case hits > 0:
		f.addCell(0, &at, at.newest, hits, false) // to the ledger
	case live: // the admitted ones are told with them
		f.hits = append(f.hits, hit{f.find(rule, text), Cell{at.newest, 0}})
		f.hits = append(f.hits, hit{f.find(f.rule(wire, Refunded), text), Cell{at.newest, -hits}})
	}
	if live && m.GetCharge().GetPermits() {
		f.fold.Permits = append(f.fold.Permits, Permits{Rule: int(rule), Text: text, Bucket: at.newest, Count: hits})
	}
}

// acceptSettlements drops those of a report's settlements that make no sense, or come too late to know whether they
// are new; its hits count all the same.
func (w *Worker) acceptSettlements(r *events.Report, shards int, now int64) {
	kept := r.Settlements[:0]
	for _, m := range r.GetSettlements() {
		if err := checkSettlement(m, r.GetShard(), shards, now); err != nil {
			w.counters.settlementsRefused.Add(1)
			continue
		}
		kept = append(kept, m)
	}
	clear(r.Settlements[len(kept):])
	r.Settlements = kept
}

func checkSettlement(m *events.Settlement, shard uint32, shards int, now int64) error {
	if err := m.Check(); err != nil {
		return err
	}
	rule := m.GetCharge().GetRule()
	if err := checkFleet(uint32(shards), []*events.Rule{rule}, shards); err != nil {
		return err
	}
	switch age := time.Duration(now - m.GetMade()); {
	case age > events.MaxTokenAge:
		return errOldToken
	case age < -tokenAhead: // or it could be settled again when its number is forgotten
		return errNewToken
	case events.Shard(rule.GetName(), string(m.GetCharge().GetKey()), uint32(shards)) != shard:
		return errOtherShard
	}
	return nil
}

// tokenAhead is how far in the future a token may have been made: less than numbers are remembered longer than tokens
// are good.
const tokenAhead = time.Hour
