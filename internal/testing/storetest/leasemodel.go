package storetest

import (
	"math/big"
	"slices"

	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/window"
)

// leases is what a store should know of permits: the simplest program that keeps the contract.
type leases struct {
	granted, returned map[holding]int64
	lost              map[uint32]int64 // by shard
}

// holding is what one checker has of one bucket.
type holding struct {
	counter
	epoch uint64
}

func newLeases() *leases {
	return &leases{granted: make(map[holding]int64), returned: make(map[holding]int64), lost: make(map[uint32]int64)}
}

// held is how many permits are held of each bucket of a key.
func (m *leases) held(c counter) map[int64]int64 {
	held := make(map[int64]int64)
	for h, n := range m.granted {
		bucket := h.bucket
		h.counter.bucket = c.bucket
		if h.counter == c {
			held[bucket] += n
		}
	}
	for h, n := range m.returned {
		bucket := h.bucket
		h.counter.bucket = c.bucket
		if h.counter == c {
			held[bucket] -= n
		}
	}
	return held
}

// lease carries out a fold at the time by which the store did, and returns what the store has to say.
func (m *leases) lease(f *aggregate.LeaseFold, now int64) []aggregate.LeasedKey {
	var keys []aggregate.LeasedKey
	for i := range f.Keys {
		k := &f.Keys[i]
		r := &f.Rules[k.Rule]
		at := func(a *aggregate.Ask, bucket int64) holding {
			return holding{counter{f.Shard, r.Name, r.Shape, aggregate.Admitted, k.Text, bucket}, a.Epoch}
		}
		done := aggregate.LeasedKey{Bucket: r.Shape.Bucket(now)}
		for j := range k.Asks {
			a := &k.Asks[j]
			for _, back := range a.Returns {
				h := at(a, back.Bucket)
				n := min(back.Count, m.granted[h])
				if !r.Shape.Gone(back.Bucket, now) && n > m.returned[h] {
					done.Returned += n - m.returned[h]
					m.returned[h] = n
				}
			}
		}
		wants := make([]int64, len(k.Asks))
		for j := range k.Asks {
			a := &k.Asks[j]
			have := m.granted[at(a, done.Bucket)]
			knows := a.Bucket == done.Bucket && have == a.Known || a.Bucket != done.Bucket && have == 0
			if knows && !m.quiet(f.Shard, r.Shape, now) {
				wants[j] = min(a.Want, r.Limit, window.MaxCount-have)
			}
		}
		held := m.held(counter{f.Shard, r.Name, r.Shape, aggregate.Admitted, k.Text, 0})
		for j, n := range divide(roomLeft(r.Shape, held, r.Limit, now), wants) {
			done.New += n
			if n > 0 {
				m.granted[at(&k.Asks[j], done.Bucket)] += n
			}
		}
		for j := range k.Asks {
			a := &k.Asks[j]
			done.Asks = append(done.Asks, aggregate.Granted{Current: m.granted[at(a, done.Bucket)], Spoken: m.granted[at(a, a.Bucket)]})
		}
		keys = append(keys, done)
	}
	return keys
}

// quiet reports whether a window with anything in it from before the loss may still be open.
func (m *leases) quiet(shard uint32, s window.Shape, now int64) bool {
	lost, ok := m.lost[shard]
	if !ok {
		return false
	}
	return now < lost+int64(s.Length) || !s.Gone(s.Bucket(lost), now)
}

// weigh is how many of the held permits lie in the window that ends at now, as a fraction; those of
// later buckets that the window of some later time shares with it count in full.
func weigh(s window.Shape, held map[int64]int64, now int64, ahead bool) *big.Rat {
	size := int64(s.BucketSize())
	current := s.Bucket(now)
	sum := new(big.Rat)
	for bucket, n := range held {
		switch age := current - bucket; {
		case age == int64(s.Buckets) && !s.Fixed:
			left := size - (now - current*size)
			sum.Add(sum, new(big.Rat).Mul(big.NewRat(n, 1), big.NewRat(left, size)))
		case age >= 0 && age < int64(s.Live()), ahead && age < 0 && -age < int64(s.Live()):
			sum.Add(sum, big.NewRat(n, 1))
		}
	}
	return sum
}

// roomLeft is the largest whole number that fits.
func roomLeft(s window.Shape, held map[int64]int64, limit, now int64) int64 {
	rest := new(big.Rat).Sub(big.NewRat(limit, 1), weigh(s, held, now, true))
	if rest.Sign() <= 0 {
		return 0
	}
	return new(big.Int).Quo(rest.Num(), rest.Denom()).Int64()
}

// divide shares out one permit after the other, each to whom it is most overdue: that is what the largest
// remainders come to, once everybody has the whole part of their share.
func divide(room int64, wants []int64) []int64 {
	all := new(big.Int)
	for _, w := range wants {
		all.Add(all, big.NewInt(w))
	}
	if all.Cmp(big.NewInt(room)) <= 0 {
		return wants
	}
	shares, due := make([]int64, len(wants)), make([]*big.Rat, len(wants))
	rest := room
	for i, w := range wants {
		due[i] = new(big.Rat).SetFrac(new(big.Int).Mul(big.NewInt(room), big.NewInt(w)), all)
		shares[i] = new(big.Int).Quo(due[i].Num(), due[i].Denom()).Int64()
		due[i].Sub(due[i], big.NewRat(shares[i], 1))
		rest -= shares[i]
	}
	for ; rest > 0; rest-- {
		most := slices.MaxFunc(due, func(a, b *big.Rat) int { return a.Cmp(b) }) // the first of equals
		i := slices.Index(due, most)
		shares[i]++
		due[i] = big.NewRat(-1, 1)
	}
	return shares
}
