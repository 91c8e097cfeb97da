package redisstore

import (
	"context"
	"strconv"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/offpath-io/offpath/pkg/aggregate/storage"
)

// newKeys bounds the new keys of rules, so that made-up keys cannot fill the server. Each rule may
// have a number of them in a slice of time as long as its window. While the server's memory is
// short, the rule with the most new keys in its shard gets no more; with less memory left, so do
// rules with fewer, since a made-up key is new under all rules that apply to it.
type newKeys struct {
	each int64 // per rule and shard

	mu    sync.Mutex
	spare float64 // free memory as a share of the reserve, 1 if it is not short
	rules map[ruleInShard]made
	busy  map[uint32]ruleInShard // by shard, the rule with most new keys
}

// ruleInShard is a rule in a shard.
type ruleInShard struct {
	shard uint32
	rule  string
}

// made counts the new keys of a rule in a slice and in the one before; end is when the slice ends.
type made struct{ keys, before, end, length int64 }

// all are those that have not expired at fleet time now.
func (m made) all(now int64) int64 {
	switch {
	case now >= m.end+m.length:
		return 0
	case now >= m.end:
		return m.keys
	}
	return m.keys + m.before
}

// mostRules bounds the rules that are remembered.
const mostRules = 1 << 17

// reserve is the part of maxmemory that should be free; with less, memory is short.
const reserve = 0.1

// most is how many new keys a rule may have in the slice of fleet time now.
func (w *newKeys) most(rule ruleInShard, now int64) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	most := w.rules[w.busy[rule.shard]].all(now)
	if most > 0 && w.spare < 1 && float64(w.rules[rule].all(now)) >= w.spare*float64(most) {
		return 0
	}
	return w.each
}

// note takes in how many new keys a rule has had at fleet time now, in a slice of this length and
// end.
func (w *newKeys) note(rule ruleInShard, now, end, length, keys int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.rules == nil || len(w.rules) >= mostRules {
		w.rules, w.busy = make(map[ruleInShard]made), make(map[uint32]ruleInShard)
	}
	this := w.rules[rule]
	switch {
	case this.end > end: // a late batch, of keys that are known by now
		return
	case this.end == end-length:
		this.before = this.keys
	case this.end < end:
		this.before = 0
	}
	this.keys, this.end, this.length = keys, end, length
	w.rules[rule] = this
	if most := w.rules[w.busy[rule.shard]]; this.all(now) > most.all(now) || most.end <= now {
		w.busy[rule.shard] = rule
	}
}

// readMemory asks the servers how much memory they have left. One that does not answer counts as
// not short.
func (s *Store) readMemory(ctx context.Context) {
	var mu sync.Mutex
	spare := 1.0
	one := func(ctx context.Context, c *redis.Client) error {
		info, err := c.Info(ctx, "memory").Result()
		if err == nil {
			mu.Lock()
			defer mu.Unlock()
			spare = min(spare, spareOf(info))
		}
		return err
	}
	switch c := s.Client().(type) {
	case *redis.ClusterClient:
		_ = c.ForEachMaster(ctx, one)
	case *redis.Client:
		_ = one(ctx, c)
	}
	s.newKeys.mu.Lock()
	defer s.newKeys.mu.Unlock()
	s.newKeys.spare = spare
}

// spareOf is which part of the memory that should be left a server has left, by its INFO: from 0 to
// 1.
func spareOf(info string) float64 {
	most, err := strconv.ParseInt(infoField(info, "maxmemory"), 10, 64)
	used, err2 := strconv.ParseInt(infoField(info, "used_memory"), 10, 64)
	if err != nil || err2 != nil || most <= 0 {
		return 1
	}
	return min(max(float64(most-used)/float64(most)/reserve, 0), 1)
}

// sliceOf is the number of the slice of time that new keys of a rule are counted in.
func sliceOf(r *storage.Rule, now int64) int64 { return now / int64(r.Shape.Length) }

func (c *call) slice(rule int) int64 { return sliceOf(&c.batch.Rules[rule], c.batch.Now) }

// nameNew adds what a rule's new keys are counted in to the script's keys.
func (c *call) nameNew(rule int) {
	c.name("new:", c.rules[rule], ":", strconv.FormatInt(c.slice(rule), 10))
}

// packBound packs how many new keys a rule may have.
func (c *call) packBound(b []byte, rule int) []byte {
	r := &c.batch.Rules[rule]
	b = packInt(packList(b, 3), c.newKeys.most(ruleInShard{c.batch.Shard, c.rules[rule]}, c.batch.Now))
	b = packInt(b, (c.slice(rule)+2)*r.Shape.Length.Milliseconds())
	if r.Kind != storage.Admitted {
		return packBool(b, false)
	}
	return packText(b, r.Name+"\x00")
}

// readNew reads the reply for a rule's new keys.
func (c *call) readNew(u *unpacker, rule int, applied *storage.Applied) {
	r := &c.batch.Rules[rule]
	length := int64(r.Shape.Length)
	c.newKeys.note(ruleInShard{c.batch.Shard, c.rules[rule]}, c.batch.Now, (c.slice(rule)+1)*length, length, u.count())
	if keys, hits := u.count(), u.count(); keys > 0 && r.Kind == storage.Admitted {
		applied.Overflow = append(applied.Overflow, storage.Overflow{Rule: rule, Keys: keys, Hits: hits})
	}
}
