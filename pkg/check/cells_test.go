package check

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestCellsAgainstAMap does the same random things to a cells and to a Go map.
func TestCellsAgainstAMap(t *testing.T) {
	c := newChecker(t, Options{}, rule("a", 1, time.Second, 1), rule("b", 1, time.Second, 1))
	m, want := &c.cells, make(map[string]*cell)
	r := rand.New(rand.NewPCG(1, 1))
	for range 200_000 {
		l := c.program.Load().entries[r.IntN(2)].limiter
		key := strings.Repeat("k", r.IntN(40)) + fmt.Sprint(r.IntN(500))
		name := l.Rule().Name + key
		switch got := m.load(l, key); {
		case got != want[name]:
			t.Fatalf("key %q: found %p, want %p", key, got, want[name])
		case got != nil && got.key() != key:
			t.Fatalf("key %q: found %q", key, got.key())
		case got != nil && r.IntN(2) == 0:
			m.remove(got)
			delete(want, name)
		case got == nil:
			got, loaded := m.loadOrMake(l, key, func() *cell { return newCell(l, key, noon) })
			if loaded || got == nil {
				t.Fatalf("key %q: loaded %v, %p", key, loaded, got)
			}
			want[name] = got
		}
	}
	n := 0
	m.each(func(*cell) { n++ })
	if n != len(want) {
		t.Errorf("%d cells, want %d", n, len(want))
	}
}

// TestCellsTogether: whoever makes a cell, everybody finds the same one.
func TestCellsTogether(t *testing.T) {
	c := newChecker(t, Options{}, rule("a", 1, time.Second, 1))
	l := c.program.Load().entries[0].limiter
	const goroutines, keys = 8, 5000
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
			if found[g][i] != found[0][i] || found[g][i] == nil {
				t.Fatalf("key %d: %p and %p", i, found[g][i], found[0][i])
			}
		}
	}
	if got := c.liveKeys.Load(); got != keys {
		t.Errorf("%d live keys, want %d", got, keys)
	}
}

func TestQueue(t *testing.T) {
	var q queue[int]
	var want []int
	r := rand.New(rand.NewPCG(2, 2))
	for i := range 100_000 {
		if r.IntN(100) < 50+i/10_000%2*5 || len(want) == 0 {
			q.push(i)
			want = append(want, i)
			continue
		}
		if q.peek() != want[0] || q.pop() != want[0] {
			t.Fatal("out of order")
		}
		want = want[1:]
		if q.len() != len(want) {
			t.Fatalf("length %d, want %d", q.len(), len(want))
		}
	}
	room := 0
	for p := q.first; p != nil; p = p.next {
		room += cap(p.items)
	}
	if room > len(want)+2*mostItems {
		t.Errorf("room for %d items, holds %d", room, len(want))
	}
}
