package redisstore

import (
	"slices"
	"strconv"

	"github.com/offpath-io/offpath/pkg/aggregate/storage"
)

// block is a rule of one bucket in a call: its keys have a column for each live bucket, the current
// one last.
type block struct {
	rule           int // of the batch
	keys           []int32
	first, current int64 // buckets

	// What recall knows of the previous bucket, for a sliding window.
	watched watched
	late    lateness
	hashes  []uint64 // by key
	totals  []int64  // by column and key: remembered, or unknown
	recalls bool     // some are remembered
}

// unknown is a total that has to be read.
const unknown = -1

func (c *call) isOne(rule int) bool {
	return c.batch.Rules[rule].Shape.Buckets == 1 && !c.batch.Rules[rule].BesideLevel() && len(c.byRule[rule]) > 0
}

// makeBlocks makes a block of each rule of one bucket that has keys in the batch.
func (c *call) makeBlocks() {
	c.blocks, c.hashes, c.numbers = c.blocks[:0], c.hashes[:0], c.numbers[:0]
	c.hashes = slices.Grow(c.hashes, len(c.batch.Keys)) // so that the blocks' slices stay where they are
	c.numbers = slices.Grow(c.numbers, 2*len(c.batch.Keys))
	for rule := range c.batch.Rules {
		if !c.isOne(rule) {
			continue
		}
		first, current := c.live(rule)
		bl := block{rule: rule, keys: c.byRule[rule], first: first, current: current}
		from := len(c.numbers)
		for range bl.columns() * len(bl.keys) {
			c.numbers = append(c.numbers, unknown)
		}
		bl.totals = c.numbers[from:]
		if bl.watches() {
			c.lookBack(&bl)
		}
		c.blocks = append(c.blocks, bl)
	}
}

func (bl *block) columns() int { return int(bl.current-bl.first) + 1 }

// watches reports whether there is a previous bucket to remember.
func (bl *block) watches() bool { return bl.first < bl.current }

// lookBack fills in the totals that are remembered of the previous bucket.
func (c *call) lookBack(bl *block) {
	from := len(c.hashes)
	for _, key := range bl.keys {
		c.hashes = append(c.hashes, c.recall.hash(c.batch.Keys[key].Text))
	}
	bl.hashes = c.hashes[from:]
	bl.watched = watched{c.batch.Shard, c.rules[bl.rule]}
	var ok bool
	if bl.late, ok = c.recall.known(bl.watched); ok {
		column := c.recall.column(bl.watched, bl.late, bl.first)
		bl.recalls = c.recall.find(column, bl.hashes, bl.totals[:len(bl.keys)])
	}
}

// packBlocks packs the rules of one bucket.
func (c *call) packBlocks(b []byte) []byte {
	c.makeBlocks()
	b = packList(b, 4*len(c.blocks))
	for i := range c.blocks {
		bl := &c.blocks[i]
		c.nameNew(bl.rule)
		if bl.watches() {
			c.name("r:", c.rules[bl.rule])
		}
		b = packList(b, len(bl.keys))
		for _, key := range bl.keys {
			b = packText(b, c.fields[key])
		}
		b = packList(b, 2*bl.columns())
		for bucket := bl.first; bucket <= bl.current; bucket++ {
			b = packInt(b, c.expiry(bl.rule, bucket))
			b = c.packColumn(b, bl, bucket)
		}
		b = c.packBound(c.packWatch(b, bl), bl.rule)
	}
	return b
}

// packColumn packs a bucket: a delta, false (to read it), or true or 0 (to leave it, where
// something is remembered, or nothing) for each key; or one false or true for all.
func (c *call) packColumn(b []byte, bl *block, bucket int64) []byte {
	pre := c.bucketName(bl.rule, bucket)
	remembered := bl.totals[int(bucket-bl.first)*len(bl.keys):]
	start, adds, leaves, zeros := len(b), 0, 0, 0
	b = packList(b, len(bl.keys))
	for i, key := range bl.keys {
		switch n := countOf(c.batch.Keys[key].Cells, bucket); {
		case n > 0:
			remembered[i] = unknown
			adds++
			b = packDigits(b, n)
		case remembered[i] == 0:
			b = packInt(b, 0)
			zeros++
			continue
		case remembered[i] != unknown:
			leaves++
			b = packBool(b, true)
			continue
		default:
			b = packBool(b, false)
		}
		c.groupName(pre, key)
	}
	if adds+zeros == 0 && (leaves == 0 || leaves == len(bl.keys)) {
		return packBool(b[:start], leaves > 0)
	}
	return b
}

