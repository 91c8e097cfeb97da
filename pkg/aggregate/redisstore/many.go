package redisstore

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/window"
)

// isMany says whether a rule is of those whose keys have a hash each: of several buckets, or with a
// level.
func (c *call) isMany(rule int) bool {
	return !c.isOne(rule) && len(c.byRule[rule]) > 0
}

// packMany packs the rules of several buckets: for each key, its cells.
func (c *call) packMany(b []byte) []byte {
	n := 0
	for i := range c.batch.Rules {
		if c.isMany(i) {
			n++
		}
	}
	b = packList(b, 5*n)
	for i := range c.batch.Rules {
		if !c.isMany(i) {
			continue
		}
		b = c.packDrain(b, i)
		b = packInt(b, c.firstKept(i))
		b = packInt(b, c.mostFields(i))
		c.nameNew(i)
		b = packList(b, len(c.byRule[i]))
		for _, key := range c.byRule[i] {
			kind := "n:"
			if c.long[key] {
				kind = "n+:"
			}
			c.name(kind, c.rules[i], ":", c.fields[key])
			b = c.packCells(b, i, c.batch.Keys[key].Cells)
		}
		b = c.packBound(b, i)
	}
	return b
}

// packDrain packs what the script must know of a rule that drains; true if it is refunds of such a
// rule.
func (c *call) packDrain(b []byte, rule int) []byte {
	r := &c.batch.Rules[rule]
	if !r.Drains() {
		return packBool(b, r.BesideLevel())
	}
	b = packInt(packList(b, 4+2*len(r.Past)), r.Drain().Limit)
	b = packInt(b, int64(r.Shape.Buckets))
	b = packInt(b, r.Shape.Length.Milliseconds())
	b = packInt(b, window.MaxLength.Milliseconds())
	for _, past := range r.Past {
		b = packInt(packInt(b, past.Until), past.Limit)
	}
	return b
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

// mostFields is how many fields a key's hash may have before that: two for a bucket if refunds are
// beside the hits.
func (c *call) mostFields(rule int) int64 {
	r := &c.batch.Rules[rule]
	most := mostBuckets(r.Shape)
	refunds := func(b storage.Rule) bool {
		return b.Kind == storage.Refunded && b.Name == r.Name && b.Shape == r.Shape
	}
	if r.Drains() && slices.ContainsFunc(c.batch.Rules, refunds) {
		most *= 2
	}
	return int64(most)
}

func (c *call) packCells(b []byte, rule int, cells []storage.Cell) []byte {
	n := 0
	for _, cell := range cells {
		if cell.Count > 0 {
			n++
		}
	}
	b = packList(b, 3*n)
	for _, cell := range cells {
		if cell.Count > 0 {
			b = c.packBucket(b, rule, cell.Bucket)
			b = packDigits(b, cell.Count)
			b = packInt(b, c.expiry(rule, cell.Bucket))
		}
	}
	return b
}

// packBucket packs a bucket's field.
func (c *call) packBucket(b []byte, rule int, bucket int64) []byte {
	if r := &c.batch.Rules[rule]; r.BesideLevel() && !r.Drains() {
		return packText(b, fieldRefunded+strconv.FormatInt(bucket, 10))
	}
	return packDigits(b, bucket)
}

// readMany reads the reply for the rules of several buckets.
func (c *call) readMany(u *unpacker, applied *storage.Applied) {
	for i := range c.batch.Rules {
		if !c.isMany(i) {
			continue
		}
		r := &c.batch.Rules[i]
		first, _ := c.live(i)
		for _, key := range c.byRule[i] {
			h := readHash(u, r.Shape)
			if u.err != nil {
				return
			}
			cells := h.cells
			if r.Drains() {
				if applied.Levels == nil {
					applied.Levels = make([]window.Level, len(c.batch.Keys))
				}
				applied.Levels[key], applied.Totals[key] = r.Advance(h.level, sorted(h.cells), h.refunded, c.batch.Now)
				continue
			}
			if r.BesideLevel() {
				cells = h.refunded
			}
			cells = sorted(cells)
			applied.Totals[key] = slices.DeleteFunc(cells, func(c storage.Cell) bool { return c.Bucket < first })
		}
		c.readNew(u, i, applied)
	}
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
	return hash{cells, refunded, level}
}

func sorted(cells []storage.Cell) []storage.Cell {
	slices.SortFunc(cells, func(a, b storage.Cell) int { return cmp.Compare(a.Bucket, b.Bucket) })
	return cells
}
