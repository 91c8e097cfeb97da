package queue

import "math"

// Heap is in the order of the times at which its items are due, the earliest first. The zero value
// is empty.
type Heap[T any] struct{ entries []entry[T] }

type entry[T any] struct {
	due  int64
	item T
}

// Due returns when the first item is due; [math.MaxInt64] if there is none.
func (h *Heap[T]) Due() int64 {
	if len(h.entries) == 0 {
		return math.MaxInt64
	}
	return h.entries[0].due
}

// Peek returns the first item; the heap must not be empty.
func (h *Heap[T]) Peek() T { return h.entries[0].item }

// Push adds an item.
func (h *Heap[T]) Push(due int64, item T) {
	h.entries = append(h.entries, entry[T]{due, item})
	at := len(h.entries) - 1
	for parent := (at - 1) / 2; h.entries[at].due < h.entries[parent].due; parent = (at - 1) / 2 {
		h.swap(at, parent)
		at = parent
	}
}

// Pop removes the first item; the heap must not be empty.
func (h *Heap[T]) Pop() T {
	last := len(h.entries) - 1
	h.swap(0, last)
	item := h.entries[last].item
	h.entries[last] = entry[T]{}
	h.entries = h.entries[:last]
	h.sink()
	return item
}

// Defer changes when the first item is due; the heap must not be empty.
func (h *Heap[T]) Defer(due int64) {
	h.entries[0].due = due
	h.sink()
}

// Each calls f with every item, in no particular order.
func (h *Heap[T]) Each(f func(T)) {
	for _, e := range h.entries {
		f(e.item)
	}
}

// sink moves the first entry down to where it belongs.
func (h *Heap[T]) sink() {
	for at := 0; ; {
		least := 2*at + 1
		if least >= len(h.entries) {
			return
		}
		if right := least + 1; right < len(h.entries) && h.entries[right].due < h.entries[least].due {
			least = right
		}
		if h.entries[least].due >= h.entries[at].due {
			return
		}
		h.swap(at, least)
		at = least
	}
}

func (h *Heap[T]) swap(i, j int) { h.entries[i], h.entries[j] = h.entries[j], h.entries[i] }
