package redisstore

import (
	"cmp"
	"slices"

	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/window"
)

// isMany says whether a rule is of those whose keys have a hash each: of several buckets, or with a level.
func (c *call) isMany(rule int) bool {
	return !c.isOne(rule) && len(c.byRule[rule]) > 0
}

// packMany packs the rules of several buckets: for each key, its cells.
func (c *call) packMany(b []byte) []byte {
	n := 0
	for i := range c.fold.Rules {
		if c.isMany(i) {
			n++
		}
	}
	b = packList(b, 4*n)
	for i := range c.fold.Rules {
		if !c.isMany(i) {
			continue
		}
		b = c.packDrain(b, i)
		b = packInt(b, c.firstKept(i))
		b = packInt(b, int64(mostBuckets(c.fold.Rules[i].Shape)))
		b = packList(b, len(c.byRule[i]))
		for _, key := range c.byRule[i] {
			kind := "n:"
			if c.long[key] {
				kind = "n+:"
			}
			c.name(kind, c.rules[i], ":", c.fields[key])
			b = c.packCells(b, i, c.fold.Keys[key].Cells)
		}
	}
	return b
}

// packDrain packs what the script must know of a rule that drains.
func (c *call) packDrain(b []byte, rule int) []byte {
	r := &c.fold.Rules[rule]
	if !r.Drains() {
		return packBool(b, false)
	}
	b = packInt(packList(b, 4), r.Drain().Limit)
	b = packInt(b, int64(r.Shape.Buckets))
	b = packInt(b, r.Shape.Length.Milliseconds())
	return packInt(b, window.MaxLength.Milliseconds())
}

// firstKept is the first bucket of a rule that has not expired.
func (c *call) firstKept(rule int) int64 {
	s := c.fold.Rules[rule].Shape
	return s.Bucket(c.fold.Now-int64(s.Length)) - int64(s.Live()) + 1
}

// mostBuckets is how many buckets a key may have before those that have expired are deleted: as many
// as are kept, and a few, so that it happens now and then instead of in every fold.
func mostBuckets(s window.Shape) int {
	kept := s.Live() + s.Buckets
	return kept + kept/4 + 2
}

func (c *call) packCells(b []byte, rule int, cells []aggregate.Cell) []byte {
	n := 0
	for _, cell := range cells {
		n += used(cell.Count)
	}
	b = packList(b, 3*n)
	for _, cell := range cells {
		if cell.Count > 0 {
			b = packDigits(b, cell.Bucket)
			b = packDigits(b, cell.Count)
			b = packInt(b, c.expiry(rule, cell.Bucket))
		}
	}
	return b
}

// readMany reads the reply for the rules of several buckets.
func (c *call) readMany(u *unpacker, applied *aggregate.Applied) {
	for i := range c.fold.Rules {
		if !c.isMany(i) {
			continue
		}
		r := &c.fold.Rules[i]
		first, _ := c.live(i)
		for _, key := range c.byRule[i] {
			cells, level := readCells(u, r.Shape)
			if u.err != nil {
				return
			}
			slices.SortFunc(cells, func(a, b aggregate.Cell) int { return cmp.Compare(a.Bucket, b.Bucket) })
			if r.Drains() {
				if applied.Levels == nil {
					applied.Levels = make([]window.Level, len(c.fold.Keys))
				}
				applied.Levels[key], applied.Totals[key] = r.Settle(level, cells, c.fold.Now)
				continue
			}
			applied.Totals[key] = slices.DeleteFunc(cells, func(c aggregate.Cell) bool { return c.Bucket < first })
		}
	}
}

// The fields of a key's hash that are no bucket: the level at the end of a bucket, in whole hits and parts.
const (
	fieldAt    = "at"
	fieldHits  = "hits"
	fieldParts = "parts"
)

// readCells reads one key's hash.
func readCells(u *unpacker, s window.Shape) ([]aggregate.Cell, window.Level) {
	n := u.list() / 2
	if u.err != nil {
		return nil, window.Level{}
	}
	cells, level := make([]aggregate.Cell, 0, n), aggregate.Untold
	for range n {
		switch field := u.text(); field {
		case fieldAt:
			level.Bucket = u.count()
		case fieldHits:
			level.Parts += min(u.count(), window.MaxCount) * int64(s.Buckets)
		case fieldParts:
			level.Parts += u.count()
		default:
			cells = append(cells, aggregate.Cell{Bucket: u.digits(field), Count: u.count()})
		}
	}
	return cells, level
}
