package check

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestCellsAreAMap does the same random things to a cells and to a Go map.
func TestCellsAreAMap(t *testing.T) {
	operations := 200_000
	if testing.Short() {
		operations = 20_000
	}
	c := newChecker(t, Options{}, rule("a", 1, time.Second, 1), rule("b", 1, time.Second, 1))
	m, want := &c.cells, make(map[string]*cell)
	r := rand.New(rand.NewPCG(1, 1))
	for range operations {
		l := c.program.Load().entries[r.IntN(2)].limiter
		key := strings.Repeat("k", r.IntN(40)) + fmt.Sprint(r.IntN(500))
		name := l.Rule().Name + key
		switch got := m.load(l, key); {
		case got != want[name] || got != nil && got.key() != key:
			t.Fatalf("key %q: found %p, want %p", key, got, want[name])
		case got != nil && r.IntN(2) == 0:
			m.remove(got)
			delete(want, name)
		case got == nil:
			got, loaded := m.loadOrMake(l, key, func() *cell { return newCell(l, key, noon) })
			require(t, !loaded && got != nil, "key %q: loaded %v, %p", key, loaded, got)
			want[name] = got
		}
	}
	equal(t, m.count(), len(want), "cells")
}

func (m *cells) count() (n int) {
	m.each(func(*cell) { n++ })
	return n
}

// TestConcurrentChecksFindOneCell per key, whichever goroutine makes it.
func TestConcurrentChecksFindOneCell(t *testing.T) {
	c, l := checkerAndLimiter(t, Options{}, rule("a", 1, time.Second, 1))
	const goroutines, keys = 8, 2000
	found := [goroutines][keys]*cell{}
	var running sync.WaitGroup
	for g := range goroutines {
		running.Go(func() {
			for i := range keys {
				found[g][i] = l.find(noon, fmt.Sprint(i))
			}
		})
	}
	running.Wait()
	for i := range keys {
		for g := range goroutines {
			require(t, found[g][i] == found[0][i] && found[g][i] != nil, "key %d: %p and %p", i, found[g][i], found[0][i])
		}
	}
	equal(t, c.liveKeys.Load(), keys, "live keys")
}

func TestQueueKeepsOrderAndLittleRoom(t *testing.T) {
	var q queue[int]
	var want []int
	r := rand.New(rand.NewPCG(2, 2))
	for i := range 100_000 {
		if r.IntN(100) < 50+i/10_000%2*5 || len(want) == 0 {
			q.push(i)
			want = append(want, i)
			continue
		}
		require(t, q.len() == len(want) && q.peek() == want[0] && q.pop() == want[0],
			"out of order, or of length %d, want %d", q.len(), len(want))
		want = want[1:]
	}
	room := 0
	for p := q.first; p != nil; p = p.next {
		room += cap(p.items)
	}
	expect(t, room <= len(want)+2*mostItems, "room for %d items, holds %d", room, len(want))
}
