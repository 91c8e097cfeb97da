package redisstore

import (
	"slices"

	"github.com/offpath-io/offpath/pkg/aggregate"
)

// read makes sense of the script's reply to the call. stale is true if some totals were remembered
// and may be out of date.
func (c *call) read(reply string) (applied aggregate.Applied, stale bool, err error) {
	u := unpacker{rest: reply}
	n := u.list() - 1
	generation := u.count()
	if generation == 0 {
		if n < 1 {
			u.fail()
		}
		return c.readRefusal(&u, n), false, u.err
	}
	applied.State = aggregate.State{Generation: uint64(generation), Version: uint64(u.count())}
	applied.Loss = readLoss(&u)
	applied.Totals = make([][]aggregate.Cell, len(c.fold.Keys))
	stale = c.readBlocks(&u, &applied)
	c.readMany(&u, &applied)
	return applied, stale, u.err
}

func readLoss(u *unpacker) aggregate.Loss {
	state := func() aggregate.State {
		return aggregate.State{Generation: uint64(u.count()), Version: uint64(u.count())}
	}
	return aggregate.Loss{Remembered: state(), Found: state()}
}

// onlyReading is a fold that asks for the same totals, and adds nothing.
func onlyReading(f *aggregate.Fold) *aggregate.Fold {
	r := &aggregate.Fold{Shard: f.Shard, Now: f.Now, Seen: f.Seen, Rules: f.Rules, Ledger: make([]aggregate.Tally, len(f.Rules))}
	for _, key := range f.Keys {
		key.Cells = slices.Clone(key.Cells)
		for i := range key.Cells {
			key.Cells[i].Count = 0
		}
		r.Keys = append(r.Keys, key)
	}
	return r
}
