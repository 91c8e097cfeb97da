package storetest

import (
	"math/big"
	"math/bits"
	"slices"

	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/window"
)

// leases is what a store should know of a key's permits.
type leases struct {
	granted, returned map[holding]int64
	held              map[int64]int64 // granted and not returned, by bucket
}

// holding is what one checker has of one bucket.
type holding struct {
	epoch  uint64
	bucket int64
}

func (m *model) leasesOf(e entity) *leases {
	l := m.leases[e]
	if l == nil {
		l = &leases{make(map[holding]int64), make(map[holding]int64), make(map[int64]int64)}
		m.leases[e] = l
	}
	return l
}

// known is how many permits of the current bucket a checker would know of, had it received all
// answers.
func (m *model) known(name string, shape window.Shape, key string, epoch uint64, now int64) int64 {
	e := entity{0, name, shape, storage.Admitted, key}
	return m.leasesOf(e).granted[holding{epoch, shape.Bucket(now)}]
}

// lease carries out a batch at the time by which the store did, and returns what the store has to
// say.
func (m *model) lease(f *storage.LeaseBatch, now int64) []storage.LeasedKey {
	var keys []storage.LeasedKey
	for i := range f.Keys {
		k := &f.Keys[i]
		r := &f.Rules[k.Rule]
		l := m.leasesOf(entity{f.Shard, r.Name, r.Shape, storage.Admitted, k.Text})
		keys = append(keys, l.lease(r, k.Requests, now, m.quiet(f.Shard, r.Shape, now)))
	}
	return keys
}

func (l *leases) lease(r *storage.Rule, asks []storage.LeaseRequest, now int64, quiet bool) storage.LeasedKey {
	done := storage.LeasedKey{Bucket: r.Shape.Bucket(now)}
	for _, a := range asks {
		for _, back := range a.Returns {
			h := holding{a.Epoch, back.Bucket}
			more := min(back.Count, l.granted[h]) - l.returned[h]
			if !r.Shape.Gone(back.Bucket, now) && more > 0 {
				done.Returned += more
				l.returned[h] += more
				l.held[back.Bucket] -= more
			}
		}
	}
	wants := make([]int64, len(asks))
	for j, a := range asks {
		have := l.granted[holding{a.Epoch, done.Bucket}]
		knows := a.Bucket == done.Bucket && have == a.Known || a.Bucket != done.Bucket && have == 0
		if knows && !quiet {
			wants[j] = min(a.Want, r.Limit, window.MaxCount-have)
		}
	}
	room := max(r.Limit-weigh(r.Shape, l.held, now, true), 0)
	for j, n := range divide(room, wants) {
		if n > 0 {
			done.New += n
			l.granted[holding{asks[j].Epoch, done.Bucket}] += n
			l.held[done.Bucket] += n
		}
	}
	for _, a := range asks {
		done.Grants = append(done.Grants, storage.Grant{
			Current: l.granted[holding{a.Epoch, done.Bucket}], Requested: l.granted[holding{a.Epoch, a.Bucket}],
		})
	}
	return done
}

// quiet reports whether a window with anything in it from before the loss may still be open.
func (m *model) quiet(shard uint32, s window.Shape, now int64) bool {
	lost, ok := m.lost[shard]
	return ok && now < lost+int64(s.Live())*int64(s.BucketSize())
}

// weigh is how many of the held permits lie in the window that ends at now, rounded up; if ahead,
// those of later buckets that the window of some later time shares with it count in full.
func weigh(s window.Shape, held map[int64]int64, now int64, ahead bool) int64 {
	size := int64(s.BucketSize())
	current := s.Bucket(now)
	sum := int64(0)
	for bucket, n := range held {
		switch age := current - bucket; {
		case age == int64(s.Buckets) && !s.Fixed: // n × left ÷ size
			high, low := bits.Mul64(uint64(n), uint64(size-(now-current*size)))
			whole, rest := bits.Div64(high, low, uint64(size))
			sum += int64(whole) + int64(min(rest, 1))
		case age >= 0 && age < int64(s.Live()), ahead && age < 0 && -age < int64(s.Live()):
			sum += n
		}
	}
	return sum
}

// divide shares out one permit after the other, each to the request that is most overdue: the
// result equals the largest remainders, once each has the whole part of its share.
func divide(room int64, wants []int64) []int64 {
	all := new(big.Int)
	for _, w := range wants {
		all.Add(all, big.NewInt(w))
	}
	if all.Cmp(big.NewInt(room)) <= 0 {
		return wants
	}
	shares, due := make([]int64, len(wants)), make([]*big.Int, len(wants))
	rest := room
	for i, w := range wants {
		share := new(big.Int).Mul(big.NewInt(room), big.NewInt(w))
		share, due[i] = share.QuoRem(share, all, new(big.Int))
		shares[i] = share.Int64()
		rest -= shares[i]
	}
	for ; rest > 0; rest-- {
		most := slices.MaxFunc(due, func(a, b *big.Int) int { return a.Cmp(b) }) // the first of equals
		i := slices.Index(due, most)
		shares[i]++
		due[i] = big.NewInt(-1)
	}
	return shares
}
