package check

import (
	"container/list"
	"sync"
)

// queues are the lines of callers that wait at a limiter, by key.
type queues struct {
	mu    sync.Mutex
	byKey map[lineID]*turns
}

// lineID is a key, and the limit that those who wait are decided by: a class with all of the limit
// may pass when one with a share of it may not, and does not stand behind it.
type lineID struct {
	key      string
	capacity int64
}

// turns are a line of *turn, first come first.
type turns struct {
	list.List
	cost int64 // of all
}

// turn is a caller's place in a line.
type turn struct {
	number uint64 // of the wait
	cost   int64
	comes  chan struct{} // closed when it is the first
}

func (l *turns) add(t *turn) (e *list.Element) {
	before := l.Back()
	for before != nil && before.Value.(*turn).number > t.number {
		before = before.Prev()
	}
	if before == nil {
		e = l.PushFront(t)
		close(t.comes)
	} else {
		e = l.InsertAfter(t, before)
	}
	l.cost += t.cost
	return e
}
