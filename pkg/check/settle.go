package check

import (
	"errors"
	"fmt"
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/fleetstate"
	"github.com/offpath-io/offpath/pkg/check/internal/settlement"
	"github.com/offpath-io/offpath/pkg/events"
)

// The errors of Settle. A receipt that Settle refuses is not used up.
var (
	// ErrReceipt is for a text that is not a whole receipt; without a Link also for a receipt of
	// another checker.
	ErrReceipt = errors.New("check: not a receipt")
	// ErrReceiptAge is for a receipt that was made in the future, or more than 20 hours ago: the
	// store may have forgotten whether it was settled.
	ErrReceiptAge = errors.New("check: the receipt is too old to be settled")
	// ErrSettled is for a receipt that was settled at this checker before. If a receipt is settled
	// at two checkers, the store takes the first settlement only, without an error.
	ErrSettled = settlement.ErrSettled
	// ErrCost is for a true cost that is negative or above 10^15.
	ErrCost = errors.New("check: invalid cost")
	// ErrSettling is for more settlements than may wait to be reported, as in an outage. Try again
	// later.
	ErrSettling = settlement.ErrFull
)

// Settle corrects what a request was charged with to its true cost, which may be 0. Each receipt
// can be settled once, at any checker of the fleet, also at one that does not have the rules.
// Settle does not wait. The difference is sent with the next report, and counts everywhere when
// that is answered, in the bucket that was charged. If that bucket has left its window, the
// difference goes to the ledger only. It is lost if this checker is killed before it is reported.
//
// A cost above the estimate may bring a key over its limit, also under strict enforcement: the
// request has been served. A cost below the estimate gives room back. The level of a token or leaky
// bucket becomes what it would be if the true cost had been charged, but hits of the estimate that
// have drained do not come back, and the level does not go below 0.
//
// A checker remembers at least the last million receipts that it settled, and returns ErrSettled
// for them at once.
func (c *Checker) Settle(receipt string, cost int64) error {
	if cost < 0 || cost > events.MaxCount {
		return fmt.Errorf("%w: %d, want 0 to %d", ErrCost, cost, int64(events.MaxCount))
	}
	m, err := c.o.ReceiptKeys().Decode(receipt)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrReceipt, err)
	}
	fleet := c.host.ExactTime()
	if age := time.Duration(fleet - m.GetMade()); age > events.MaxReceiptAge || age < -receiptAhead {
		return fmt.Errorf("%w: it was made %v ago", ErrReceiptAge, age.Round(time.Second))
	}
	if c.o.Link == nil && m.GetEpoch() != c.o.Epoch { // it may have been settled at the other checker
		return fmt.Errorf("%w: of another checker, and this one is alone", ErrReceipt)
	}
	list := make([]*events.Settlement, len(m.Charges))
	for i, charge := range m.Charges {
		list[i] = &events.Settlement{
			Epoch: m.Epoch, Number: m.Number + uint64(i), Made: m.Made, Charge: charge, Hits: cost - int64(charge.Cost),
		}
	}
	if err := c.settling.Take(m, list, c.o.MaxSettling, c.o.Link != nil); err != nil {
		return err
	}
	for _, s := range list {
		c.noteSettlement(s, fleet)
	}
	return nil
}

// receipt makes the receipt of a hit with these charges, at the fleet's time now.
func (c *Checker) receipt(charges []*events.Charge, now int64) string {
	m := &events.Receipt{Epoch: c.o.Epoch, Made: now, Charges: charges}
	numbers := uint64(max(len(charges), 1))
	m.Number = c.receipts.Add(numbers) - numbers + 1
	text, err := c.o.ReceiptKeys().Encode(m)
	if err != nil {
		panic("check: " + err.Error()) // unreachable: the message has no field that can fail
	}
	return text
}

// receiptAhead is how far in the future a receipt may have been made: clocks differ a little.
const receiptAhead = 10 * time.Minute

// noteSettlement makes the key's next report ask for a settlement's effect, soon if others should
// know. Without a link it takes effect at once.
func (c *Checker) noteSettlement(s *events.Settlement, fleet int64) {
	charge := s.GetCharge()
	g := c.counting(charge.GetRule())
	if g == nil {
		return
	}
	if s.GetHits() < 0 {
		g.Refunds.Store(true)
	}
	x := g.Lookup(charge.GetKey())
	if x != nil && x.Settle(charge.GetRule().GetNewest(), s.GetHits(), fleet) {
		c.host.Want(fleetstate.NextFast)
	}
}
