package storetest

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/window"
)

// holder is a checker with permits of a key, over a network that loses, repeats and reorders.
type holder struct {
	epoch           uint64
	known, returned map[int64]int64        // permits, by bucket
	old             []storage.LeaseRequest // requests that may arrive again
}

// request is what a holder says at a time that its clock is off by.
func (h *holder) request(random *rand.Rand, s window.Shape, now int64) storage.LeaseRequest {
	if n := len(h.old); n > 0 && random.IntN(3) == 0 { // one of the last ones arrives again, or only now
		return h.old[max(0, n-1-random.IntN(5))]
	}
	off := random.Int64N(int64(s.BucketSize())) - int64(s.BucketSize())/2
	a := storage.LeaseRequest{Epoch: h.epoch, Bucket: s.Bucket(now + off/4), Want: random.Int64N(12)}
	a.Known = h.known[a.Bucket]
	for range random.IntN(3) {
		bucket := a.Bucket - random.Int64N(int64(s.Live())+1)
		if rest := h.known[bucket] - h.returned[bucket]; rest > 0 {
			h.returned[bucket] += random.Int64N(rest + 1)
			a.Returns = append(a.Returns, storage.Cell{Bucket: bucket, Count: h.returned[bucket]})
		}
	}
	h.old = append(h.old, a)
	return a
}

// observe takes in an answer, which may be an old one.
func (h *holder) observe(a *storage.LeaseRequest, k *storage.LeasedKey, g storage.Grant) {
	h.known[k.Bucket] = max(h.known[k.Bucket], g.Current)
	h.known[a.Bucket] = max(h.known[a.Bucket], g.Requested)
}

// Random batches of several checkers, with repeats, losses, reordering, returns and workers whose
// clocks differ, as the model does them. The bench sees to it that no window ever holds more than
// the limit.
func testLeaseRandom(b *bench) {
	b.longAgo()
	random := rand.New(rand.NewPCG(3, 4))
	for name, shape := range each(leaseShapes) {
		limit := 1 + random.Int64N(30)
		holders := make(map[string]*holder)
		size := int64(shape.BucketSize()) / int64(time.Millisecond)
		begin := b.now
		for range b.rounds() {
			b.now += random.Int64N(size/2) * int64(time.Millisecond)
			if random.IntN(40) == 0 { // everything melts
				b.now += int64(shape.Live()) * int64(shape.BucketSize())
			}
			d := b.leases(limit)
			store := b.Store
			if random.IntN(2) == 0 {
				store = b.Other
				d.Now -= min(random.Int64N(size), (b.now-begin)/int64(time.Millisecond)) * int64(time.Millisecond)
			}
			b.round(store, d, name, shape, holders, random)
		}
	}
}

// round is one batch of random checkers of two keys.
func (b *bench) round(
	store storage.Store, d *leaseDraft, name string, shape window.Shape, holders map[string]*holder, random *rand.Rand,
) {
	b.Helper()
	for _, key := range []string{"a", "b"} {
		for epoch := range uint64(6) {
			if random.IntN(2) == 0 {
				continue
			}
			id := fmt.Sprint(key, epoch)
			if holders[id] == nil || random.IntN(100) == 0 { // or killed, and another one in its place
				life := epoch + uint64(random.IntN(1000))*10
				holders[id] = &holder{epoch: life, known: make(map[int64]int64), returned: make(map[int64]int64)}
			}
			d.ask(name, shape, key, holders[id].request(random, shape, d.Now))
		}
	}
	got := b.leaseOf(store, d)
	for i := range d.Keys {
		for j := range d.Keys[i].Requests {
			a := &d.Keys[i].Requests[j]
			h := holders[fmt.Sprint(d.Keys[i].Text, a.Epoch%10)]
			if random.IntN(4) > 0 && h.epoch == a.Epoch {
				h.observe(a, &got.Keys[i], got.Keys[i].Grants[j])
			}
		}
	}
}

