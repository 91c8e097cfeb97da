package check

// queue is first in, first out. It keeps its items in pieces: to grow copies nothing, however long it is, and what a
// crowd has taken is given back when that has passed.
type queue[T any] struct {
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

func (q *queue[T]) len() int { return q.length }

func (q *queue[T]) push(item T) {
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

// pop removes the first item; the queue must not be empty.
func (q *queue[T]) pop() T {
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

// each calls f with every item.
func (q *queue[T]) each(f func(T)) {
	from := q.from
	for p := q.first; p != nil; p, from = p.next, 0 {
		for _, item := range p.items[from:] {
			f(item)
		}
	}
}

// peek returns the first item; the queue must not be empty.
func (q *queue[T]) peek() T { return q.first.items[q.from] }
