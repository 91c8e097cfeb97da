package counter

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
)

// Table is the map of counters, by group and key. Reading takes no lock and writes nothing.
//
// A map from a library would work (the first one was xsync's). But once keys outgrow the
// processor's caches, a look-up by string takes most of a check's time, and that time depends on
// the number of cache lines that it touches. Here it is two, the slot and the counter, since the
// key's text is inside the counter; xsync's map has four (bucket, entry, text, counter), and a
// check with it took 1.2 to 1.3 times as long on a million keys. It also rehashes all at once; this
// table rehashes a 256th part at a time, and no reader waits.
//
// It is an open-addressing table with linear probing. A used slot never becomes empty again; a
// removed counter turns its slot into a tombstone, and rehashing drops tombstones.
type Table struct {
	seed  maphash.Seed
	parts [tableParts]tablePart
}

const (
	tablePartBits = 8
	tableParts    = 1 << tablePartBits
	fewestSlots   = 8
)

// tablePart is the part of the table for hashes with the same upper bits.
type tablePart struct {
	table atomic.Pointer[[]slot]

	mu    sync.Mutex // for writers
	used  int        // slots that are not empty
	holds int        // counters

	_ [32]byte // keep the next part on another cache line
}

// slot is one place in the table: empty while hash is 0, a tombstone if counter is nil then.
type slot struct {
	hash    atomic.Uint64
	counter atomic.Pointer[Counter]
}

func (m *Table) init() {
	m.seed = maphash.MakeSeed()
	for i := range m.parts {
		empty := make([]slot, 1)
		m.parts[i].table.Store(&empty)
	}
}

// hash returns the hash of a key of a group; never 0.
func (m *Table) hash(g *Group, key string) uint64 {
	return (maphash.String(m.seed, key) ^ g.salt) | 1
}

func (m *Table) part(hash uint64) *tablePart { return &m.parts[hash>>(64-tablePartBits)] }

// Load returns the counter of key, or nil.
func (m *Table) Load(g *Group, key string) *Counter {
	hash := m.hash(g, key)
	return find(*m.part(hash).table.Load(), hash, g, key)
}

func find(table []slot, hash uint64, g *Group, key string) *Counter {
	mask := uint64(len(table) - 1)
	// The lowest bit of every hash is set, so it is left out: with it, half of the slots would
	// never be a first choice.
	for i := hash >> 1; ; i++ {
		s := &table[i&mask]
		switch s.hash.Load() {
		case 0:
			return nil
		case hash:
			if c := s.counter.Load(); c != nil && c.Group == g && c.hasKey(key) {
				return c
			}
		}
	}
}

// loadOrMake returns the counter of key. If there is none, it adds the one that newCounter returns;
// newCounter is called at most once, and may return nil to add nothing.
func (m *Table) loadOrMake(g *Group, key string, newCounter func() *Counter) (c *Counter, loaded bool) {
	hash := m.hash(g, key)
	p := m.part(hash)
	p.mu.Lock()
	defer p.mu.Unlock()
	table := *p.table.Load()
	if c := find(table, hash, g, key); c != nil {
		return c, true
	}
	if c = newCounter(); c == nil {
		return nil, false
	}
	if 4*(p.used+1) > 3*len(table) {
		table = p.rehash(table)
	}
	put(table, hash, c)
	p.used++
	p.holds++
	return c, false
}

// put stores a counter in the first empty slot of its run. The part's lock is held, or no other
// goroutine can reach the table yet.
func put(table []slot, hash uint64, c *Counter) {
	mask := uint64(len(table) - 1)
	i := hash >> 1
	for table[i&mask].hash.Load() != 0 {
		i++
	}
	// In this order: a reader that sees the hash must find the counter.
	table[i&mask].counter.Store(c)
	table[i&mask].hash.Store(hash)
}

// rehash moves the part's counters to a table that is at most half full. Readers of the old table
// miss at most counters that are added later, and look again under the lock.
func (p *tablePart) rehash(old []slot) []slot {
	size := fewestSlots
	for size < 2*(p.holds+1) {
		size *= 2
	}
	table := make([]slot, size)
	for i := range old {
		if c := old[i].counter.Load(); c != nil {
			put(table, old[i].hash.Load(), c)
		}
	}
	p.used = p.holds
	p.table.Store(&table)
	return table
}

// remove removes a counter from the table.
func (m *Table) remove(c *Counter) {
	hash := m.hash(c.Group, c.Key())
	p := m.part(hash)
	p.mu.Lock()
	defer p.mu.Unlock()
	table := *p.table.Load()
	mask := uint64(len(table) - 1)
	for i := hash >> 1; table[i&mask].hash.Load() != 0; i++ {
		if s := &table[i&mask]; s.counter.Load() == c {
			s.counter.Store(nil)
			p.holds--
			return
		}
	}
}

// Each calls f for every counter; it may miss counters that are added or removed meanwhile.
func (m *Table) Each(f func(*Counter)) {
	for i := range m.parts {
		table := *m.parts[i].table.Load()
		for j := range table {
			if c := table[j].counter.Load(); c != nil {
				f(c)
			}
		}
	}
}
