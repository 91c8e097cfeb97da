package redisstore

import (
	"slices"

	"github.com/offpath-io/offpath/pkg/aggregate/storage"
)

// header is what the script says of the shard.
type header struct {
	generation, version int64
	loss                storage.Loss
	own                 int64 // how many batches of this process have changed it
	leases              int64 // how often leases have raised the version
	holds               bool  // it was as this process knew it
	shift               int64 // by how many ms the node's clock is ahead of the fleet's
}

// readHeader reads the header of a reply, or how long the list of reasons is why nothing was added.
func readHeader(u *unpacker) (h header, refused int) {
	n := u.list() - 1
	if h.generation = u.count(); h.generation == 0 {
		if n < 1 {
			u.fail()
		}
		return h, n
	}
	h.version = u.count()
	h.loss = readLoss(u)
	h.own, h.leases, h.holds, h.shift = u.count(), u.count(), u.bool(), u.count()
	return h, 0
}

func readLoss(u *unpacker) storage.Loss {
	state := func() storage.State {
		return storage.State{Generation: uint64(u.count()), Version: uint64(u.count())}
	}
	return storage.Loss{Remembered: state(), Found: state()}
}

// readTotals reads the totals of all keys, and remembers them. It returns false if some that were
// remembered are not any more, or were wrong.
func (c *call) readTotals(u *unpacker, h *header) (applied storage.Applied, complete bool) {
	applied.State = storage.State{Generation: uint64(h.generation), Version: uint64(h.version)}
	applied.Loss = h.loss
	applied.Totals = make([][]storage.Cell, len(c.batch.Keys))
	for _, r := range c.runs {
		if r.kind == addKnown {
			continue
		}
		for at := r.first; at > 0; at = c.items[at].next {
			c.items[at].total = u.count()
		}
	}
	for _, at := range c.reads {
		c.items[at].total = u.count()
	}
	c.eachWhole(true, func(rule int, keys []int32) {
		for _, key := range keys {
			first, current := c.live(rule)
			for i := range c.items[c.from[key]:][:current-first+1] {
				c.items[int(c.from[key])+i].total = u.count()
			}
		}
		c.readNew(u, rule, &applied)
	})
	c.memory.mu.Lock()
	defer c.memory.mu.Unlock()
	c.eachWhole(false, func(rule int, keys []int32) {
		for _, key := range keys {
			c.readMany(u, rule, key, &applied)
		}
		c.readNew(u, rule, &applied)
	})
	return applied, u.err == nil && c.addTotals(applied.Totals)
}

// addTotals gives each key its totals, other than those of which all was read. The memory is
// locked.
func (c *call) addTotals(totals [][]storage.Cell) (complete bool) {
	complete = true
	var room []storage.Cell
	for rule := range c.batch.Rules {
		one, most := c.isOne(rule), c.batch.Rules[rule].Shape.Live()
		whole := c.wholes[rule]
		for i, key := range c.byRule[rule] {
			if !one && len(whole) > 0 && whole[0] == key {
				whole = whole[1:]
				continue
			}
			if need := most + slack + int(c.to[key]-c.from[key]); cap(room)-len(room) < need {
				room = make([]storage.Cell, 0, max(need, min(need*(len(c.byRule[rule])-i), roomFor)))
			}
			from, ok := len(room), false
			if e := c.remembered(rule, key); one {
				room, ok = c.totalsOne(rule, key, e, room)
			} else {
				room, ok = c.totalsMany(rule, key, e, room)
			}
			totals[key] = room[from:len(room):len(room)]
			complete = complete && ok
		}
		if one {
			c.learnGroups(rule)
		}
	}
	return complete
}

// roomFor is for how many totals memory is taken at once.
const roomFor = 1 << 13

// remembered returns a key's entry, nil if there is none. The memory is locked.
func (c *call) remembered(rule int, key int32) entry {
	if !c.learns(rule) {
		return nil
	}
	if e := c.memory.entry(c.places[key]); e != nil {
		return e
	}
	return c.memory.entry(c.memory.find(c.tags[key], c.checks[key]))
}

// learns reports whether the memory takes in what this call has found out about keys of a rule.
func (c *call) learns(rule int) bool { return c.known && c.remembers(rule) }

// restart has the call go on in another era, in which nothing is remembered that it has relied on.
func (c *call) restart(era uint64) {
	c.era = era
	clear(c.places)
	c.tagKeys()
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
