package redisstore

import (
	"hash/crc32"
	"slices"
	"strconv"

	"github.com/offpath-io/offpath/pkg/aggregate/storage"
)

// item is a count that a call adds to or reads.
type item struct {
	key           int32 // of the batch
	next          int32 // item of its run, 0 for none
	kind          kind
	bucket, delta int64
	total         int64 // by the script's reply; unknown if it was not asked
}

// kind is how a count is added to or read.
type kind uint8

const (
	// addKnown adds to a count that is remembered.
	addKnown kind = iota
	// addAsk asks for the total; the hash has its expiry.
	addAsk
	// addNew asks for the total; the hash may need its expiry, and has none that is later.
	addNew
	// read asks for the total.
	read
	// readAll is of a key that may be new, of which all is asked for.
	readAll
)

// run is items of one rule, bucket and kind, which are packed together.
type run struct {
	rule        int
	bucket      int64
	kind        kind
	first, last int32 // items
	n           int
}

// plan is what a call does, by what is remembered when it is made.
type plan struct {
	tags      []uint64  // by key of the batch, of its entry in the memory
	checks    []uint32  // by key, CRC-32C of its field
	places    []place   // by key, of its entry
	items     []item    // the first is none
	from      []int32   // by key, where its items begin
	to        []int32   // by key, where they end
	runs      []run     // of additions
	reads     []int32   // items
	wholes    [][]int32 // by rule, keys of which all is asked for
	groupTags []uint64  // of the rule at hand, for each live bucket, what its groups' tags have in common

	bucketNames [2]bucketName // of the call at hand
}

// makePlan decides what to ask of the script.
func (c *call) makePlan() {
	n := len(c.batch.Keys)
	c.tags, c.checks, c.places = slices.Grow(c.tags[:0], n)[:n], slices.Grow(c.checks[:0], n)[:n], slices.Grow(c.places[:0], n)[:n]
	c.from, c.to = slices.Grow(c.from[:0], n)[:n], slices.Grow(c.to[:0], n)[:n]
	clear(c.places)
	c.bucketNames = [2]bucketName{}
	c.items, c.runs, c.reads = append(c.items[:0], item{}), c.runs[:0], c.reads[:0]
	for len(c.wholes) < len(c.batch.Rules) {
		c.wholes = append(c.wholes, nil)
	}
	for key, field := range c.fields {
		c.checks[key] = crc32.Checksum([]byte(field), castagnoli)
	}
	c.tagKeys()
	c.memory.mu.Lock()
	defer c.memory.mu.Unlock()
	for rule := range c.batch.Rules {
		c.wholes[rule] = c.wholes[rule][:0]
		from := len(c.runs)
		c.tagGroups(rule)
		for _, key := range c.byRule[rule] {
			var e entry
			if c.remembers(rule) && !c.blind {
				c.places[key] = c.memory.find(c.tags[key], c.checks[key])
				e = c.memory.entry(c.places[key])
			}
			c.from[key] = int32(len(c.items))
			var known bool
			if c.isOne(rule) {
				known = c.planOne(rule, key, e, from)
			} else {
				known = c.planMany(rule, key, e, from)
			}
			if !known {
				c.wholes[rule] = append(c.wholes[rule], key)
			}
			c.to[key] = int32(len(c.items))
		}
	}
}

// remembers reports whether totals of a rule are remembered. Those of what drains are not: their
// answer takes all that there is of a key.
func (c *call) remembers(rule int) bool {
	return c.memory.most > 0 && !c.batch.Rules[rule].BesideLevel()
}

// tagKeys finds the tags of all keys in the call's era.
func (c *call) tagKeys() {
	for rule, keys := range c.byRule[:len(c.batch.Rules)] {
		if !c.remembers(rule) {
			continue
		}
		all := c.memory.hashOf(tagged{c.era, c.rules[rule], -1})
		for _, key := range keys {
			c.tags[key] = all ^ c.memory.hash(c.batch.Keys[key].Text)
		}
	}
}

// tagGroups finds what the tags of the groups of a rule of one bucket have in common.
func (c *call) tagGroups(rule int) {
	c.groupTags = c.groupTags[:0]
	if !c.isOne(rule) || !c.remembers(rule) {
		return
	}
	for first, bucket := c.live(rule); bucket >= first; bucket-- {
		c.groupTags = append(c.groupTags, c.memory.hashOf(tagged{c.groupEra, c.rules[rule], bucket}))
	}
}

// groupTag is the tag under which the memory notes that the group of a key has its expiry, in the
// bucket of an age.
func (c *call) groupTag(key int32, age int64) uint64 {
	tag := c.groupTags[age] + uint64(c.checks[key]&(c.groups-1))
	if c.long[key] {
		tag = ^tag
	}
	return tag
}

