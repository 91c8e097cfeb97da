package memstore

import (
	"slices"

	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/window"
)

// counters are the counts of one rule's keys.
type counters struct {
	expiring[counter]
	shape window.Shape
}

// counter is one key's counts.
type counter struct {
	cells    cells
	refunded cells        // of what drains; refunds of other rules are counters of their own
	level    window.Level // of what drains; the counts up to its bucket are in it
	expires  int64        // when the key may be forgotten
}

// add adds the key's cells, and appends the totals that the batch asks for to dst.
func (c *counters) add(r *storage.Rule, key *storage.Key, now int64, dst []storage.Cell) []storage.Cell {
	k := c.find(key.Text)
	adds := anyAdds(key.Cells)
	if k == nil && adds {
		k = &counter{level: storage.NoLevel}
	}
	if adds || k != nil && len(k.refunded) > 0 { // a refund may be all there is
		k.expire(r, now)
	}
	if adds {
		for _, cell := range key.Cells {
			if cell.Count > 0 {
				k.expires = r.Expiry(k.expires, cell)
			}
		}
		c.keep(key.Text, k, k.expires)
		counts := k.of(r)
		for _, cell := range key.Cells {
			if cell.Count > 0 {
				n := counts.at(cell.Bucket)
				*n = storage.Sum(*n, cell.Count)
			}
		}
	}
	if k == nil {
		return dst
	}
	first := c.shape.Bucket(now) - int64(c.shape.Live()) + 1
	if len(key.Cells) > 0 {
		first = min(first, key.Cells[0].Bucket)
	}
	for _, cell := range *k.of(r) {
		if cell.Bucket >= first {
			dst = append(dst, cell)
		}
	}
	return dst
}

func anyAdds(cells []storage.Cell) bool {
	return slices.ContainsFunc(cells, func(c storage.Cell) bool { return c.Count > 0 })
}

// levelOf is a key's level, and its cells after that, which are among totals. The rule drains.
func (c *counters) levelOf(
	r *storage.Rule, key string, totals []storage.Cell, now int64,
) (window.Level, []storage.Cell) {
	k := c.find(key)
	if k == nil {
		return r.Advance(storage.NoLevel, nil, nil, now)
	}
	level, after := r.Advance(k.level, k.cells, k.refunded, now)
	return level, totals[max(len(totals)-len(after), 0):]
}

func (c *counters) clone() *counters {
	return &counters{c.expiring.clone(func(k *counter) *counter {
		return &counter{slices.Clone(k.cells), slices.Clone(k.refunded), k.level, k.expires}
	}), c.shape}
}

// of are the counts of a rule's kind.
func (k *counter) of(r *storage.Rule) *cells {
	if r.BesideLevel() && !r.Drains() {
		return &k.refunded
	}
	return &k.cells
}

// expire drops the counts of buckets that have expired, of what drains into the level.
func (k *counter) expire(r *storage.Rule, now int64) {
	switch {
	case r.Drains():
		var after []storage.Cell
		last := r.Shape.Bucket(now-int64(r.Shape.Length)) - int64(r.Shape.Live())
		k.level, after = r.AdvanceTo(k.level, k.cells, k.refunded, last)
		k.cells = slices.Delete(k.cells, 0, len(k.cells)-len(after))
		k.refunded.expire(r.Shape, now)
	case r.BesideLevel(): // when the admitted ones are, which they are taken off
	default:
		k.cells.expire(r.Shape, now)
	}
}

// cells are counts in ascending order of buckets.
type cells []storage.Cell

// expire drops those of buckets that have expired.
func (c *cells) expire(s window.Shape, now int64) {
	n := 0
	for n < len(*c) && storage.ExpiryOf(s, (*c)[n].Bucket) <= now {
		n++
	}
	*c = slices.Delete(*c, 0, n)
}

// at returns a bucket's count, which is 0 if it is new. The pointer is good until the next call.
func (c *cells) at(bucket int64) *int64 {
	i := len(*c)
	for i > 0 && (*c)[i-1].Bucket >= bucket {
		i--
	}
	if i == len(*c) || (*c)[i].Bucket != bucket {
		*c = slices.Insert(*c, i, storage.Cell{Bucket: bucket})
	}
	return &(*c)[i].Count
}
