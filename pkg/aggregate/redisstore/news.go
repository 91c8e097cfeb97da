package redisstore

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/offpath-io/offpath/pkg/aggregate"
)

// news bounds the new keys of rules, so that callers who make them up cannot fill the server: of each rule a number in a slice of
// time as long as its window; and while memory is short none of the rule that has most of them in its shard.
type news struct {
	each int64 // per rule and shard

	mu    sync.Mutex
	short bool
	rules map[watched]made
	busy  map[uint32]watched // by shard, the rule with most new keys
}

// made is how many new keys a rule has had in a slice, and when that ends.
type made struct{ keys, end int64 }

// mostWatched bounds the rules that are remembered.
const mostWatched = 1 << 17

// tight is which part of maxmemory, in per cent, may be in use before memory is short.
const tight = 90

// most is how many new keys a rule may have in the present slice.
func (w *news) most(rule watched) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.short && w.busy[rule.shard] == rule {
		return 0
	}
	return w.each
}

// note takes in how many a rule has had, at a fleet time in a slice that ends then.
func (w *news) note(rule watched, now, end, keys int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.rules == nil || len(w.rules) >= mostWatched {
		w.rules, w.busy = make(map[watched]made), make(map[uint32]watched)
	}
	if most := w.rules[w.busy[rule.shard]]; keys > most.keys || most.end <= now {
		w.busy[rule.shard] = rule
	}
	w.rules[rule] = made{keys, end}
}

// look asks the servers how much memory they have left. One that does not answer is none that is filled.
func (s *Store) look(ctx context.Context) {
	var short atomic.Bool
	one := func(ctx context.Context, c *redis.Client) error {
		info, err := c.Info(ctx, "memory").Result()
		if err == nil && isShort(info) {
			short.Store(true)
		}
		return err
	}
	switch c := s.client.(type) {
	case *redis.ClusterClient:
		_ = c.ForEachMaster(ctx, one)
	case *redis.Client:
		_ = one(ctx, c)
	}
	s.news.mu.Lock()
	defer s.news.mu.Unlock()
	s.news.short = short.Load()
}

// isShort judges a server's memory by its INFO.
func isShort(info string) bool {
	most, err := strconv.ParseInt(infoField(info, "maxmemory"), 10, 64)
	used, err2 := strconv.ParseInt(infoField(info, "used_memory"), 10, 64)
	return err == nil && err2 == nil && most > 0 && used > most/100*tight
}

// slice is the number of the slice of time that new keys of a rule are counted in.
func (c *call) slice(rule int) int64 { return c.fold.Now / int64(c.fold.Rules[rule].Shape.Length) }

// nameNew adds what a rule's new keys are counted in to the script's keys.
func (c *call) nameNew(rule int) {
	c.name("new:", c.rules[rule], ":", strconv.FormatInt(c.slice(rule), 10))
}

// packBound packs how many new keys a rule may have.
func (c *call) packBound(b []byte, rule int) []byte {
	r := &c.fold.Rules[rule]
	b = packInt(packList(b, 3), c.news.most(watched{c.fold.Shard, c.rules[rule]}))
	b = packInt(b, (c.slice(rule)+2)*r.Shape.Length.Milliseconds())
	if r.Kind != aggregate.Admitted {
		return packBool(b, false)
	}
	return packText(b, r.Name+"\x00")
}

// readNew reads the reply for a rule's new keys.
func (c *call) readNew(u *unpacker, rule int, applied *aggregate.Applied) {
	r := &c.fold.Rules[rule]
	c.news.note(watched{c.fold.Shard, c.rules[rule]}, c.fold.Now, (c.slice(rule)+1)*int64(r.Shape.Length), u.count())
	if keys, hits := u.count(), u.count(); keys > 0 && r.Kind == aggregate.Admitted {
		applied.Overflow = append(applied.Overflow, aggregate.Overflow{Rule: rule, Keys: keys, Hits: hits})
	}
}
