package storetest

import (
	"fmt"
	"sort"
	"time"

	"pgregory.net/rapid"

	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/window"
)

// What hits cost less than was estimated is taken off the level, as if it had never been charged: what has drained
// of it does not come back. Limit 100 a minute in 60 buckets of a second: 100 parts of 60 to a hit drain in each.
func testSettleLevel(b *bench) {
	d := b.fresh().add("tokens", tokens, "a", 0, 90).add("tokens", tokens, "b", 0, 90).add("tokens", tokens, "c", 0, 90)
	b.apply(d)
	b.apply(b.fresh().giveBack("tokens", tokens, "a", 0, 30).giveBack("tokens", tokens, "b", 0, 90))
	b.apply(b.fresh().giveBack("tokens", tokens, "c", 0, 1000)) // nonsense: all, and no more
	b.now += 30 * int64(time.Second)
	b.apply(b.fresh().add("tokens", tokens, "b", 0, 10).add("tokens", tokens, "c", 0, 10))
	b.apply(b.fresh().giveBack("tokens", tokens, "a", 30, 20)) // of the first bucket, of which 50 have drained by now
	b.now += 61 * int64(time.Second)
	for _, step := range []struct {
		why     string
		after   time.Duration
		a, b, c int64 // levels, in parts of a hit
	}{
		{"of the 40 hits that a cost none are left, of the later ones all are", 0, 0, 600, 600},
		{"then they drain", time.Second, 0, 500, 500},
	} {
		b.now += int64(step.after)
		d := b.fold()
		for _, key := range []string{"a", "b", "c"} {
			d.read("tokens", tokens, key)
		}
		levels := b.apply(d).Levels
		if got, want := [3]int64{levels[0].Parts, levels[1].Parts, levels[2].Parts}, [3]int64{step.a, step.b, step.c}; got != want {
			b.Errorf("%s: %v, want %v", step.why, got, want)
		}
	}
	b.checkLedger()
}

// charged is a hit of an estimate, settled at its true cost.
type charged struct {
	bucket, estimate, cost int64
	settled                bool
}

// arrival is a report of a hit, or of its settlement, that is applied at some time; there may be two of each.
type arrival struct {
	hit        int
	settlement bool
	at         int64
}

// Whatever hits there were, at whatever estimates and costs, and in whatever order, how late and how often their reports
// and settlements arrive while their buckets are live: a key's level is that of a bucket that was charged the true costs.
func testSettleAnyOrder(b *bench) {
	names := []string{"tokens", "queue", "coarse"}
	run := 0
	rapid.Check(b.T, func(t *rapid.T) {
		run++
		b.now += 3 * int64(time.Minute)
		name := rapid.SampledFrom(names).Draw(t, "shape")
		shape := shapes[name]
		hits := chargedHits(shape, b.now).Draw(t, "hits")
		arrivals := arrivalsOf(t, shape, hits, b.now)
		p := &parcel{bench: b, t: t, name: name, shape: shape, key: fmt.Sprint("any-", run), epoch: uint64(run) << 20}
		for _, a := range arrivals {
			p.deliver(a, hits[a.hit])
		}
		gone := aggregate.GoneAt(shape, shape.Bucket(b.now))
		for _, after := range []int64{0, int64(shape.BucketSize()), int64(shape.Length) / 2, 2 * int64(shape.Length)} {
			p.check(hits, gone+after)
		}
	})
}

// chargedHits are hits of buckets that a window can still touch when the last of them is current.
func chargedHits(shape window.Shape, now int64) *rapid.Generator[[]charged] {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) charged {
		return charged{
			bucket:   shape.Bucket(now) + rapid.Int64Range(0, int64(shape.Live())-1).Draw(t, "bucket"),
			estimate: rapid.Int64Range(1, 40).Draw(t, "estimate"),
			cost:     rapid.Int64Range(0, 50).Draw(t, "cost"),
			settled:  rapid.IntRange(0, 3).Draw(t, "settled") > 0,
		}
	}), 1, 12)
}

