package queue

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestFIFOKeepsOrderAndLittleRoom(t *testing.T) {
	var q FIFO[int]
	var want []int
	r := rand.New(rand.NewPCG(2, 2))
	for i := range 100_000 {
		if r.IntN(100) < 50+i/10_000%2*5 || len(want) == 0 {
			q.Push(i)
			want = append(want, i)
			continue
		}
		if q.Len() != len(want) || q.Peek() != want[0] || q.Pop() != want[0] {
			t.Fatalf("out of order, or of length %d, want %d", q.Len(), len(want))
		}
		want = want[1:]
	}
	var got []int
	q.Each(func(i int) { got = append(got, i) })
	if !slices.Equal(got, want) {
		t.Errorf("Each met %d items, want %d", len(got), len(want))
	}
	room := 0
	for p := q.first; p != nil; p = p.next {
		room += cap(p.items)
	}
	if room > len(want)+2*mostItems {
		t.Errorf("room for %d items, holds %d", room, len(want))
	}
}

// TestHeapKeepsOrder, whatever is pushed, popped and deferred in between.
func TestHeapKeepsOrder(t *testing.T) {
	var h Heap[int64]
	var want []int64 // sorted; an item is when it was due at first
	r := rand.New(rand.NewPCG(3, 3))
	for range 20_000 {
		due := r.Int64N(500)
		switch n := r.IntN(10); {
		case n < 5:
			h.Push(due, due)
		case len(want) == 0:
			continue
		case n < 7:
			h.Defer(want[0] + due)
			due += want[0]
			want = want[1:]
		default:
			h.Pop()
			want = want[1:]
			due = -1
		}
		if due >= 0 {
			at, _ := slices.BinarySearch(want, due)
			want = slices.Insert(want, at, due)
		}
		next := int64(math.MaxInt64)
		if len(want) > 0 {
			next = want[0]
		}
		if h.Due() != next {
			t.Fatalf("the first is due at %d, want %d", h.Due(), next)
		}
	}
}

func TestHeapBringsItsItems(t *testing.T) {
	var h Heap[string]
	for i, item := range []string{"d", "b", "c", "a"} {
		h.Push([]int64{4, 2, 3, 1}[i], item)
	}
	h.Defer(5)
	for _, want := range []string{"b", "c", "d", "a"} {
		if peeked, got := h.Peek(), h.Pop(); got != want || peeked != want {
			t.Errorf("peeked %q, popped %q, want %q", peeked, got, want)
		}
	}
}
