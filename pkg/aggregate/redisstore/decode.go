package redisstore

import (
	"slices"

	"github.com/offpath-io/offpath/pkg/aggregate/storage"
)

// read decodes the script's reply to the call. stale is true if some totals were remembered
// and may be out of date.
func (c *call) read(reply string) (applied storage.Applied, stale bool, err error) {
	u := unpacker{rest: reply}
	n := u.list() - 1
	generation := u.count()
	if generation == 0 {
		if n < 1 {
			u.fail()
		}
		return c.readRefusal(&u, n), false, u.err
	}
	applied.State = storage.State{Generation: uint64(generation), Version: uint64(u.count())}
	applied.Loss = readLoss(&u)
	applied.Totals = make([][]storage.Cell, len(c.batch.Keys))
	stale = c.readBlocks(&u, &applied)
	c.readMany(&u, &applied)
	return applied, stale, u.err
}

func readLoss(u *unpacker) storage.Loss {
	state := func() storage.State {
		return storage.State{Generation: uint64(u.count()), Version: uint64(u.count())}
	}
	return storage.Loss{Remembered: state(), Found: state()}
}

// onlyReading is a batch that asks for the same totals, and adds nothing.
func onlyReading(f *storage.Batch) *storage.Batch {
	r := &storage.Batch{Shard: f.Shard, Now: f.Now, Seen: f.Seen, Rules: f.Rules, Ledger: make([]storage.Tally, len(f.Rules))}
	for _, key := range f.Keys {
		key.Cells = slices.Clone(key.Cells)
		for i := range key.Cells {
			key.Cells[i].Count = 0
		}
		r.Keys = append(r.Keys, key)
	}
	return r
}