// planOne plans a key of a rule of one bucket. It returns false if all of the key is to be asked
// for, as it may be new.
func (c *call) planOne(rule int, key int32, e entry, from int) bool {
	cells := c.batch.Keys[key].Cells
	first, current := c.live(rule)
	known, adds := false, false
	for bucket := first; bucket <= current; bucket++ {
		known = known || e.total(bucket) > 0
		adds = adds || countOf(cells, bucket) > 0
	}
	for bucket := first; bucket <= current; bucket++ {
		n, total := countOf(cells, bucket), e.total(bucket)
		switch {
		case adds && !known:
			c.item(key, bucket, n, readAll)
		case n > 0 && total > 0:
			c.add(rule, key, bucket, n, addKnown, from)
		case n > 0 && c.isMade(key, current-bucket):
			c.add(rule, key, bucket, n, addAsk, from)
		case n > 0:
			c.add(rule, key, bucket, n, addNew, from)
		case total == unknown:
			c.reads = append(c.reads, c.item(key, bucket, 0, read))
		}
	}
	for _, cell := range cells {
		switch {
		case cell.Bucket <= current:
		case cell.Count > 0:
			c.add(rule, key, cell.Bucket, cell.Count, addNew, from)
		default:
			c.reads = append(c.reads, c.item(key, cell.Bucket, 0, read))
		}
	}
	return known || !adds
}

// planMany plans a key of a rule of many buckets. It returns false if all of it is to be read.
func (c *call) planMany(rule int, key int32, e entry, from int) bool {
	first, _ := c.live(rule)
	if !e.spans(first) || !e.any(first) {
		return false
	}
	// Now and then it is read, and what has expired is deleted: not of all keys at once.
	every := int64(readEvery(c.batch.Rules[rule].Shape))
	turn := int64(c.checks[key]) % every
	for _, cell := range c.batch.Keys[key].Cells {
		if cell.Bucket > e[entryNewest] && (cell.Bucket+turn)/every != (e[entryNewest]+turn)/every {
			return false
		}
	}
	cells := c.batch.Keys[key].Cells
	last := len(cells) - 1
	for last >= 0 && cells[last].Count <= 0 {
		last--
	}
	for i, cell := range cells[:last+1] {
		switch {
		case cell.Count <= 0:
		case i == last && !e.any(cell.Bucket): // the hash is to live as long as this bucket
			c.add(rule, key, cell.Bucket, cell.Count, addNew, from)
		default:
			c.add(rule, key, cell.Bucket, cell.Count, addKnown, from)
		}
	}
	return true
}

// item adds an item to those of its key.
func (c *call) item(key int32, bucket, delta int64, kind kind) int32 {
	c.items = append(c.items, item{key: key, bucket: bucket, delta: delta, kind: kind, total: unknown})
	return int32(len(c.items) - 1)
}

// add plans an addition; the runs of its rule begin at from.
func (c *call) add(rule int, key int32, bucket, delta int64, kind kind, from int) {
	at := c.item(key, bucket, delta, kind)
	for i := len(c.runs) - 1; i >= from; i-- {
		if r := &c.runs[i]; r.bucket == bucket && r.kind == kind {
			c.items[r.last].next = at
			r.last, r.n = at, r.n+1
			return
		}
	}
	c.runs = append(c.runs, run{rule, bucket, kind, at, at, 1})
}

// isMade reports whether the group of a key is known to have its expiry, in the bucket of an age.
func (c *call) isMade(key int32, age int64) bool {
	return len(c.groupTags) > 0 && !c.blind && c.memory.find(c.groupTag(key, age), c.checks[key]&(c.groups-1)).at > 0
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

// packAdds packs the additions.
func (c *call) packAdds(b []byte) []byte {
	b = packList(b, 3*len(c.runs))
	for i := range c.runs {
		r := &c.runs[i]
		b = packInt(b, c.expiry(r.rule, r.bucket))
		b = packInt(b, int64(r.kind))
		b = packList(b, 2*r.n)
		pre, one, bucket := "", c.isOne(r.rule), ""
		if one {
			pre = c.bucketName(r.rule, r.bucket)
		} else {
			bucket = strconv.FormatInt(r.bucket, 10)
		}
		for at := r.first; at > 0; at = c.items[at].next {
			key := c.items[at].key
			if one {
				c.groupName(pre, key)
				b = packText(b, c.fields[key])
			} else {
				c.nameMany(r.rule, key)
				b = packText(b, bucket)
			}
			b = packDigits(b, c.items[at].delta)
		}
	}
	return b
}

// packReads packs what is only read.
func (c *call) packReads(b []byte) []byte {
	b = packList(b, len(c.reads))
	for _, at := range c.reads {
		it := &c.items[at]
		c.groupName(c.bucketName(c.batch.Keys[it.key].Rule, it.bucket), it.key)
		b = packText(b, c.fields[it.key])
	}
	return b
}
