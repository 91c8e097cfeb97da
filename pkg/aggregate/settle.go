package aggregate

import (
	"errors"
	"time"

	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/window"
)

var (
	errOldReceipt = errors.New("settlement: its receipt is too old")
	errNewReceipt = errors.New("settlement: its receipt is of the future")
	errOtherShard = errors.New("settlement: its key is of another shard")
)

// Settled is a settlement's number among those of the checker that made its receipt. A store remembers for a day which
// it has met; by then every receipt with that number is too old to be settled.
type Settled struct {
	Epoch, Number uint64
	// Sender is the owner of the checker that reports it, as [events.OwnerOf] says. It is no part
	// of the identity.
	Sender uint32
}

// Chunk is how many numbers of one checker, from a multiple of it on, a store remembers together, a
// bit each. So a settlement takes up 1 KB for a day if no other of its chunk is settled, and
// checkers give numbers one after the other.
const Chunk = 8192

// Credit is what checkers of one credential have reported under one rule in one window, less what their settlements
// have given back: nobody gives back hits that it has not reported. Only rules with settlements have credits.
type Credit struct {
	// Owner is that of the checkers' epochs, as [events.OwnerOf] says.
	Owner uint32
	// Rule is an index in the fold's rules, and Window counts windows since 1970, each of as many buckets as its rule has.
	Rule   int
	Window int64
	// Reported is to be added, and Returned to be taken off: at most what there is then.
	Reported, Returned int64
}

// Expires is the fleet's time, in Unix nanoseconds, from which a store may forget a credit of a rule of this shape.
func (c *Credit) Expires(s window.Shape) int64 {
	return ExpiryOf(s, (c.Window+1)*int64(s.Buckets)-1)
}

// MaxCredit is the most that a credit comes to; a store need not hold more.
const MaxCredit = maxCount

// Overdrawn says how much there is of a credit of which a fold would return more: Credit is its index there.
type Overdrawn struct {
	Credit int
	// Left is without what the fold reports.
	Left int64
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
	spent  map[Settled]struct{} // counted before, as far as is known; without senders
	folded map[Settled]struct{} // in this fold, the same
	full   map[Settled]struct{} // for which the store had no room, the same

	left    map[creditID]int64 // of credits that were overdrawn before, as far as is known
	credits map[creditID]int   // their indices in this fold
	settles []bool             // by rule of the fold
}

// creditID is what tells credits apart.
type creditID struct {
	owner  uint32
	rule   ruleID
	window int64
}

func newSettler() settler {
	return settler{
		spent: make(map[Settled]struct{}), folded: make(map[Settled]struct{}), full: make(map[Settled]struct{}),
		left: make(map[creditID]int64), credits: make(map[creditID]int),
	}
}

// forget makes the next fold one of which nothing is known.
func (s *settler) forget() {
	clear(s.spent)
	clear(s.full)
	clear(s.left)
}

// reset makes room for another fold of the same requests.
func (s *settler) reset() {
	clear(s.folded)
	clear(s.credits)
	s.settles = s.settles[:0]
}

// credit finds the fold's credit of an owner for a rule's bucket; a new one is added.
func (f *folder) credit(owner uint32, rule int32, bucket int64) (*Credit, creditID) {
	r := &f.fold.Rules[rule]
	id := creditID{owner, ruleID{r.Name, r.Shape, r.Kind}, bucket / int64(r.Shape.Buckets)}
	i, ok := f.credits[id]
	if !ok {
		i = len(f.fold.Credits)
		f.credits[id] = i
		f.fold.Credits = append(f.fold.Credits, Credit{Owner: owner, Rule: int(rule), Window: id.window})
	}
	return &f.fold.Credits[i], id
}

// noteSettling finds out of which rules of a report hits may be settled. Checkers of before they said so ask for what was refunded.
func (f *folder) noteSettling(r *request) {
	f.settles = append(f.settles, make([]bool, len(f.fold.Rules)-len(f.settles))...)
	for i, wire := range r.report.GetHits().GetRules() {
		if r.rules[i] == none {
			continue
		}
		rule := &f.fold.Rules[r.rules[i]]
		if rule.Kind == Refunded {
			if twin, ok := f.rules[ruleID{rule.Name, rule.Shape, Admitted}]; ok {
				f.settles[twin] = true
			}
		} else if wire.GetSettles() && rule.Kind == Admitted {
			f.settles[r.rules[i]] = true
		}
	}
}

