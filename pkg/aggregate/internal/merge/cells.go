package merge

import (
	"cmp"
	"slices"

	"github.com/offpath-io/offpath/pkg/aggregate/storage"
)

// cells is the memory in which a batch's cells are sorted.
type cells struct {
	ends []int32 // by key of the batch, where its cells end
	list []storage.Cell
}

// placeCells gives each key its cells, which came in the order of the reports: a counting sort by
// key, then, for the few keys that have several, by bucket.
func (b *Reports) placeCells() {
	c, n := &b.cells, len(b.batch.Keys)
	c.ends = slices.Grow(c.ends[:0], n)[:n]
	clear(c.ends)
	for i := range b.counts {
		c.ends[b.counts[i].key]++
	}
	end := int32(0)
	for i, n := range c.ends {
		c.ends[i] = end // for now, where they begin
		end += n
	}
	c.list = slices.Grow(c.list[:0], len(b.counts))[:len(b.counts)]
	for i := range b.counts {
		at := &b.counts[i]
		c.list[c.ends[at.key]] = at.cell
		c.ends[at.key]++
	}
	begin := int32(0)
	for i, end := range c.ends {
		b.batch.Keys[i].Cells = mergeCells(c.list[begin:end:end])
		begin = end
	}
}

// mergeCells sorts cells by bucket and adds up those of one bucket, in place.
func mergeCells(cells []storage.Cell) []storage.Cell {
	if len(cells) < 2 {
		return cells
	}
	slices.SortFunc(cells, func(a, b storage.Cell) int { return cmp.Compare(a.Bucket, b.Bucket) })
	last := 0
	for _, c := range cells[1:] {
		if c.Bucket == cells[last].Bucket {
			cells[last].Count = storage.Sum(cells[last].Count, c.Count)
			continue
		}
		last++
		cells[last] = c
	}
	return cells[:last+1]
}
