package storetest

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/window"
)

// leaseDraft is a lease batch in the making.
type leaseDraft struct {
	storage.LeaseBatch
	limit int64
}

// longAgo takes the test back by more than a year: permits are granted by the fleet's time, however
// far a store's clock is off. Leases are told by whole milliseconds.
func (b *bench) longAgo() { b.away(-400 * 24 * time.Hour) }

func (b *bench) away(from time.Duration) {
	b.late = 0
	b.now = (b.now + int64(from)) / int64(time.Millisecond) * int64(time.Millisecond)
}

// leases begins a lease batch for shard 0, of rules of this limit.
func (b *bench) leases(limit int64) *leaseDraft {
	return &leaseDraft{storage.LeaseBatch{Now: b.now, Seen: b.seen}, limit}
}

// ask adds an ask to a key.
func (d *leaseDraft) ask(name string, shape window.Shape, key string, a storage.LeaseRequest) *leaseDraft {
	rule := place(&d.Rules, storage.Rule{Name: name, Shape: shape, Limit: d.limit}, isRule)
	i := place(&d.Keys, storage.LeaseKey{Rule: rule, Text: key}, func(a, b *storage.LeaseKey) bool {
		return a.Rule == b.Rule && a.Text == b.Text
	})
	d.Keys[i].Requests = append(d.Keys[i].Requests, a)
	return d
}

// want adds an ask of the current bucket.
func (d *leaseDraft) want(name string, shape window.Shape, key string, epoch uint64, known, want int64) *leaseDraft {
	return d.ask(name, shape, key, storage.LeaseRequest{Epoch: epoch, Bucket: shape.Bucket(d.Now), Known: known, Want: want})
}

func (b *bench) lease(d *leaseDraft) storage.Leased {
	b.Helper()
	return b.leaseOf(b.Store, d)
}

// leaseOf carries a batch out and checks all that the store says of it.
func (b *bench) leaseOf(store storage.Store, d *leaseDraft) storage.Leased {
	b.Helper()
	was := b.model.state[d.Shard]
	got := must(store.Lease(b.Context(), &d.LeaseBatch))(b)
	if got.Now > d.Now || got.Now <= d.Now-int64(time.Millisecond) {
		b.Fatalf("granted by the time %d, want %d", got.Now, d.Now)
	}
	for i := range got.Keys {
		if lost := got.Keys[i].Lost; lost != b.model.lost[d.Shard] {
			b.Fatalf("lost at %d, want %d", lost, b.model.lost[d.Shard])
		}
	}
	b.late = max(b.late, got.Now)
	want := b.model.lease(&d.LeaseBatch, got.Now)
	if len(got.Keys) != len(want) {
		b.Fatalf("%d keys, want %d", len(got.Keys), len(want))
	}
	changed := false
	for i, k := range got.Keys {
		w := want[i]
		changed = changed || w.New > 0 || w.Returned > 0
		b.forgive(d, i, &w, &k)
		if k.Bucket != w.Bucket || k.New != w.New || k.Returned != w.Returned || !slices.Equal(k.Grants, w.Grants) {
			b.Fatalf("key %q of %+v: got %+v, want %+v", d.Keys[i].Text, d.Rules[d.Keys[i].Rule], k, w)
		}
		b.checkHeld(d, i, &k, got.Now)
	}
	next := was
	if changed {
		next.Version++
	}
	if was.Generation > 0 && got.State != next {
		b.Fatalf("state %v after %v, want %v", got.State, was, next)
	}
	b.model.state[d.Shard] = got.State
	if d.Shard == 0 {
		b.seen = got.State
	}
	return got
}

// forgive lets a store forget what was granted in a bucket that has expired by the latest clock.
func (b *bench) forgive(d *leaseDraft, key int, want, got *storage.LeasedKey) {
	shape := d.Rules[d.Keys[key].Rule].Shape
	if len(got.Grants) != len(want.Grants) {
		return
	}
	for j := range want.Grants {
		if got.Grants[j].Requested == 0 && storage.ExpiryOf(shape, d.Keys[key].Requests[j].Bucket) <= b.late {
			want.Grants[j].Requested = 0
		}
	}
}

