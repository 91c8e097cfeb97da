package storetest

import (
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/window"
)

// Permits expire as counts do, with the newest of their buckets; nothing never.
func testLeaseExpiry(b *bench) {
	for name, shape := range leaseShapes {
		b.lose()
		b.lease(b.leases(10).want(name, shape, "a", 1, 0, 5).want(name, shape, "a", 2, 0, 2))
		count := aggregate.ExpiryOf(shape, shape.Bucket(b.now))
		back := aggregate.Ask{Epoch: 1, Returns: []aggregate.Cell{{Bucket: shape.Bucket(b.now), Count: 1}}}
		b.lease(b.leases(10).ask(name, shape, "a", back)) // which moves nothing
		all := b.Expiries(b)
		if len(all) == 0 {
			b.Errorf("%s: nothing expires", name)
		}
		for _, at := range all {
			if !b.near(at, count) {
				b.Errorf("%s: expiry %v from now, want %v", name, time.Duration(at-b.now), time.Duration(count-b.now))
			}
		}
	}
}

// lossShapes are short, since a store with a clock is waited for.
var lossShapes = map[string]window.Shape{
	"one":   {Length: 100 * time.Millisecond, Buckets: 1},
	"many":  {Length: 100 * time.Millisecond, Buckets: 10},
	"fixed": {Length: 100 * time.Millisecond, Buckets: 1, Fixed: true},
}

// A store that has lost what somebody remembers grants nothing until all that may have been granted has
// left the window; one that nobody remembers grants at once.
func testLeaseLoss(b *bench) {
	for _, byReport := range []bool{false, true} {
		for name, shape := range lossShapes {
			b.lose()
			ask := func() *leaseDraft {
				return &leaseDraft{aggregate.LeaseFold{Now: b.time(), Seen: b.seen}, 10}
			}
			first := b.leaseAnyhow(ask().want(name, shape, "a", 1, 0, 10))
			if first.Keys[0].New != 10 || first.Lost != 0 {
				b.Fatalf("%s: a new store: %+v", name, first)
			}
			b.Lose(b)
			b.seen = first.State
			before := b.time()
			if byReport {
				applied, err := b.Store.Apply(b.Context(), &aggregate.Fold{Now: before, Seen: b.seen})
				if err != nil {
					b.Fatal(err)
				}
				b.seen = applied.State
			}
			b.waitOut(name, shape, before, ask)
		}
	}
}

// waitOut asks until there is a grant, and checks that it did not come too soon.
func (b *bench) waitOut(name string, shape window.Shape, before int64, ask func() *leaseDraft) {
	b.Helper()
	lost := int64(0)
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		got := b.leaseAnyhow(ask().want(name, shape, "a", 2, 0, 3))
		if lost == 0 {
			lost = got.Lost
		}
		if got.Lost != lost || lost < before-int64(time.Millisecond) || lost > b.time() {
			b.Fatalf("%s: lost at %d, then %d, after %d", name, lost, got.Lost, before)
		}
		if got.Keys[0].New > 0 {
			if got.Now < lost+int64(shape.Length) || !shape.Gone(shape.Bucket(lost), got.Now) {
				b.Errorf("%s: a grant %v after a loss", name, time.Duration(got.Now-lost))
			}
			return
		}
		b.seen = got.State
		b.pass(2 * time.Millisecond)
	}
	b.Fatalf("%s: no grant after a loss", name)
}

// leaseAnyhow carries a fold out without a look at the model.
func (b *bench) leaseAnyhow(d *leaseDraft) aggregate.Leased {
	b.Helper()
	got, err := b.Store.Lease(b.Context(), &d.LeaseFold)
	if err != nil {
		b.Fatal(err)
	}
	return got
}

// time is the fleet's time, which the store's clock tells if it has one.
func (b *bench) time() int64 {
	if b.Clock == nil {
		return b.now
	}
	return b.Clock()
}

// pass lets some time pass until the next look.
func (b *bench) pass(d time.Duration) {
	if b.Clock != nil {
		time.Sleep(d)
	}
	b.now += int64(d)
}
