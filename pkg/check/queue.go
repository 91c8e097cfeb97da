package check

// queue is a first-in, first-out queue in one slice.
type queue[T any] struct {
	items []T
	head  int
}

func (q *queue[T]) len() int { return len(q.items) - q.head }

func (q *queue[T]) push(item T) {
	// Before growing, move what is left to the front if that frees at least half of the slice.
	if len(q.items) == cap(q.items) && q.head >= len(q.items)/2 && q.head > 0 {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	q.items = append(q.items, item)
}

// pop removes the first item; the queue must not be empty.
func (q *queue[T]) pop() T {
	var zero T
	item := q.items[q.head]
	q.items[q.head] = zero
	q.head++
	if q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	}
	return item
}

// first returns the first item; the queue must not be empty.
func (q *queue[T]) first() T { return q.items[q.head] }
