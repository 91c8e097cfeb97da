package counter

import "github.com/offpath-io/offpath/pkg/check/internal/fleetstate"

// Init makes the host ready. It is called once, before anything else.
func (h *Host) Init(config fleetstate.Config) {
	h.State.Init(config)
	h.Table.init()
}

func (s *groups) Add(g *Group) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, g)
}

func (s *groups) Take() (list []*Group) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list, s.list = s.list, nil
	return list
}

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

// Collect takes the counters that have become dirty since the last time.
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

// CollectAsks takes the counters that have asked for permits since the last time.
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
