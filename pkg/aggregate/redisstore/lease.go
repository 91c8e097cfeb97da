package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate"
)

// Lease carries out a lease fold in one call of the script. Permits are of the buckets that the shard's
// node is in by its own clock, if that is behind the fleet's: in a Cluster, the clocks of the nodes should
// differ by much less than a bucket, or checkers get permits that are over for them.
func (s *Store) Lease(ctx context.Context, fold *aggregate.LeaseFold) (aggregate.Leased, error) {
	c, _ := s.leases.Get().(*leaseCall)
	if c == nil {
		c = new(leaseCall)
	}
	defer s.leases.Put(c)
	c.news = &s.news
	c.build(s.namespace, fold)
	reply, err := s.eval(ctx, &c.frame, leaseScript, leaseSource)
	if err != nil {
		return aggregate.Leased{}, fmt.Errorf("lease: %w", ofFold(err))
	}
	leased, err := c.readLeased(reply, fold)
	if err != nil {
		return aggregate.Leased{}, fmt.Errorf("lease: %w", ofFold(err))
	}
	return leased, nil
}

// leaseCall is one call of the lease script, in the making. One goroutine uses it at a time.
type leaseCall struct {
	frame
	news  *news
	rules []string // by rule of the fold, what stands for it in names
}

// build lays out the fold as the script's KEYS and ARGV.
func (c *leaseCall) build(namespace string, fold *aggregate.LeaseFold) {
	c.begin(namespace, fold.Shard)
	c.name("meta")
	b := packList(c.body[:0], 5)
	b = packInt(b, int64(fold.Seen.Generation))
	b = packInt(b, int64(fold.Seen.Version))
	b = packInt(b, fold.Now/int64(time.Millisecond))
	b = c.packRules(b, fold)
	b = packList(b, 2*len(fold.Keys))
	for i := range fold.Keys {
		b = c.packKey(b, &fold.Keys[i])
	}
	c.body = b
	c.finish()
}

func (c *leaseCall) packRules(b []byte, fold *aggregate.LeaseFold) []byte {
	c.rules = c.rules[:0]
	b = packList(b, 6*len(fold.Rules))
	for i := range fold.Rules {
		r := &fold.Rules[i]
		c.rules = append(c.rules, ruleName(r))
		slice := sliceOf(r, fold.Now)
		c.name("new:h:", c.rules[i], ":", strconv.FormatInt(slice, 10))
		b = packInt(b, r.Shape.Length.Milliseconds())
		b = packInt(b, int64(r.Shape.Buckets))
		b = packBool(b, r.Shape.Fixed)
		b = packInt(b, r.Limit)
		b = packInt(b, c.news.most(c.watched(fold, i)))
		b = packInt(b, (slice+2)*r.Shape.Length.Milliseconds())
	}
	return b
}

// watched tells the new keys of which permits are held from those with counts.
func (c *leaseCall) watched(fold *aggregate.LeaseFold, rule int) watched {
	return watched{fold.Shard, "h:" + c.rules[rule]}
}

func (c *leaseCall) packKey(b []byte, key *aggregate.LeaseKey) []byte {
	rule := c.rules[key.Rule]
	share, field := c.nameHeld(rule, key.Text)
	b = packInt(b, int64(key.Rule))
	b = packList(b, 4*len(key.Asks))
	for i := range key.Asks {
		a := &key.Asks[i]
		c.name(share, strconv.FormatUint(a.Epoch, 16), ":", rule, ":", field)
		b = packInt(b, a.Bucket)
		b = packInt(b, a.Known)
		b = packInt(b, a.Want)
		b = packList(b, 2*len(a.Returns))
		for _, r := range a.Returns {
			b = packInt(packInt(b, r.Bucket), r.Count)
		}
	}
	return b
}

// readLeased makes sense of the script's reply to a fold.
func (c *leaseCall) readLeased(reply string, fold *aggregate.LeaseFold) (aggregate.Leased, error) {
	u := unpacker{rest: reply}
	u.list()
	leased := aggregate.Leased{
		State: aggregate.State{Generation: uint64(u.count()), Version: uint64(u.count())},
		Now:   u.count() * int64(time.Millisecond),
		Lost:  u.count() * int64(time.Millisecond),
		Loss:  readLoss(&u),
		Keys:  make([]aggregate.LeasedKey, len(fold.Keys)),
	}
	for i := range leased.Keys {
		k := &leased.Keys[i]
		k.Bucket, k.New, k.Returned, k.Overflows = u.count(), u.count(), u.count(), u.count() > 0
		k.Held = make([]aggregate.Cell, u.list()/2)
		for j := range k.Held {
			k.Held[j] = aggregate.Cell{Bucket: u.count(), Count: u.count()}
		}
		k.Asks = make([]aggregate.Granted, len(fold.Keys[i].Asks))
		for j := range k.Asks {
			k.Asks[j] = aggregate.Granted{Current: u.count(), Spoken: u.count()}
		}
	}
	for i := range fold.Rules {
		length := int64(fold.Rules[i].Shape.Length)
		c.news.note(c.watched(fold, i), fold.Now, (fold.Now/length+1)*length, length, u.count())
		if keys := u.count(); keys > 0 {
			leased.Overflow = append(leased.Overflow, aggregate.Overflow{Rule: i, Keys: keys})
		}
	}
	return leased, u.err
}
