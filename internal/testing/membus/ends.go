package membus

import (
	"context"
	"slices"

	"github.com/offpath-io/offpath/pkg/events"
)

// Checker is one checker's end of the bus.
type Checker struct {
	bus    *Bus
	name   string
	handle func(events.Kind, []byte)
}

// Checker returns the end of a checker of this name (not ""). Names are not checked for uniqueness:
// two checkers of one name get each other's answers, as they would on a real network.
func (b *Bus) Checker(name string) *Checker {
	c := &Checker{bus: b, name: name}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.checkers[name] == nil {
		b.names = append(b.names, name)
	}
	b.checkers[name] = append(b.checkers[name], c)
	return c
}

// Report sends a report to the owner of its shard, or to any worker. It never blocks and keeps no
// hold of report.
func (c *Checker) Report(shard uint32, toOwner bool, report []byte) error {
	c.bus.send(message{kind: events.KindReport, checker: c.name, shard: shard, toOwner: toOwner, payload: report})
	return nil
}

// Lease sends a lease request, likewise.
func (c *Checker) Lease(shard uint32, toOwner bool, request []byte) error {
	c.bus.send(message{kind: events.KindLease, checker: c.name, shard: shard, toOwner: toOwner, payload: request})
	return nil
}

// Hello sends a hello to every worker; one of them answers.
func (c *Checker) Hello(hello []byte) error {
	c.bus.send(message{kind: events.KindHello, checker: c.name, payload: hello})
	return nil
}

// Attach hands every message for this checker to h from now on; nil detaches.
func (c *Checker) Attach(h func(events.Kind, []byte)) {
	c.bus.mu.Lock()
	defer c.bus.mu.Unlock()
	c.handle = h
}

// Listen attaches h until ctx is done; h is not called any more once it has returned. It must not
// be called by a handler.
func (c *Checker) Listen(ctx context.Context, h func(events.Kind, []byte)) error {
	c.Attach(h)
	<-ctx.Done()
	c.Attach(nil)
	c.bus.quiet()
	return nil
}

// Worker is one aggregator's end of the bus.
type Worker struct {
	bus             *Bus
	number          int    // among the workers
	attended, owned []bool // shards
	format          uint32 // the newest that it knows of reports; 0: all
	handle          func(events.Kind, []byte, func([]byte) error)
}

// Worker returns the end of one more worker.
func (b *Bus) Worker() *Worker {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := &Worker{bus: b, number: len(b.workers)}
	b.workers = append(b.workers, w)
	return w
}

// Attend says of each shard whether its reports and lease requests are to come here: as to one of
// all workers, and as to its owner.
func (w *Worker) Attend(attended, owned []bool) error {
	w.bus.mu.Lock()
	defer w.bus.mu.Unlock()
	w.attended, w.owned = slices.Clone(attended), slices.Clone(owned)
	return nil
}

// Tell sends a message to all workers, this one included: each copy meets the network's faults on
// its own.
func (w *Worker) Tell(member []byte) error {
	w.bus.tell(member)
	return nil
}

// Knows makes this worker one of an older version, which hears of reports of up to this format.
func (w *Worker) Knows(format uint32) {
	w.bus.mu.Lock()
	defer w.bus.mu.Unlock()
	w.format = format
}

// attends says whether a message may come here, as far as its shard is concerned: any may, until
// Attend is called.
func (w *Worker) attends(m *message) bool {
	if w.format != 0 && m.kind == events.KindReport && events.PeekFormat(m.payload) > w.format {
		return false
	}
	if w.attended == nil {
		return !m.toOwner
	}
	if m.kind == events.KindHello {
		return slices.Contains(w.attended, true)
	}
	if m.toOwner {
		return int(m.shard) < len(w.owned) && w.owned[m.shard]
	}
	return int(m.shard) < len(w.attended) && w.attended[m.shard]
}

// Alarm sends an alarm to every checker.
func (w *Worker) Alarm(_ uint32, alarm []byte) error {
	w.bus.broadcast(events.KindAlarm, alarm)
	return nil
}

// Attach hands this worker its share of reports, lease requests and hellos from now on; nil
// detaches. A hello that another worker answers, and what workers tell each other, come with a nil
// reply.
func (w *Worker) Attach(h func(events.Kind, []byte, func([]byte) error)) {
	w.bus.mu.Lock()
	defer w.bus.mu.Unlock()
	w.handle = h
}

// Serve attaches h until ctx is done; h is not called any more once it has returned. It must not be
// called by a handler.
func (w *Worker) Serve(ctx context.Context, h func(events.Kind, []byte, func([]byte) error)) error {
	w.Attach(h)
	<-ctx.Done()
	w.Attach(nil)
	w.bus.quiet()
	return nil
}

// message is one message under way; checker is whom it is from or for.
type message struct {
	kind    events.Kind
	checker string
	shard   uint32
	toOwner bool
	worker  int // whom it is for, of what workers tell each other
	payload []byte
	// everybody is the names of the checkers that it is for, of a broadcast whose copies arrive at
	// one time; nil otherwise.
	everybody []string
	due       int64
	order     uint64
}

// messages is a heap by time of delivery, then by order of sending.
type messages []message

func (q messages) Len() int { return len(q) }
func (q messages) Less(i, j int) bool {
	if q[i].due != q[j].due {
		return q[i].due < q[j].due
	}
	return q[i].order < q[j].order
}
func (q messages) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *messages) Push(m any)   { *q = append(*q, m.(message)) }
func (q *messages) Pop() any {
	last := len(*q) - 1
	m := (*q)[last]
	(*q)[last] = message{}
	*q = (*q)[:last]
	return m
}
