package redisstore

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/window"
)

// packMany packs the keys of rules of many buckets of which all is read: for each, its cells.
func (c *call) packMany(b []byte) []byte {
	n := 0
	c.eachWhole(false, func(int, []int32) { n++ })
	b = packList(b, 2*n)
	c.eachWhole(false, func(rule int, keys []int32) {
		c.nameNew(rule)
		b = c.packBound(b, rule)
		b = packList(b, len(keys))
		for _, key := range keys {
			c.nameMany(rule, key)
			b = c.packCells(b, rule, c.batch.Keys[key].Cells)
		}
	})
	return b
}

// nameMany adds the hash of a key to the script's keys.
func (c *call) nameMany(rule int, key int32) {
	c.name(c.manyKind(key), c.rules[rule], ":", c.fields[key])
}

func (c *call) manyName(rule int, key int32) string {
	return c.manyKind(key) + c.rules[rule] + ":" + c.fields[key]
}

func (c *call) manyKind(key int32) string {
	if c.long[key] {
		return "n+:"
	}
	return "n:"
}

// firstKept is the first bucket of a rule that has not expired.
func (c *call) firstKept(rule int) int64 {
	s := c.batch.Rules[rule].Shape
	return s.Bucket(c.batch.Now-int64(s.Length)) - int64(s.Live()) + 1
}

// mostBuckets is how many buckets a key may have before those that have expired are deleted: as
// many as are kept, and a few, so that it happens now and then instead of in every batch.
func mostBuckets(s window.Shape) int {
	kept := s.Live() + s.Buckets
	return kept + kept/4 + 2
}

// readEvery is after how many buckets a key is read, though it is remembered, to see how many
// buckets it has.
func readEvery(s window.Shape) int { return (s.Live()+s.Buckets)/4 + 1 }

// mostFields is how many fields a key's hash may have before that: two for a bucket if refunds are
// beside the hits.
func (c *call) mostFields(rule int) int {
	r := &c.batch.Rules[rule]
	most := mostBuckets(r.Shape)
	refunds := func(b storage.Rule) bool {
		return b.Kind == storage.Refunded && b.Name == r.Name && b.Shape == r.Shape
	}
	if r.Drains() && slices.ContainsFunc(c.batch.Rules, refunds) {
		most *= 2
	}
	return most
}

func (c *call) packCells(b []byte, rule int, cells []storage.Cell) []byte {
	n := 0
	for _, cell := range cells {
		if cell.Count > 0 {
			n++
		}
	}
	r := &c.batch.Rules[rule]
	b = packList(b, 4*n)
	for _, cell := range cells {
		if cell.Count > 0 {
			b = packText(b, fieldOfBucket(r, cell.Bucket))
			b = packDigits(b, cell.Count)
			expires := c.expiry(rule, cell.Bucket)
			b = packInt(b, expires)
			later := int64(0)
			if r.Drains() { // up to the next ms, and so never none
				later = (r.Expiry(0, cell)-storage.ExpiryOf(r.Shape, cell.Bucket))/int64(time.Millisecond) + 1
			}
			b = packInt(b, later)
		}
	}
	return b
}

// fieldOfBucket is a bucket's field.
func fieldOfBucket(r *storage.Rule, bucket int64) string {
	if r.BesideLevel() && !r.Drains() {
		return fieldRefunded + strconv.FormatInt(bucket, 10)
	}
	return strconv.FormatInt(bucket, 10)
}

// readMany reads the reply for a key of a rule of many buckets, of which all was read, and
// remembers it.
func (c *call) readMany(u *unpacker, rule int, key int32, applied *storage.Applied) {
	r := &c.batch.Rules[rule]
	first, current := c.live(rule)
	h := readHash(u, r.Shape)
	if u.err != nil {
		return
	}
	sorted(h.cells)
	isClean := c.clean(rule, key, &h)
	cells := h.cells
	switch {
	case r.Drains():
		if applied.Levels == nil {
			applied.Levels = make([]window.Level, len(c.batch.Keys))
		}
		applied.Levels[key], applied.Totals[key] = r.Advance(h.level, cells, h.refunded, c.batch.Now)
		return
	case r.BesideLevel():
		cells = sorted(h.refunded)
	}
	n := 0
	for n < len(cells) && cells[n].Bucket < first {
		n++
	}
	applied.Totals[key] = cells[n:]
	if !c.learns(rule) || len(cells) == n {
		return
	}
	last := max(current, cells[len(cells)-1].Bucket)
	e := c.remembered(rule, key)
	if !isClean {
		e.drop()
		return
	}
	if e == nil {
		_, e = c.memory.add(c.tags[key], c.checks[key], r.Shape.Live()+slack)
	}
	if e != nil {
		e[entryNewest] = last - int64(len(e)) // so that all of them are new
		e.advance(last, 0)
		for _, cell := range cells[n:] {
			e.set(cell.Bucket, cell.Count)
		}
	}
}

// slack is for how many buckets beyond those that are live there is room in an entry: for hits of
// the future, and for a time that goes back.
const slack = 3

// totalsMany returns the totals of a key of a rule of many buckets that is remembered, and
// remembers what is added; false if it is not remembered any more, or not from the first live
// bucket on. What is added is remembered even then. The memory is locked.
func (c *call) totalsMany(rule int, key int32, e entry, dst []storage.Cell) ([]storage.Cell, bool) {
	if e == nil {
		return dst, false
	}
	for _, it := range c.items[c.from[key]:c.to[key]] {
		e.advance(it.bucket, 0)
		if total := e.total(it.bucket); total != unknown {
			e.set(it.bucket, storage.Sum(total, it.delta))
		}
	}
	first, _ := c.live(rule)
	if !e.spans(first) {
		return dst, false
	}
	for i := e.index(max(first, e[entryNewest]-int64(len(e)-entryTotals)+1)); i >= 0 && i < len(e); i++ {
		if e[i] > 0 {
			dst = append(dst, storage.Cell{Bucket: e[entryNewest] - int64(len(e)-1-i), Count: e[i]})
		}
	}
	return dst, true
}

