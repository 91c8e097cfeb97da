package memstore

import (
	"slices"

	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/window"
)

// counters are the counts of one rule's keys.
type counters struct {
	aged[counter]
	shape window.Shape
}

// counter is one key's counts.
type counter struct {
	cells cells
}

// add adds the key's cells, and appends the totals that the fold asks for to dst.
func (c *counters) add(key *aggregate.Key, now int64, dst []aggregate.Cell) []aggregate.Cell {
	k := c.find(key.Text)
	until := int64(0)
	for _, cell := range key.Cells {
		if cell.Count > 0 {
			until = max(until, aggregate.ExpiryOf(c.shape, cell.Bucket))
		}
	}
	if until > 0 {
		if k == nil {
			k = new(counter)
		}
		c.keep(key.Text, k, until)
		k.cells.expire(c.shape, now)
		for _, cell := range key.Cells {
			if cell.Count > 0 {
				n := k.cells.at(cell.Bucket)
				*n = aggregate.Sum(*n, cell.Count)
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
	for _, cell := range k.cells {
		if cell.Bucket >= first {
			dst = append(dst, cell)
		}
	}
	return dst
}

func (c *counters) clone() *counters {
	return &counters{c.aged.clone(func(k *counter) *counter { return &counter{slices.Clone(k.cells)} }), c.shape}
}

// cells are counts in ascending order of buckets.
type cells []aggregate.Cell

// expire drops those of buckets that have expired.
func (c *cells) expire(s window.Shape, now int64) {
	n := 0
	for n < len(*c) && aggregate.ExpiryOf(s, (*c)[n].Bucket) <= now {
		n++
	}
	if n > 0 {
		*c = slices.Delete(*c, 0, n)
	}
}

// at returns a bucket's count, which is 0 if it is new. The pointer is good until the next call.
func (c *cells) at(bucket int64) *int64 {
	i := len(*c)
	for i > 0 && (*c)[i-1].Bucket >= bucket {
		i--
	}
	if i == len(*c) || (*c)[i].Bucket != bucket {
		*c = slices.Insert(*c, i, aggregate.Cell{Bucket: bucket})
	}
	return &(*c)[i].Count
}

// of is a bucket's count.
func (c cells) of(bucket int64) int64 {
	for i := len(c) - 1; i >= 0; i-- {
		if c[i].Bucket == bucket {
			return c[i].Count
		}
	}
	return 0
}
