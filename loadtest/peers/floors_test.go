package peers

import (
	"context"
	"hash/maphash"
	"math/bits"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/puzpuzpuz/xsync/v4"

	"github.com/offpath-io/offpath/pkg/check"
)

// The floors are the least that a limiter in process can do: look up the key, read a clock that
// ticks, compute the sliding count, and take the hit by one atomic operation. They have no fleet,
// no rules, and no way to forget a key. Recording ones also count each hit for a report, and list
// its entry once until a goroutine empties the list, every 10 ms.

// A floorEntry is what the floors have of one key.
type floorEntry struct {
	window, current, previous atomic.Int64
	pending                   atomic.Int64
	listed                    atomic.Bool
}

// take takes one hit, and returns how many are left; negative if the hit may not pass.
func (e *floorEntry) take(q quota, now int64) (left int64) {
	length := int64(q.window)
	number := now / length
	if e.window.Load() != number {
		e.previous.Store(e.current.Swap(0))
		e.window.Store(number)
	}
	for {
		current := e.current.Load()
		left = q.limit - 1 - current - int64(float64(e.previous.Load())*float64((number+1)*length-now)/float64(length))
		if left < 0 || e.current.CompareAndSwap(current, current+1) {
			return left
		}
	}
}

// A floor is what the floors have in common.
type floor struct {
	quota   quota
	records bool
	now     atomic.Int64
	mu      sync.Mutex
	dirty   []*floorEntry
}

// run ticks, and empties the list.
func (f *floor) run(ctx context.Context) error {
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	var spare []*floorEntry
	for tick := 0; ctx.Err() == nil; tick++ {
		f.now.Store((<-ticker.C).UnixNano())
		if tick%10 > 0 {
			continue
		}
		f.mu.Lock()
		listed := f.dirty
		f.dirty = spare[:0]
		f.mu.Unlock()
		for _, e := range listed {
			e.listed.Store(false)
			e.pending.Store(0)
		}
		spare = listed
	}
	return nil
}

func (f *floor) record(e *floorEntry) {
	if e.pending.Add(1); !e.listed.Load() && !e.listed.Swap(true) {
		f.mu.Lock()
		f.dirty = append(f.dirty, e)
		f.mu.Unlock()
	}
}

func (f *floor) subject(decide decider) *subject {
	f.now.Store(time.Now().UnixNano())
	stop := background(f.run)
	return &subject{decide: decide, close: func(int64) error { return stop() }}
}

// newXsyncFloor is the floor over the fastest concurrent map of the field.
func newXsyncFloor(records bool) func(testing.TB, quota) *subject {
	return func(_ testing.TB, q quota) *subject {
		f := &floor{quota: q, records: records}
		entries := xsync.NewMap[string, *floorEntry](xsync.WithPresize(inProcess.keys))
		return f.subject(func(key string) (bool, error) {
			e, ok := entries.Load(key)
			if !ok {
				e, _ = entries.LoadOrStore(key, new(floorEntry))
			}
			passes := e.take(q, f.now.Load()) >= 0
			if passes && f.records {
				f.record(e)
			}
			return passes, nil
		})
	}
}

// A flatFloor is the floor over a table like the checker's: open addressing, the key's text inside
// the entry, the same Decision returned. The table is made for all keys: nothing grows.
type flatFloor struct {
	floor
	seed  maphash.Seed
	slots []flatSlot
	free  atomic.Int64
	adds  sync.Mutex
}

type flatSlot struct {
	hash  atomic.Uint64 // 0 if the slot is free
	entry atomic.Pointer[flatEntry]
}

type flatEntry struct {
	floorEntry
	length uint8
	text   [15]byte
}

func (e *flatEntry) key() string { return unsafe.String(&e.text[0], e.length) }

func newFlatFloor(records bool) func(testing.TB, quota) *subject {
	return func(_ testing.TB, q quota) *subject {
		f := &flatFloor{seed: maphash.MakeSeed(), slots: make([]flatSlot, 1<<bits.Len(uint(inProcess.keys)))}
		f.quota, f.records = q, records
		f.free.Store(int64(inProcess.keys))
		return f.subject(func(key string) (bool, error) { return f.check(key).Allowed, nil })
	}
}

func (f *flatFloor) check(key string) (d check.Decision) {
	hash, now := maphash.String(f.seed, key)|1, f.now.Load()
	e := f.find(hash, key)
	if e == nil {
		if e = f.add(hash, key); e == nil {
			return d
		}
	}
	left := e.take(f.quota, now)
	if left < 0 {
		return d
	}
	if f.records {
		f.record(&e.floorEntry)
	}
	length := int64(f.quota.window)
	d.Allowed, d.Freshness, d.Rule = true, check.Fresh, ruleName
	d.Limit, d.Remaining = f.quota.limit, left
	d.Reset = time.Duration((now/length+2)*length - now)
	return d
}

func (f *flatFloor) find(hash uint64, key string) *flatEntry {
	for i := hash >> 1; ; i++ {
		switch s := &f.slots[i&uint64(len(f.slots)-1)]; s.hash.Load() {
		case 0:
			return nil
		case hash:
			if e := s.entry.Load(); e.key() == key {
				return e
			}
		}
	}
}

// add returns nil for more keys than the table was made for, and for longer ones.
func (f *flatFloor) add(hash uint64, key string) *flatEntry {
	f.adds.Lock()
	defer f.adds.Unlock()
	if e := f.find(hash, key); e != nil {
		return e
	}
	e := &flatEntry{length: uint8(len(key))}
	if copy(e.text[:], key) < len(key) || f.free.Add(-1) < 0 {
		return nil
	}
	i := hash >> 1
	for f.slots[i&uint64(len(f.slots)-1)].hash.Load() != 0 {
		i++
	}
	s := &f.slots[i&uint64(len(f.slots)-1)]
	s.entry.Store(e)
	s.hash.Store(hash)
	return e
}
