package memstore

import (
	"slices"
	"strings"

	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/window"
)

// counters are the counts of one rule's keys. They live in two maps, so that what has expired goes
// with its whole map and nobody ever walks the keys: whatever is written goes to the young map, and
// when everything in the old one has expired, the young one becomes the old.
type counters struct {
	shape      window.Shape
	young, old keys
}

type keys struct {
	byText map[string]*counter
	until  int64 // when the last of the cells expires
}

// counter is one key's counts, in ascending order of buckets, none of them 0.
type counter struct {
	cells []aggregate.Cell
}

func (c *counters) rotate(now int64) {
	if c.old.until <= now && len(c.young.byText) > 0 || c.young.byText == nil {
		c.old = c.young
		c.young = keys{byText: make(map[string]*counter)}
	}
}

// add adds the key's cells, and appends the totals that the fold asks for to dst.
func (c *counters) add(key *aggregate.Key, now int64, dst []aggregate.Cell) []aggregate.Cell {
	k := c.young.byText[key.Text]
	if k == nil {
		k = c.old.byText[key.Text]
	}
	writes := false
	for _, cell := range key.Cells {
		if cell.Count > 0 {
			writes = true
			c.young.until = max(c.young.until, aggregate.ExpiryOf(c.shape, cell.Bucket))
		}
	}
	if writes {
		k = c.rejuvenate(key.Text, k)
		k.expire(c.shape, now)
		for _, cell := range key.Cells {
			if cell.Count > 0 {
				k.add(cell)
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

// rejuvenate sees to it that the key is in the young map; k is what is known of it, nil if nothing.
// What it brings from the old map expires no later than that map, and so before the young one can go.
func (c *counters) rejuvenate(text string, k *counter) *counter {
	switch {
	case k == nil:
		k = new(counter)
	case c.young.byText[text] == k:
		return k
	default:
		delete(c.old.byText, text)
	}
	c.young.byText[strings.Clone(text)] = k // text is part of a whole report's
	return k
}

func (k *counter) expire(s window.Shape, now int64) {
	n := 0
	for n < len(k.cells) && aggregate.ExpiryOf(s, k.cells[n].Bucket) <= now {
		n++
	}
	if n > 0 {
		k.cells = slices.Delete(k.cells, 0, n)
	}
}

func (k *counter) add(cell aggregate.Cell) {
	i := len(k.cells)
	for i > 0 && k.cells[i-1].Bucket >= cell.Bucket {
		i--
	}
	if i < len(k.cells) && k.cells[i].Bucket == cell.Bucket {
		k.cells[i].Count = aggregate.Sum(k.cells[i].Count, cell.Count)
		return
	}
	k.cells = slices.Insert(k.cells, i, cell)
}

func (c *counters) clone() *counters {
	return &counters{shape: c.shape, young: c.young.clone(), old: c.old.clone()}
}

func (k keys) clone() keys {
	c := keys{byText: make(map[string]*counter, len(k.byText)), until: k.until}
	for text, counter := range k.byText {
		c.byText[text] = counter.clone()
	}
	return c
}

func (k *counter) clone() *counter { return &counter{slices.Clone(k.cells)} }
