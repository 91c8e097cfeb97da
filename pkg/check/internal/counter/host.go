package counter

import "github.com/offpath-io/offpath/pkg/check/internal/fleetstate"

// Init initializes the host. It is called once, before anything else.
func (h *Host) Init(config fleetstate.Config) {
	h.State.Init(config)
	h.Table.init()
}

// Add adds a group to the list.
func (s *groups) Add(g *Group) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, g)
}

// Take empties the list and returns its groups.
func (s *groups) Take() (list []*Group) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list, s.list = s.list, nil
	return list
}

// Any returns whether the list has groups.
func (s *groups) Any() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.list) > 0
}

// takeAll empties the stack and returns the counters, linked by next.
func (s *stack) takeAll() *Counter {
	if s.head.Load() == nil {
		return nil
	}
	return s.head.Swap(nil)
}

func (s *askStack) push(c *Counter) {
	for {
		head := s.Head.Load()
		c.ofStrict().next = head
		if s.Head.CompareAndSwap(head, c) {
			return
		}
	}
}

// Collect calls f with the counters that have become dirty since the last call, and removes them
// from their stacks.
func (h *Host) Collect(f func(*Counter)) {
	for i := range h.dirty {
		for c := h.dirty[i].takeAll(); c != nil; {
			next := c.next
			c.next = nil
			f(c)
			c = next
		}
	}
}

// EachDirty calls f with every counter that Collect would take, and every deferred one. They must
// not leave their queues meanwhile.
func (h *Host) EachDirty(f func(*Counter)) {
	for i := range h.dirty {
		for c := h.dirty[i].head.Load(); c != nil; c = c.next {
			f(c)
		}
	}
	h.deferrals.Each(func(g *Group) {
		g.deferred.Each(func(a aged) { f(a.counter) })
	})
}

// CollectAsks does the same with the counters that have asked for permits since the last call.
func (h *Host) CollectAsks(f func(*Counter)) {
	if h.Asks.Head.Load() == nil {
		return
	}
	for c := h.Asks.Head.Swap(nil); c != nil; {
		s := c.ofStrict()
		next := s.next
		s.next = nil
		f(c)
		c = next
	}
}