// settled takes in which of the fold's settlements a store has met before, and for which it has no
// room.
func (f *folder) settled(spent, full []int) {
	for _, i := range spent {
		f.spent[f.fold.Settled[i].id()] = struct{}{}
	}
	for _, i := range full {
		f.full[f.fold.Settled[i].id()] = struct{}{}
	}
}

// id is the settlement whoever reports it.
func (s Settled) id() Settled { return Settled{Epoch: s.Epoch, Number: s.Number} }

// overdrawn takes in what a store has found of the fold's credits.
func (f *folder) overdrawn(list []Overdrawn) {
	for id, i := range f.credits {
		for _, o := range list {
			if o.Credit == i {
				f.left[id] = o.Left
			}
		}
	}
}

// cover takes what is to be given back of a bucket off its owner's credit, unless it is known that there is not so much.
func (f *folder) cover(owner uint32, rule int32, bucket, hits int64) bool {
	c, id := f.credit(owner, rule, bucket)
	if left, ok := f.left[id]; ok && hits > Sum(left, c.Reported)-c.Returned {
		return false
	}
	c.Returned = Sum(c.Returned, hits)
	return true
}

// addSettlements adds what a new report's settlements change. It comes after the rules and keys of all reports.
func (f *folder) addSettlements(r *request, now int64) {
	r.uncovered, r.overflow = r.uncovered[:0], 0
	if r.repeated { // its settlements come again in another report
		return
	}
	for i, m := range r.report.GetSettlements() {
		if m == nil { // it made no sense
			continue
		}
		id := Settled{Epoch: m.GetEpoch(), Number: m.GetNumber()}
		if _, spent := f.spent[id]; spent {
			continue
		}
		if _, twice := f.folded[id]; twice {
			continue
		}
		if _, full := f.full[id]; full {
			r.overflow++
			continue
		}
		if !f.settle(m, r, now) {
			r.uncovered = append(r.uncovered, uint32(i))
			continue
		}
		f.folded[id] = struct{}{}
		id.Sender = events.OwnerOf(r.epoch)
		f.fold.Settled = append(f.fold.Settled, id)
	}
}

// settle adds what one settlement changes, unless its sender has not reported as much as it gives back.
func (f *folder) settle(m *events.Settlement, r *request, now int64) bool {
	wire, hits := m.GetCharge().GetRule(), m.GetHits()
	if hits == 0 { // it only has to be remembered
		return true
	}
	rule := f.rule(wire, Admitted)
	at := f.spanOf(rule, wire.GetNewest(), now)
	live := at.newest >= at.first && at.newest <= at.last
	if live && hits < 0 && !r.own && !f.cover(events.OwnerOf(r.epoch), rule, at.newest, -hits) {
		return false
	}
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
	return true
}

// acceptSettlements drops those of a report's settlements that make no sense, or come too late to know whether they
// are new; its hits count all the same.
func (w *Worker) acceptSettlements(r *events.Report, shards int, now int64, own bool) {
	for i, m := range r.GetSettlements() {
		err := w.checkSettlement(m, r.GetShard(), shards, w.clock.fleet(now))
		if err == nil && !own {
			err = w.checkRules(r.GetEpoch(), []*events.Rule{m.GetCharge().GetRule()}, now)
		}
		if err != nil {
			w.counters.settlementsRefused.Add(1)
			w.noteRules(err)
			r.Settlements[i] = nil
		}
	}
}

func (w *Worker) checkSettlement(m *events.Settlement, shard uint32, shards int, now int64) error {
	if err := m.Check(); err != nil {
		return err
	}
	rule := m.GetCharge().GetRule()
	if err := w.checkFleet(uint32(shards), []*events.Rule{rule}, shards); err != nil {
		return err
	}
	switch age := time.Duration(now - m.GetMade()); {
	case age > events.MaxReceiptAge:
		return errOldReceipt
	case age < -receiptAhead: // or it could be settled again when its number is forgotten
		return errNewReceipt
	case events.Shard(rule.GetName(), string(m.GetCharge().GetKey()), uint32(shards)) != shard:
		return errOtherShard
	}
	return nil
}

// receiptAhead is how far in the future a receipt may have been made: less than numbers are remembered longer than receipts
// are good.
const receiptAhead = time.Hour