// checkHeld holds what the store says is held against the model, and against the limit: in no
// window from now on, by the clock that is furthest ahead, are there more.
func (b *bench) checkHeld(d *leaseDraft, key int, got *storage.LeasedKey, now int64) {
	b.Helper()
	r := &d.Rules[d.Keys[key].Rule]
	held := b.model.leasesOf(entity{d.Shard, r.Name, r.Shape, storage.Admitted, d.Keys[key].Text}).held
	live := make(map[int64]int64)
	for bucket, n := range held {
		if !r.Shape.Gone(bucket, now) && n > 0 {
			live[bucket] = n
		}
	}
	said := make(map[int64]int64)
	for i, c := range got.Held {
		if i > 0 && c.Bucket <= got.Held[i-1].Bucket {
			b.Fatalf("buckets in no order: %v", got.Held)
		}
		if !r.Shape.Gone(c.Bucket, now) && c.Count != 0 {
			said[c.Bucket] = c.Count
		}
	}
	if !maps.Equal(said, live) {
		b.Fatalf("held of %q: got %v, want %v", d.Keys[key].Text, said, live)
	}
	now = max(now, b.late)
	size := int64(r.Shape.BucketSize())
	for ahead := range int64(r.Shape.Live()) {
		for _, at := range []int64{now + ahead*size, r.Shape.End(r.Shape.Bucket(now) + ahead)} {
			if count := weigh(r.Shape, held, at, false); count > r.Limit {
				b.Fatalf("key %q of %+v: %d permits in the window %v from now", d.Keys[key].Text, r, count, time.Duration(at-now))
			}
		}
	}
}

// granted are how many permits the first key's checkers have of the current bucket, in all.
func granted(l storage.Leased) (all []int64) {
	for _, a := range l.Keys[0].Grants {
		all = append(all, a.Current)
	}
	return all
}

func (b *bench) wantGranted(why string, d *leaseDraft, want ...int64) {
	b.Helper()
	if got := granted(b.lease(d)); !slices.Equal(got, want) {
		b.Errorf("%s: granted %v, want %v", why, got, want)
	}
}

var leaseShapes = map[string]window.Shape{
	"one": perMinute, "many": inMinutes, "fixed": fixed, "few": {Length: 3 * time.Minute, Buckets: 3},
}

func testLease(b *bench) {
	b.longAgo()
	b.testLease()
}

// The store's clock is an hour behind the fleet's time.
func testLeaseAhead(b *bench) {
	b.away(time.Hour)
	b.testLease()
}

func (b *bench) testLease() {
	for name, shape := range leaseShapes {
		size := int64(shape.BucketSize())
		b.now = shape.End(shape.Bucket(b.now))
		ask := func(epoch uint64, known, want int64) *leaseDraft {
			return b.leases(10).want(name, shape, "a", epoch, known, want)
		}
		b.wantGranted("the first", ask(1, 0, 4), 4)
		b.wantGranted("a repeat: nothing new", ask(1, 0, 4), 4)
		b.wantGranted("a lost answer: nothing new either", ask(1, 0, 3), 4)
		b.wantGranted("no want", ask(1, 4, 0), 4)
		b.wantGranted("another's", ask(2, 0, 3), 3)
		b.wantGranted("more than there is", ask(1, 4, 100), 7)
		b.wantGranted("nothing is left", ask(3, 0, 1), 0)
		b.wantGranted("a checker that claims to know of more than there was gets nothing", ask(2, 7, 1), 3)

		back := func(epoch uint64, bucket int64, returned, want int64) *leaseDraft {
			return b.leases(10).ask(name, shape, "a", storage.LeaseRequest{
				Epoch: epoch, Bucket: shape.Bucket(b.now), Known: b.model.known(name, shape, "a", epoch, b.now), Want: want,
				Returns: []storage.Cell{{Bucket: bucket, Count: returned}},
			})
		}
		first := shape.Bucket(b.now)
		b.wantGranted("permits given back", back(2, first, 2, 0), 3)
		b.wantGranted("the same again gives back nothing", back(2, first, 2, 0), 3)
		b.wantGranted("an older number neither", back(2, first, 1, 0), 3)
		b.wantGranted("others can have them", ask(3, 0, 5), 2)
		b.wantGranted("more than were granted are all that were", back(3, first, 1e15, 0), 2)
		b.wantGranted("a checker that returns permits can have others at once", back(2, first, 3, 9), 6)
		b.wantGranted("permits of a bucket of which none were granted", back(4, first-1, 3, 0), 0)

		// All ten are held. They leave the window only as they would if they were hits.
		for range 2*shape.Live() + 1 {
			b.now += size/2 + int64(time.Millisecond)
			b.lease(b.leases(10).want(name, shape, "a", 5, b.model.known(name, shape, "a", 5, b.now), 10))
		}
		b.now += size
		b.lease(back(5, shape.Bucket(b.now)-1, 10, 10)) // of a bucket that may be gone
	}
}

