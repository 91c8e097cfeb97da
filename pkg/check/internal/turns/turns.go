// Package turns keeps callers in lines: who has come first is the first to have a turn.
package turns

import (
	"container/list"
	"sync"
)

// Lines are the lines of callers that wait, each by its ID. Any goroutine may use them; the zero
// value has none.
type Lines[ID comparable] struct {
	mu   sync.Mutex
	byID map[ID]*line[ID]
}

// line is of *Place, first come first.
type line[ID comparable] struct {
	list.List
	cost int64 // of all
}

// Place is a caller's place in a line.
type Place[ID comparable] struct {
	ID    ID
	order uint64
	cost  int64
	first chan struct{}
	at    *list.Element
}

// First is closed when the place is the first of its line.
func (p *Place[ID]) First() <-chan struct{} { return p.first }

// IsFirst says whether it is.
func (p *Place[ID]) IsFirst() bool {
	select {
	case <-p.first:
		return true
	default:
		return false
	}
}

// Enter gives a caller of this cost a place in a line, before those with a higher order. It returns
// nil if as many as most are in the line, or if admit, which is asked last, says no.
func (l *Lines[ID]) Enter(id ID, order uint64, cost int64, most int, admit func() bool) *Place[ID] {
	l.mu.Lock()
	defer l.mu.Unlock()
	in := l.byID[id]
	if most < 1 || in != nil && in.Len() >= most || !admit() {
		return nil
	}
	if in == nil {
		in = new(line[ID])
		if l.byID == nil {
			l.byID = make(map[ID]*line[ID])
		}
		l.byID[id] = in
	}
	p := &Place[ID]{ID: id, order: order, cost: cost, first: make(chan struct{})}
	in.add(p)
	return p
}

func (l *line[ID]) add(p *Place[ID]) {
	before := l.Back()
	for before != nil && before.Value.(*Place[ID]).order > p.order {
		before = before.Prev()
	}
	if before == nil {
		p.at = l.PushFront(p)
		close(p.first)
	} else {
		p.at = l.InsertAfter(p, before)
	}
	l.cost += p.cost
}

// Leave gives a place up, once. The next in line is the first then, if it was the first.
func (l *Lines[ID]) Leave(p *Place[ID]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	in := l.byID[p.ID]
	in.Remove(p.at)
	if in.cost -= p.cost; in.Len() == 0 {
		delete(l.byID, p.ID)
		return
	}
	if next := in.Front().Value.(*Place[ID]); !next.IsFirst() {
		close(next.first)
	}
}

// Cost is that of all who wait in a line.
func (l *Lines[ID]) Cost(id ID) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if in := l.byID[id]; in != nil {
		return in.cost
	}
	return 0
}

// Len returns how many lines there are with somebody in them.
func (l *Lines[ID]) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.byID)
}
