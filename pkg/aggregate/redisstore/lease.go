package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate/storage"
)

// Lease carries out a lease batch in one call of the script.
func (s *Store) Lease(ctx context.Context, batch *storage.LeaseBatch) (storage.Leased, error) {
	c := s.leases.Get().(*leaseCall)
	defer s.leases.Put(c)
	c.newKeys = &s.newKeys
	own := &s.shard(batch.Shard).own
	c.build(s.namespace, s.name, own.expected(batch.Seen), batch)
	reply, err := s.eval(ctx, &c.frame, leaseScript, leaseSource)
	var leased storage.Leased
	if err == nil {
		leased, err = c.readLeased(reply, batch, own)
	}
	if err != nil {
		return storage.Leased{}, fmt.Errorf("lease: %w", asBatchError(err))
	}
	return leased, nil
}

// leaseCall is one call of the lease script, in the making. One goroutine uses it at a time.
type leaseCall struct {
	frame
	newKeys *newKeys
	rules   []string // by rule of the batch, what stands for it in names
}

// build lays out the batch as the script's KEYS and ARGV.
func (c *leaseCall) build(namespace, name string, own int64, batch *storage.LeaseBatch) {
	c.begin(namespace, batch.Shard)
	c.name("meta")
	b := packList(c.body[:0], 7)
	b = packInt(b, int64(batch.Seen.Generation))
	b = packInt(b, int64(batch.Seen.Version))
	b = packInt(b, batch.Now/int64(time.Millisecond))
	b = c.packRules(b, batch)
	b = packList(b, 2*len(batch.Keys))
	for i := range batch.Keys {
		b = c.packKey(b, &batch.Keys[i])
	}
	c.name("by:", name)
	b = packInt(packInt(b, own), markLife.Milliseconds())
	c.body = b
	c.finish()
}

func (c *leaseCall) packRules(b []byte, batch *storage.LeaseBatch) []byte {
	c.rules = c.rules[:0]
	b = packList(b, 6*len(batch.Rules))
	for i := range batch.Rules {
		r := &batch.Rules[i]
		c.rules = append(c.rules, ruleName(r))
		slice := sliceOf(r, batch.Now)
		c.name("new:h:", c.rules[i], ":", strconv.FormatInt(slice, 10))
		b = packInt(b, r.Shape.Length.Milliseconds())
		b = packInt(b, int64(r.Shape.Buckets))
		b = packBool(b, r.Shape.Fixed)
		b = packInt(b, r.Limit)
		b = packInt(b, c.newKeys.most(c.ruleInShard(batch, i), batch.Now))
		b = packInt(b, (slice+2)*r.Shape.Length.Milliseconds())
	}
	return b
}

// ruleInShard keeps new keys with permits apart from new keys with counts.
func (c *leaseCall) ruleInShard(batch *storage.LeaseBatch, rule int) ruleInShard {
	return ruleInShard{batch.Shard, "h:" + c.rules[rule]}
}

func (c *leaseCall) packKey(b []byte, key *storage.LeaseKey) []byte {
	rule := c.rules[key.Rule]
	share, field := c.nameHeld(rule, key.Text)
	b = packInt(b, int64(key.Rule))
	b = packList(b, 4*len(key.Requests))
	for i := range key.Requests {
		a := &key.Requests[i]
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

// readLeased decodes the script's reply to a batch.
func (c *leaseCall) readLeased(reply string, batch *storage.LeaseBatch, own *ownBatches) (storage.Leased, error) {
	u := unpacker{rest: reply}
	u.list()
	leased := storage.Leased{
		State: storage.State{Generation: uint64(u.count()), Version: uint64(u.count())},
		Now:   u.count() * int64(time.Millisecond),
		Loss:  readLoss(&u),
		Keys:  make([]storage.LeasedKey, len(batch.Keys)),
	}
	batches := u.count()
	for i := range leased.Keys {
		k := &leased.Keys[i]
		k.Bucket, k.New, k.Returned, k.Overflows = u.count(), u.count(), u.count(), u.count() > 0
		k.Lost = u.count() * int64(time.Millisecond)
		k.Held = make([]storage.Cell, u.list()/2)
		for j := range k.Held {
			k.Held[j] = storage.Cell{Bucket: u.count(), Count: u.count()}
		}
		k.Grants = make([]storage.Grant, len(batch.Keys[i].Requests))
		for j := range k.Grants {
			k.Grants[j] = storage.Grant{Current: u.count(), Requested: u.count()}
		}
	}
	for i := range batch.Rules {
		length := int64(batch.Rules[i].Shape.Length)
		c.newKeys.note(c.ruleInShard(batch, i), batch.Now, (batch.Now/length+1)*length, length, u.count())
		if keys := u.count(); keys > 0 {
			leased.Overflow = append(leased.Overflow, storage.Overflow{Rule: i, Keys: keys})
		}
	}
	if u.err == nil {
		own.note(leased.State.Generation, batches)
	}
	return leased, u.err
}
