// Package queue holds what waits: a [FIFO] in the order in which it came, a [Heap] in the order of
// the times at which it is due. Neither is safe for concurrent use.
package queue

// FIFO is first in, first out. The zero value is empty. It keeps its items in pieces: however long
// it is, growing copies nothing, and the memory of a long queue is freed once that has been taken.
type FIFO[T any] struct {
	first, last *piece[T]
	from        int // where the first item is in the first piece
	length      int
}

type piece[T any] struct {
	items []T // up to its capacity
	next  *piece[T]
}

// A piece has twice the room of the one before it, within these.
const fewestItems, mostItems = 8, 1024

// Len returns the number of items.
func (q *FIFO[T]) Len() int { return q.length }

// Push adds an item.
func (q *FIFO[T]) Push(item T) {
	if q.last == nil {
		q.last = &piece[T]{items: make([]T, 0, fewestItems)}
		q.first = q.last
	} else if room := cap(q.last.items); len(q.last.items) == room {
		q.last.next = &piece[T]{items: make([]T, 0, min(2*room, mostItems))}
		q.last = q.last.next
	}
	q.last.items = append(q.last.items, item)
	q.length++
}

// Pop removes the first item; the queue must not be empty.
func (q *FIFO[T]) Pop() T {
	var zero T
	p := q.first
	item := p.items[q.from]
	p.items[q.from] = zero
	q.from++
	q.length--
	if q.from == len(p.items) {
		q.from = 0
		if p == q.last {
			p.items = p.items[:0]
		} else {
			q.first = p.next
		}
	}
	return item
}

// Peek returns the first item; the queue must not be empty.
func (q *FIFO[T]) Peek() T { return q.first.items[q.from] }

// Each calls f with every item, the first one first.
func (q *FIFO[T]) Each(f func(T)) {
	from := q.from
	for p := q.first; p != nil; p, from = p.next, 0 {
		for _, item := range p.items[from:] {
			f(item)
		}
	}
}