// Two workers ask at the same time, for the same checkers and for others: all permits together are
// within the limit, and an ask that came twice was granted once.
func testLeaseTwoWorkers(b *bench) {
	b.longAgo()
	const limit, rounds = 1000, 100
	var workers sync.WaitGroup
	sums := make([]int64, 2)
	for w, store := range []storage.Store{b.Store, b.Other} {
		workers.Go(func() {
			for i := range uint64(rounds) {
				d := &leaseDraft{storage.LeaseBatch{Now: b.now}, limit}
				d.want("one", perMinute, "a", 1+i, 0, 5).want("one", perMinute, "a", uint64(1000*(w+1))+i, 0, 4)
				got, err := store.Lease(b.Context(), &d.LeaseBatch)
				if err != nil {
					b.Error(err)
					return
				}
				sums[w] += got.Keys[0].New
				if n := got.Keys[0].Grants[0].Current; n > 5 {
					b.Errorf("checker %d has %d permits of 5 that it asked for, twice", 1+i, n)
				}
			}
		})
	}
	workers.Wait()
	if sum := sums[0] + sums[1]; sum != limit {
		b.Errorf("%d permits granted, want all %d", sum, limit)
	}
	d := &leaseDraft{storage.LeaseBatch{Now: b.now}, limit}
	got := must(b.Store.Lease(b.Context(), &d.want("one", perMinute, "a", 1, 0, 0).LeaseBatch))(b)
	if len(got.Keys[0].Held) != 1 || got.Keys[0].Held[0].Count != limit {
		b.Errorf("held: %v", got.Keys)
	}
	if got.State.Version == 0 || got.State.Version > 2*rounds {
		b.Errorf("version %d after %d batches", got.State.Version, 2*rounds)
	}
}

// Odd texts, rules of one name in several shapes, and shards lease apart.
func testLeaseKeys(b *bench) {
	b.longAgo()
	for range 2 {
		n := int64(1)
		d := b.leases(1 << 40)
		for _, shape := range []window.Shape{inTwo, perMinute, fixed, inMinutes, {Length: time.Minute, Buckets: 60}} {
			for _, text := range oddTexts() {
				d.want("rule", shape, text, 1, 0, n)
				d.want("rule:", shape, text, 1<<63, 0, n+1)
				n += 2
			}
		}
		b.lease(d)
	}
	for shard := range uint32(5) {
		d := b.leases(10).want("rule", perMinute, "shard", 1, 0, int64(shard)+1)
		d.Shard, d.Seen = shard, b.model.state[shard]
		b.wantGranted("a shard", d, int64(shard)+1)
	}
}

// Counts as large as they may be neither fail nor exceed the limit.
func testLeaseLarge(b *bench) {
	b.longAgo()
	year := window.Shape{Length: 366 * 24 * time.Hour, Buckets: 1}
	b.now -= 4 * year.Length.Nanoseconds() // in the year's case, some of that passes below
	for name, shape := range map[string]window.Shape{"one": perMinute, "many": inMinutes, "fixed": fixed, "year": year} {
		const limit = int64(1e15)
		size := int64(shape.BucketSize())
		b.now = (shape.Bucket(b.now)+1)*size + size/3/int64(time.Millisecond)*int64(time.Millisecond)
		b.wantGranted(name, b.leases(limit).want(name, shape, "a", 1, 0, 999_999_999_999_937), 999_999_999_999_937)
		b.wantGranted(name, b.leases(limit).want(name, shape, "a", 2, 0, limit), 63)
		for range 16 { // into the next buckets
			b.now += size / 7 / int64(time.Millisecond) * int64(time.Millisecond)
			b.lease(b.leases(limit).want(name, shape, "a", 1, b.model.known(name, shape, "a", 1, b.now), limit))
		}
		// Permits that were granted and returned again and again do not add up to more than a count
		// may be.
		b.wantGranted(name, b.leases(limit).want(name, shape, "again", 1, 0, limit), limit)
		now := shape.Bucket(b.now)
		b.wantGranted(name, b.leases(limit).ask(name, shape, "again", storage.LeaseRequest{
			Epoch: 1, Bucket: now, Known: limit, Want: limit, Returns: []storage.Cell{{Bucket: now, Count: limit}},
		}), limit)
		// Shares of what several large wishes leave may be rounded; they are never more than there
		// is.
		d := b.leases(limit)
		for epoch := range uint64(7) {
			d.want(name, shape, "several", epoch+1, 0, limit/3)
		}
		if sum := b.leaseUnchecked(d).Keys[0].New; sum > limit || sum < limit-7 {
			b.Errorf("%s: %d granted of %d", name, sum, limit)
		}
	}
	d := b.leases(10) // more than a script can unpack at once
	for key := range 1000 {
		for epoch := range uint64(12) {
			d.want("huge", perMinute, fmt.Sprint("user:", key), epoch+1, 0, int64(epoch))
		}
	}
	b.lease(d)
}