// arrivalsOf lets everything arrive at least once before the first bucket is gone.
func arrivalsOf(t *rapid.T, shape window.Shape, hits []charged, now int64) []arrival {
	gone := aggregate.GoneAt(shape, shape.Bucket(now))
	var all []arrival
	for i, h := range hits {
		begin := shape.End(h.bucket - 1)
		for _, settlement := range []bool{false, true} {
			if settlement && !h.settled {
				continue
			}
			for range rapid.IntRange(1, 2).Draw(t, "times") {
				all = append(all, arrival{i, settlement, rapid.Int64Range(begin, gone-1).Draw(t, "at")})
			}
		}
	}
	sort.SliceStable(all, func(i, j int) bool { return all[i].at < all[j].at })
	return all
}

// parcel is one key that the arrivals of one run are about.
type parcel struct {
	*bench
	t     *rapid.T
	name  string
	shape window.Shape
	key   string
	epoch uint64
}

// deliver applies an arrival to the store that one of two workers has; what has come before changes nothing.
func (p *parcel) deliver(a arrival, h charged) {
	d := &draft{aggregate.Fold{Now: a.at, Seen: p.seen}}
	age := p.shape.Bucket(a.at) - h.bucket
	id := p.epoch | uint64(a.hit)<<1
	switch more := h.cost - h.estimate; {
	case !a.settlement:
		d.mark(id, 1).add(p.name, p.shape, p.key, age, h.estimate)
	case more > 0:
		d.settle(p.epoch, uint64(a.hit)+1).add(p.name, p.shape, p.key, age, more)
	case more < 0:
		d.settle(p.epoch, uint64(a.hit)+1).giveBack(p.name, p.shape, p.key, age, -more)
	default:
		d.settle(p.epoch, uint64(a.hit)+1)
	}
	if a.settlement {
		p.last++
		d.mark(2, p.last)
	}
	store := p.Store
	if a.at%2 == 1 {
		store = p.Other
	}
	applied, err := store.Apply(p.Context(), &d.Fold)
	if err != nil {
		p.t.Fatal(err)
	}
	if len(applied.Repeated)+len(applied.Spent) == 0 {
		p.seen, p.model.state[0] = applied.State, applied.State
	}
}

// check holds the level at some time against that of the true costs.
func (p *parcel) check(hits []charged, at int64) {
	d := &draft{aggregate.Fold{Now: at, Seen: p.seen}}
	d.read(p.name, p.shape, p.key)
	d.read(p.name+refunded, p.shape, p.key)
	applied, err := p.Store.Apply(p.Context(), &d.Fold)
	if err != nil {
		p.t.Fatal(err)
	}
	newest := p.shape.Bucket(at)
	counts := make([]int64, p.shape.Live())
	for i, sign := range []int64{+1, -1} {
		for _, c := range applied.Totals[i] {
			if age := newest - c.Bucket; age < int64(len(counts)) {
				counts[age] += sign * c.Count
			}
		}
	}
	got := d.Rules[0].Drain().Settle(applied.Levels[0], counts, newest, newest).Parts
	if want := trueLevel(&d.Rules[0], hits, newest); got != want {
		p.t.Fatalf("%s: at the end of bucket %d the level is %d parts, of true costs it is %d", p.name, newest, got, want)
	}
}

// trueLevel is the level at the end of a bucket if each hit had been charged its true cost, in parts of a hit: bucket
// by bucket and hit by hit.
func trueLevel(r *aggregate.Rule, hits []charged, last int64) (parts int64) {
	first := last
	for _, h := range hits {
		first = min(first, h.bucket)
	}
	for b := first; b <= last; b++ {
		parts = max(parts-r.Limit, 0)
		for _, h := range hits {
			switch {
			case h.bucket == b && h.settled:
				parts += h.cost * int64(r.Shape.Buckets)
			case h.bucket == b:
				parts += h.estimate * int64(r.Shape.Buckets)
			}
		}
	}
	return parts
}
