package redisstore

import (
	"slices"
	"strconv"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate/storage"
)

// markLife is how long a mark is kept after its checker's last report.
const markLife = 24 * time.Hour

// call is one call of the apply script: its keys and arguments in the making, and what is needed to
// understand the reply. It keeps its memory for the next call. One goroutine uses it at a time.
type call struct {
	memory   *memory
	shard    *shard
	era      uint64 // of the shard, when the call was made; groupEra likewise
	groupEra uint64
	blind    bool // it asks for all, and takes nothing from the memory
	known    bool // after it, this process knows the shard
	newKeys  *newKeys
	groups   uint32
	batch    *storage.Batch
	frame

	rules  []string  // by rule of the batch, what stands for it in names
	byRule [][]int32 // by rule of the batch, its keys
	fields []string  // by key of the batch, what stands for it in a hash
	long   []bool    // by key of the batch
	plan
}

// build lays out the batch as the script's KEYS and ARGV.
func (c *call) build(namespace, name string, batch *storage.Batch) {
	c.batch = batch
	known := c.shard.known.Load()
	c.era, c.groupEra = known.era, known.groups
	c.begin(namespace, batch.Shard)
	c.sortKeys()
	c.makePlan()

	c.name("meta")
	c.name("ledger")
	for _, m := range batch.Marks {
		c.name("mark:", strconv.FormatUint(m.Epoch, 16))
	}
	c.nameSettled()
	c.nameCredits()
	b := packList(c.body[:0], 18)
	b = packInt(b, int64(batch.Seen.Generation))
	b = packInt(b, int64(batch.Seen.Version))
	b = packInt(b, batch.Now/int64(time.Millisecond))
	b = packInt(b, markLife.Milliseconds())
	b = packList(b, len(batch.Marks))
	for _, m := range batch.Marks {
		b = packDigits(b, int64(m.Sequence))
	}
	b = c.packLedger(b)
	b = c.packAdds(b)
	b = c.packReads(b)
	b = c.packOnes(b)
	b = c.packChanges(b)
	b = c.packMany(b)
	b = c.packSettled(b)
	b = c.packPermits(b)
	b = c.packCredits(b)
	b = packInt(b, batch.MaxChunks)
	b = packInt(packInt(b, known.behind), known.clock)
	b = c.packOldest(b)
	c.name("by:", name)
	c.body = b
	c.finish()
}

// writes reports whether the batch adds anything.
func (c *call) writes() bool {
	return len(c.batch.Marks) > 0 || slices.ContainsFunc(c.items, func(it item) bool { return it.delta > 0 })
}

// sortKeys lists the batch's keys by rule, and finds what stands for rules and keys in the store.
func (c *call) sortKeys() {
	c.rules = c.rules[:0]
	for i := range c.batch.Rules {
		c.rules = append(c.rules, ruleName(&c.batch.Rules[i]))
	}
	for len(c.byRule) < len(c.batch.Rules) {
		c.byRule = append(c.byRule, nil)
	}
	for i := range c.byRule {
		c.byRule[i] = c.byRule[i][:0]
	}
	c.fields, c.long = c.fields[:0], c.long[:0]
	for i := range c.batch.Keys {
		key := &c.batch.Keys[i]
		c.byRule[key.Rule] = append(c.byRule[key.Rule], int32(i))
		field, long := fieldOf(key.Text)
		c.fields, c.long = append(c.fields, field), append(c.long, long)
	}
}

func (c *call) packLedger(b []byte) []byte {
	n := 0
	c.eachOutcome(func(_, _ string, _ int64) { n++ })
	b = packList(b, 2*n)
	c.eachOutcome(func(rule, outcome string, hits int64) {
		b = packDigits(packText(b, rule+"\x00"+outcome), hits)
	})
	return b
}

// eachOutcome calls do with what the batch adds to the ledger.
func (c *call) eachOutcome(do func(rule, outcome string, hits int64)) {
	for i, t := range c.batch.Ledger {
		for j, hits := range [...]int64{t.Counted, t.Late, t.Refused, t.Refunded, t.Settled} {
			if hits > 0 {
				do(c.batch.Rules[i].Name, outcomes[j], hits)
			}
		}
	}
}

// live is the range of a rule's buckets that are live at the batch's time.
func (c *call) live(rule int) (first, current int64) {
	s := c.batch.Rules[rule].Shape
	current = s.Bucket(c.batch.Now)
	return current - int64(s.Live()) + 1, current
}

// expiry is when a bucket expires, in ms of fleet time.
func (c *call) expiry(rule int, bucket int64) int64 {
	return storage.ExpiryOf(c.batch.Rules[rule].Shape, bucket) / int64(time.Millisecond)
}