// packWatch packs what keeps the count of late batches.
func (c *call) packWatch(b []byte, bl *block) []byte {
	if !bl.watches() {
		return packBool(b, false)
	}
	b = packInt(packList(b, 3), bl.current)
	oldest, adds := bl.current, false
	for _, key := range bl.keys {
		for _, cell := range c.batch.Keys[key].Cells {
			if cell.Count > 0 && (!adds || cell.Bucket < oldest) {
				oldest, adds = cell.Bucket, true
			}
		}
	}
	if adds {
		b = packInt(b, oldest)
	} else {
		b = packBool(b, false)
	}
	return packInt(b, c.expiry(bl.rule, bl.current))
}

// bucketName is what the names of a bucket's hashes begin with.
func (c *call) bucketName(rule int, bucket int64) string {
	return c.pre + "1:" + c.rules[rule] + ":" + strconv.FormatInt(bucket, 10) + ":"
}

// groupName adds the hash that a key is in to the script's keys.
func (c *call) groupName(bucket string, key int32) {
	c.names = append(c.names, bucket...)
	c.names = appendGroup(c.names, groupOf(c.fields[key], c.groups), c.long[key])
	c.ends = append(c.ends, len(c.names))
}

// countOf is what the cells add to a bucket.
func countOf(cells []storage.Cell, bucket int64) int64 {
	for i := range cells {
		if cells[i].Bucket == bucket {
			return cells[i].Count
		}
	}
	return 0
}

// packSingles packs those cells of the rules of one bucket that have no column: they are of the
// future.
func (c *call) packSingles(b []byte) []byte {
	n := 0
	c.eachSingle(func(int, int32, storage.Cell) { n++ })
	b = packList(b, 3*n)
	c.eachSingle(func(rule int, key int32, cell storage.Cell) {
		c.groupName(c.bucketName(rule, cell.Bucket), key)
		b = packText(b, c.fields[key])
		if cell.Count > 0 {
			b = packDigits(b, cell.Count)
		} else {
			b = packBool(b, false)
		}
		b = packInt(b, c.expiry(rule, cell.Bucket))
	})
	return b
}

func (c *call) eachSingle(do func(rule int, key int32, cell storage.Cell)) {
	for i := range c.blocks {
		bl := &c.blocks[i]
		for _, key := range bl.keys {
			for _, cell := range c.batch.Keys[key].Cells {
				if cell.Bucket > bl.current {
					do(bl.rule, key, cell)
				}
			}
		}
	}
}

// readBlocks reads the reply for the rules of one bucket. stale is true if something remembered may
// have been out of date.
func (c *call) readBlocks(u *unpacker, applied *storage.Applied) (stale bool) {
	generation, totals := applied.State.Generation, applied.Totals
	for i := range c.blocks {
		bl := &c.blocks[i]
		var before, after lateness
		if bl.watches() {
			before = lateness{generation, u.count()}
			after = lateness{generation, u.count()}
		}
		remembered := slices.Clone(bl.totals[:len(bl.keys)])
		for j := range bl.totals {
			if n := u.count(); bl.totals[j] == unknown {
				bl.totals[j] = n
			}
		}
		c.readNew(u, bl.rule, applied)
		if bl.watches() && u.err == nil {
			c.recall.learn(bl.watched, after)
			if bl.recalls && bl.late != before {
				stale = true
			} else {
				c.remember(bl, remembered, after)
			}
		}
		bl.place(totals)
	}
	c.eachSingle(func(_ int, key int32, cell storage.Cell) {
		if total := u.count(); total > 0 {
			totals[key] = append(totals[key], storage.Cell{Bucket: cell.Bucket, Count: total})
		}
	})
	return stale
}

// remember keeps the totals of the previous bucket for other batches; remembered are those that
// came from there.
func (c *call) remember(bl *block, remembered []int64, after lateness) {
	if len(c.batch.Marks) == 0 {
		return // a batch that only reads does not tell the store that this bucket is the previous one
	}
	column := c.recall.column(bl.watched, after, bl.first)
	c.recall.put(column, bl.hashes, bl.totals[:len(bl.keys)], func(i int) bool {
		return bl.late == after && remembered[i] != unknown
	})
}

// place gives each key of the block its totals.
func (bl *block) place(totals [][]storage.Cell) {
	room := make([]storage.Cell, 0, len(bl.totals))
	for i, key := range bl.keys {
		from := len(room)
		for column := range bl.columns() {
			if total := bl.totals[column*len(bl.keys)+i]; total > 0 {
				room = append(room, storage.Cell{Bucket: bl.first + int64(column), Count: total})
			}
		}
		totals[key] = room[from:len(room):len(room)]
	}
}
