package storetest

import (
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/window"
)

// Permits expire as counts do, with the newest of their buckets; nothing never.
func testLeaseExpiry(b *bench) {
	for name, shape := range leaseShapes {
		b.lose()
		b.lease(b.leases(10).want(name, shape, "a", 1, 0, 5).want(name, shape, "a", 2, 0, 2))
		count := storage.ExpiryOf(shape, shape.Bucket(b.now))
		back := storage.LeaseRequest{Epoch: 1, Returns: []storage.Cell{{Bucket: shape.Bucket(b.now), Count: 1}}}
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

// A store behind a remembered state, which it learns from a lease or from a report, grants nothing
// until all permits that may have been granted have left the window; one without a remembered state
// grants at once.
func testLeaseLoss(b *bench) {
	for _, byReport := range []bool{false, true} {
		for name, shape := range lossShapes {
			b.lose()
			first := b.leaseNow(name, shape, 1, 10)
			if first.Keys[0].New != 10 || first.Keys[0].Lost != 0 {
				b.Fatalf("%s: a new store: %+v", name, first)
			}
			b.Lose(b)
			before := b.time()
			if byReport {
				b.seen = must(b.Store.Apply(b.Context(), &storage.Batch{Now: before, Seen: b.seen}))(b).State
			}
			got := b.leaseNow(name, shape, 2, 3)
			lost := got.Keys[0].Lost
			if b.Clock == nil && lost != before || lost == 0 || lost > b.time()+int64(time.Millisecond) {
				b.Fatalf("%s: lost at %d, after %d", name, lost, before)
			}
			span := int64(shape.Live()) * int64(shape.BucketSize())
			quiet := lost + span
			for end := time.Now().Add(time.Minute); got.Keys[0].New == 0 && time.Now().Before(end); {
				b.pass(2*time.Millisecond, quiet)
				got = b.leaseNow(name, shape, 2, 3)
			}
			switch {
			case got.Keys[0].New == 0, b.Clock == nil && got.Keys[0].Lost != lost:
				b.Fatalf("%s: in the end %+v", name, got)
			case b.time() < before+span, b.Clock == nil && got.Now != quiet:
				b.Errorf("%s: a grant %v after a loss, want %v", name, time.Duration(got.Now-lost), time.Duration(quiet-lost))
			}
		}
	}
}

// leaseNow asks for permits of key "a" by the store's time, without the model.
func (b *bench) leaseNow(name string, shape window.Shape, epoch uint64, want int64) storage.Leased {
	b.Helper()
	d := &leaseDraft{storage.LeaseBatch{Now: b.time(), Seen: b.seen}, 10}
	return b.leaseUnchecked(d.want(name, shape, "a", epoch, 0, want))
}

// time is the fleet's time, by the store's clock if it has one.
func (b *bench) time() int64 {
	if b.Clock == nil {
		return b.now
	}
	return b.Clock()
}

// pass lets some time pass; a store without a clock does not miss the instant at.
func (b *bench) pass(d time.Duration, at int64) {
	if b.Clock != nil {
		time.Sleep(d)
		return
	}
	if next := b.now + int64(d); b.now < at && at < next {
		b.now = at
	} else {
		b.now = next
	}
}
