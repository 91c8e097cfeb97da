package redisstore

import (
	"cmp"
	"slices"

	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/window"
)

func (c *call) isMany(rule int) bool {
	return c.fold.Rules[rule].Shape.Buckets > 1 && len(c.byRule[rule]) > 0
}

// packMany packs the rules of several buckets: for each key, its cells.
func (c *call) packMany(b []byte) []byte {
	n := 0
	for i := range c.fold.Rules {
		if c.isMany(i) {
			n++
		}
	}
	b = packList(b, 3*n)
	for i := range c.fold.Rules {
		if !c.isMany(i) {
			continue
		}
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
func (c *call) readMany(u *unpacker, totals [][]aggregate.Cell) {
	for i := range c.fold.Rules {
		if !c.isMany(i) {
			continue
		}
		first, _ := c.live(i)
		for _, key := range c.byRule[i] {
			n := u.list() / 2
			if u.err != nil {
				return
			}
			cells := make([]aggregate.Cell, 0, n)
			for range n {
				if cell := (aggregate.Cell{Bucket: u.count(), Count: u.count()}); cell.Bucket >= first {
					cells = append(cells, cell)
				}
			}
			slices.SortFunc(cells, func(a, b aggregate.Cell) int { return cmp.Compare(a.Bucket, b.Bucket) })
			totals[key] = cells
		}
	}
}
