package redisstore

import (
	"math"
	"strconv"

	"github.com/offpath-io/offpath/pkg/aggregate/storage"
)

// isOne reports whether a rule is of those whose keys share a hash for each bucket.
func (c *call) isOne(rule int) bool {
	return c.batch.Rules[rule].Shape.Buckets == 1 && !c.batch.Rules[rule].BesideLevel()
}

// packOnes packs the keys of rules of one bucket that may be new: a column for each live bucket,
// the current one last.
func (c *call) packOnes(b []byte) []byte {
	n := 0
	c.eachWhole(true, func(int, []int32) { n++ })
	b = packList(b, 3*n)
	c.eachWhole(true, func(rule int, keys []int32) {
		first, current := c.live(rule)
		columns := int(current-first) + 1
		c.nameNew(rule)
		b = c.packBound(b, rule)
		b = packList(b, columns)
		for bucket := first; bucket <= current; bucket++ {
			b = packInt(b, c.expiry(rule, bucket))
		}
		b = packList(b, (1+columns)*len(keys))
		for _, key := range keys {
			b = packText(b, c.fields[key])
			for _, it := range c.items[c.from[key]:][:columns] {
				c.groupName(c.bucketName(rule, it.bucket), key)
				if it.delta > 0 {
					b = packDigits(b, it.delta)
				} else {
					b = packBool(b, false)
				}
			}
		}
	})
	return b
}

// eachWhole calls do with the keys of which all is asked for, by rule: with those of one bucket, or
// the others.
func (c *call) eachWhole(one bool, do func(rule int, keys []int32)) {
	for rule := range c.batch.Rules {
		if keys := c.wholes[rule]; len(keys) > 0 && c.isOne(rule) == one {
			do(rule, keys)
		}
	}
}

// packOldest packs the oldest bucket that is added to, of each rule of one bucket, for aggregators
// from before owners.
func (c *call) packOldest(b []byte) []byte {
	var all []int64
	for rule := range c.batch.Rules {
		if oldest := c.oldest(rule); c.isOne(rule) && oldest < math.MaxInt64 {
			c.name("r:", c.rules[rule])
			all = append(all, oldest)
		}
	}
	b = packList(b, len(all))
	for _, oldest := range all {
		b = packInt(b, oldest)
	}
	return b
}

// oldest is the oldest bucket of a rule that is added to.
func (c *call) oldest(rule int) int64 {
	oldest := int64(math.MaxInt64)
	for _, key := range c.byRule[rule] {
		for _, cell := range c.batch.Keys[key].Cells {
			if cell.Count > 0 {
				oldest = min(oldest, cell.Bucket)
				break // they are in ascending order
			}
		}
	}
	return oldest
}

// bucketName is what the names of a bucket's hashes begin with. Those of a rule's live buckets,
// which are asked for again and again, are made once.
func (c *call) bucketName(rule int, bucket int64) string {
	b := &c.bucketNames[bucket&1]
	if b.name == "" || b.rule != rule || b.bucket != bucket {
		*b = bucketName{rule, bucket, c.pre + "1:" + c.rules[rule] + ":" + strconv.FormatInt(bucket, 10) + ":"}
	}
	return b.name
}

type bucketName struct {
	rule   int
	bucket int64
	name   string
}

// groupName adds the hash that a key is in to the script's keys.
func (c *call) groupName(bucket string, key int32) {
	c.names = append(c.names, bucket...)
	c.names = appendGroup(c.names, c.checks[key]&(c.groups-1), c.long[key])
	c.ends = append(c.ends, len(c.names))
}

// totalsOne returns the totals of a key of a rule of one bucket, and remembers them; false if
// something that was to be remembered is not. What is added is remembered even then. The memory is
// locked.
func (c *call) totalsOne(rule int, key int32, e entry, dst []storage.Cell) (_ []storage.Cell, complete bool) {
	complete = true
	first, current := c.live(rule)
	items := c.items[c.from[key]:c.to[key]]
	live := int(current-first) + 1
	if e == nil && c.learns(rule) {
		if _, e = c.memory.add(c.tags[key], c.checks[key], live); e != nil {
			e[entryNewest] = current
		}
	}
	if e != nil {
		e.advance(current, unknown)
	}
	for bucket := first; bucket <= current; bucket++ {
		total := e.total(bucket)
		if len(items) > 0 && items[0].bucket == bucket {
			if it := items[0]; it.kind != addKnown {
				total = it.total
			} else if total != unknown {
				total += it.delta
			}
			items = items[1:]
		}
		if total > 0 {
			dst = append(dst, storage.Cell{Bucket: bucket, Count: total})
		}
		if total == unknown {
			complete = false
		} else if e != nil {
			e.set(bucket, total)
		}
	}
	for _, it := range items { // of the future
		if it.total > 0 {
			dst = append(dst, storage.Cell{Bucket: it.bucket, Count: it.total})
		}
		if e != nil {
			e.set(it.bucket, it.total)
		}
	}
	return dst, complete
}

// learnGroups remembers which groups have their expiry. The memory is locked.
func (c *call) learnGroups(rule int) {
	if !c.learns(rule) {
		return
	}
	c.tagGroups(rule)
	_, current := c.live(rule)
	for _, key := range c.byRule[rule] {
		for _, it := range c.items[c.from[key]:c.to[key]] {
			if it.delta == 0 || it.kind != addNew && it.kind != readAll || it.total <= 0 || it.bucket > current {
				continue
			}
			tag, group := c.groupTag(key, current-it.bucket), c.checks[key]&(c.groups-1)
			if c.memory.find(tag, group).at == 0 {
				c.memory.add(tag, group, 0)
			}
		}
	}
}