// A request about another bucket gets permits of the current one, once, and the answer has both.
func testLeaseBuckets(b *bench) {
	b.longAgo()
	for name, shape := range leaseShapes {
		for _, away := range []int64{-1, 1, -7} {
			key := fmt.Sprint("key", away)
			current := shape.Bucket(b.now)
			ask := storage.LeaseRequest{Epoch: 1, Bucket: current + away, Known: 3, Want: 2}
			b.wantGranted("of another bucket", b.leases(10).ask(name, shape, key, ask), 2)
			b.wantGranted("again", b.leases(10).ask(name, shape, key, ask), 2)
			// Who speaks of the right one has to know it.
			b.wantGranted("unaware", b.leases(10).want(name, shape, key, 1, 0, 2), 2)
			b.wantGranted("aware", b.leases(10).want(name, shape, key, 1, 2, 2), 4)
			b.now += int64(shape.BucketSize())
			got := b.lease(b.leases(10).ask(name, shape, key, storage.LeaseRequest{Epoch: 1, Bucket: current, Known: 1, Want: 1}))
			if a := got.Keys[0].Grants[0]; a.Current != 1 || a.Requested != 4 {
				b.Errorf("%s: %+v, want 1 and 4", name, a)
			}
			b.now += int64(shape.Live()+1) * int64(shape.BucketSize())
		}
	}
}

// Permits are shared out in proportion, whatever the order of the requests.
func testLeaseShares(b *bench) {
	b.longAgo()
	for i, t := range []struct {
		limit       int64
		wants, want []int64
	}{
		{10, []int64{3, 3, 3}, []int64{3, 3, 3}},
		{10, []int64{10, 10}, []int64{5, 5}},
		{10, []int64{1000, 1000, 1000}, []int64{4, 3, 3}}, // a want beyond the limit is one for the limit
		{10, []int64{1, 10, 9}, []int64{1, 5, 4}},         // 0.5, 5, 4.5
		{10, []int64{0, 0, 10, 5}, []int64{0, 0, 7, 3}},   // 6.67, 3.33
		{1, []int64{1, 1, 1, 1, 1}, []int64{1, 0, 0, 0, 0}},
		{2, []int64{1, 2, 1, 2}, []int64{0, 1, 0, 1}},
		{100, []int64{100, 1}, []int64{99, 1}},
		{10, []int64{1000, 1}, []int64{9, 1}}, // 9.1, 0.9
	} {
		for name, shape := range leaseShapes {
			d := b.leases(t.limit)
			for epoch, w := range t.wants {
				d.want(fmt.Sprint(name, i), shape, "a", uint64(epoch)+1, 0, w)
			}
			b.wantGranted(fmt.Sprint(name, " ", t.wants), d, t.want...)
		}
	}
	// Of several checkers, only those that know of all their permits get more.
	d := b.leases(10).want("r", perMinute, "a", 1, 0, 4)
	b.wantGranted("one", d, 4)
	d.want("r", perMinute, "a", 2, 0, 8)
	b.wantGranted("and another", d, 4, 6)
}