// The fields of a key's hash that are no bucket: the level at the end of a bucket, in whole hits
// and parts.
const (
	fieldAt    = "at"
	fieldHits  = "hits"
	fieldParts = "parts"
	// fieldRefunded is before the bucket of what was refunded of a rule that drains.
	fieldRefunded = "r"
)

// hash is the stored hash of one key.
type hash struct {
	fields   int
	cells    []storage.Cell
	refunded []storage.Cell // of what drains
	level    window.Level   // the same
}

// readHash reads one key's hash.
func readHash(u *unpacker, s window.Shape) hash {
	n := u.list() / 2
	if u.err != nil {
		return hash{}
	}
	cells, level := make([]storage.Cell, 0, n), storage.NoLevel
	var refunded []storage.Cell
	for range n {
		switch field := u.text(); field {
		case fieldAt:
			level.Bucket = u.count()
		case fieldHits:
			level.Parts += min(u.count(), window.MaxCount) * int64(s.Buckets)
		case fieldParts:
			level.Parts += u.count()
		default:
			if bucket, back := strings.CutPrefix(field, fieldRefunded); back {
				refunded = append(refunded, storage.Cell{Bucket: u.digits(bucket), Count: u.count()})
				continue
			}
			cells = append(cells, storage.Cell{Bucket: u.digits(field), Count: u.count()})
		}
	}
	return hash{n, cells, refunded, level}
}

func sorted(cells []storage.Cell) []storage.Cell {
	slices.SortFunc(cells, func(a, b storage.Cell) int { return cmp.Compare(a.Bucket, b.Bucket) })
	return cells
}

// change is a change to a key's hash, which is made only if the hash is still as it was read.
type change struct {
	key    string // without what the names of all the shard's keys begin with
	fields []field
}

// field is what a hash's field must be, and what it is to be; nothing if it is empty.
type field struct{ name, is, becomes string }

const (
	// mostChanged is how many buckets a change may have: a script can unpack no more than a few
	// thousand values.
	mostChanged = 1000
	// mostWaiting is how many fields the changes that wait may have: twice as many as a batch adds,
	// so that no hash grows, and few enough for a few ms.
	mostWaiting = 4000
)

// clean has the next batch delete the buckets of a key that have expired, if it has too many
// fields. Those of what drains go into the level, less what was refunded of them. It returns false
// if they should have gone before: there was no room for the change, or the batch failed. Then the
// key is to be read, and so comes here, until they are gone.
func (c *call) clean(rule int, key int32, h *hash) bool {
	r, keep := &c.batch.Rules[rule], c.firstKept(rule)
	most := c.mostFields(rule)
	from := most
	if c.remembers(rule) {
		from -= readEvery(r.Shape) // or it has too many before it is read again
	}
	if h.fields < from || r.BesideLevel() && !r.Drains() {
		return true
	}
	ch := change{key: c.manyName(rule, key)}
	old := 0
	for ; old < len(h.cells) && h.cells[old].Bucket < keep; old++ {
		if old == mostChanged {
			keep = h.cells[old].Bucket
			break
		}
		ch.fields = append(ch.fields, expired("", h.cells[old]))
	}
	for _, cell := range h.refunded {
		if cell.Bucket < keep && len(ch.fields) < 2*mostChanged {
			ch.fields = append(ch.fields, expired(fieldRefunded, cell))
		}
	}
	if r.Drains() && old > 0 {
		level, _ := r.AdvanceTo(h.level, h.cells[:old], h.refunded, h.cells[old-1].Bucket)
		ch.fields = append(ch.fields, levelFields(r.Shape, h.level, level)...)
	}
	if len(ch.fields) == 0 {
		return true
	}
	c.shard.change(ch)
	return h.fields < most
}

func expired(before string, c storage.Cell) field {
	return field{before + strconv.FormatInt(c.Bucket, 10), strconv.FormatInt(c.Count, 10), ""}
}

// levelFields change one level of a key to another.
func levelFields(s window.Shape, is, becomes window.Level) []field {
	buckets := int64(s.Buckets)
	digits := func(l window.Level, n int64) string {
		if l == storage.NoLevel {
			return ""
		}
		return strconv.FormatInt(n, 10)
	}
	return []field{
		{fieldAt, digits(is, is.Bucket), digits(becomes, becomes.Bucket)},
		{fieldHits, digits(is, is.Parts/buckets), digits(becomes, becomes.Parts/buckets)},
		{fieldParts, digits(is, is.Parts%buckets), digits(becomes, becomes.Parts%buckets)},
	}
}

// packChanges packs the changes that wait.
func (c *call) packChanges(b []byte) []byte {
	var changes []change
	if len(c.batch.Marks) > 0 { // or it may be a probe
		changes = c.shard.takeChanges()
	}
	text := func(s string) {
		if s == "" {
			b = packBool(b, false)
		} else {
			b = packText(b, s)
		}
	}
	b = packList(b, len(changes))
	for _, ch := range changes {
		c.name(ch.key)
		b = packList(b, 3*len(ch.fields))
		for _, f := range ch.fields {
			text(f.name)
			text(f.is)
			text(f.becomes)
		}
	}
	return b
}
