// Package membus carries events within one process, with the contract of package natsbus: a report
// or lease request goes to one of the workers, its answer to the checker that sent it, an alarm to
// every checker, and a hello to every worker, of which one answers.
//
// On request it is a bad network: it loses messages, repeats them, delays and so reorders them, and
// cuts off single checkers; which ones is decided by a seed. It has no clock of its own. [Bus.Step]
// delivers what is due at a given time, which makes a whole fleet a deterministic program;
// [Bus.Run] does so in real time (or in a testing/synctest bubble's).
package membus

import (
	"container/heap"
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/offpath-io/offpath/pkg/events"
)

// Faults say how bad the network is. The zero value is a perfect one without delay.
type Faults struct {
	// Lose is the share of messages that vanish, 0 to 1.
	Lose float64
	// Repeat is the share of messages that arrive twice, the second time up to RepeatWithin later
	// and, if it is for a worker, at any of them.
	Repeat       float64
	RepeatWithin time.Duration
	// Delay is how long every message takes, and Jitter how much longer at the most. Messages
	// closer together than Jitter can overtake each other.
	Delay, Jitter time.Duration
	// Only, if not empty, are the kinds of messages that meet all this; the others arrive at once.
	Only []events.Kind
}

// Options make a Bus. The zero value is a perfect network.
type Options struct {
	// Faults at the beginning; SetFaults changes them.
	Faults Faults
	// Seed decides which messages meet a fault and which worker gets a report.
	Seed uint64
	// Broadcast hands over the copies of a broadcast that arrive at one time: it calls deliver for
	// 0 to n−1, maybe from several goroutines, and returns when all calls have. If it is nil, they
	// come one after the other.
	Broadcast func(n int, deliver func(i int))
}

// Bus is the network. Its methods are safe for concurrent use; handlers run one at a time, in the
// goroutine that calls Step or Run (but for [Options.Broadcast]), and may send.
type Bus struct {
	mu       sync.Mutex
	rand     *rand.Rand
	faults   Faults
	queue    messages
	sent     uint64
	now      int64
	live     bool
	checkers map[string][]*Checker
	names    []string // of the checkers, each once, in order of appearance
	workers  []*Worker
	cut      map[string]ways
	wake     chan struct{}
	deliver  sync.Mutex
	together func(n int, deliver func(i int))
	traffic  Traffic
}

// Traffic is what checkers and workers have sent and heard so far.
type Traffic struct{ Checkers, Workers Flow }

// Flow is messages, and the bytes of their payloads, of all ends of a kind together. What was sent
// is counted once, lost or not, and what was heard once at each end that hears it.
type Flow struct{ Sent, SentBytes, Heard, HeardBytes int64 }

func (f *Flow) send(m *message) {
	f.Sent++
	f.SentBytes += int64(len(m.payload))
}

func (f *Flow) hear(m *message, ends int) {
	f.Heard += int64(ends)
	f.HeardBytes += int64(ends * len(m.payload))
}

// New returns a bus that nobody is attached to yet.
func New(o Options) *Bus {
	if o.Broadcast == nil {
		o.Broadcast = inTurn
	}
	return &Bus{
		together: o.Broadcast,
		rand:     rand.New(rand.NewPCG(o.Seed, 0x6f666670617468)),
		faults:   o.Faults,
		checkers: make(map[string][]*Checker),
		cut:      make(map[string]ways),
		wake:     make(chan struct{}, 1),
	}
}

func inTurn(n int, deliver func(i int)) {
	for i := range n {
		deliver(i)
	}
}

// SetFaults changes the network from now on; what is under way stays as it is.
func (b *Bus) SetFaults(f Faults) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults = f
}

// ways says which messages of an end are lost.
type ways struct{ from, to bool }

// Cut takes the checker of this name off the network, or puts it back: messages from it and to it
// are lost. The name "" stands for all checkers.
func (b *Bus) Cut(checker string, off bool) { b.CutWays(checker, off, off) }

// CutWays does that with the messages from the checker, or those to it.
func (b *Bus) CutWays(checker string, from, to bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cut[checker] = (ways{from, to}); !from && !to {
		delete(b.cut, checker)
	}
}

// Pending returns how many messages are under way.
func (b *Bus) Pending() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.queue)
}

// Traffic returns what has been sent and heard.
func (b *Bus) Traffic() Traffic {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.traffic
}

// quiet waits for the delivery that is under way, if there is one.
func (b *Bus) quiet() {
	b.deliver.Lock()
	defer b.deliver.Unlock()
}

// Step sets the bus' time to now and delivers every message due by then, also those that handlers
// send without delay meanwhile. It returns when the next one is due; ok is false if none is.
func (b *Bus) Step(now int64) (next int64, ok bool) {
	b.deliver.Lock()
	defer b.deliver.Unlock()
	for {
		b.mu.Lock()
		b.now = max(b.now, now)
		if len(b.queue) == 0 || b.queue[0].due > b.now {
			defer b.mu.Unlock()
			if len(b.queue) == 0 {
				return 0, false
			}
			return b.queue[0].due, true
		}
		m := heap.Pop(&b.queue).(message)
		call := b.receiver(m)
		b.mu.Unlock()
		if call != nil {
			call()
		}
	}
}

// Run delivers messages as their time comes, until ctx is done; what is under way then stays so.
func (b *Bus) Run(ctx context.Context) error {
	b.mu.Lock()
	b.live = true
	b.mu.Unlock()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(time.Hour)
		if next, ok := b.Step(time.Now().UnixNano()); ok {
			timer.Reset(time.Until(time.Unix(0, next)))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-b.wake:
		}
	}
}

// send puts a message on its way to one receiver.
func (b *Bus) send(m message) {
	m.payload = slices.Clone(m.payload)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.look()
	if _, ok := answers[m.kind]; ok {
		b.traffic.Checkers.send(&m)
	} else if m.kind != events.KindUnheard { // which is the network's own
		b.traffic.Workers.send(&m)
	}
	b.dispatch(m)
	b.nudge()
}

// broadcast puts a message on its way to every checker: one each, so that each meets the network's
// faults on its own. If there is none that could tell the copies apart before they arrive, they
// travel as one message, so that a large fleet does not fill the queue.
func (b *Bus) broadcast(kind events.Kind, payload []byte) {
	m := message{kind: kind, payload: slices.Clone(payload)}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.look()
	b.traffic.Workers.send(&m)
	if f := b.faultsOf(kind); f.Lose == 0 && f.Repeat == 0 && f.Jitter == 0 && len(b.cut) == 0 {
		m.everybody = slices.Clip(b.names)
		b.enqueue(m, f.Delay)
	} else {
		for _, name := range b.names {
			m.checker = name
			b.dispatch(m)
		}
	}
	b.nudge()
}

// tell puts a message on its way to every worker, one each. Checkers that are cut off do not
// matter.
func (b *Bus) tell(payload []byte) {
	m := message{kind: events.KindMember, payload: slices.Clone(payload)}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.look()
	b.traffic.Workers.send(&m)
	for m.worker = range b.workers {
		b.dispatch(m)
	}
	b.nudge()
}

// look looks at the clock, if there is one.
func (b *Bus) look() {
	if b.live {
		b.now = max(b.now, time.Now().UnixNano())
	}
}

// nudge tells Run that there is something to deliver.
func (b *Bus) nudge() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// dispatch queues a message, or loses it, or queues it twice.
func (b *Bus) dispatch(m message) {
	f := b.faultsOf(m.kind)
	if b.isCut(m) || b.chance(f.Lose) {
		return
	}
	b.enqueue(m, f.Delay+b.upTo(f.Jitter))
	if b.chance(f.Repeat) {
		b.enqueue(m, f.Delay+b.upTo(f.RepeatWithin))
	}
}

// faultsOf returns the faults that messages of a kind meet.
func (b *Bus) faultsOf(kind events.Kind) Faults {
	if len(b.faults.Only) > 0 && !slices.Contains(b.faults.Only, kind) {
		return Faults{}
	}
	return b.faults
}

func (b *Bus) enqueue(m message, after time.Duration) {
	b.sent++
	m.due, m.order = b.now+int64(after), b.sent
	heap.Push(&b.queue, m)
}

// receiver finds who gets m now, and returns the call that hands it over; nil if nobody does.
func (b *Bus) receiver(m message) func() {
	if answer, ok := answers[m.kind]; ok {
		return b.workerCall(m, answer)
	}
	if m.kind == events.KindMember {
		return b.memberCall(m)
	}
	to := b.handlers(nil, m)
	for _, m.checker = range m.everybody {
		to = b.handlers(to, m)
	}
	b.traffic.Checkers.hear(&m, len(to))
	if len(to) == 0 {
		return nil
	}
	deliver := func(i int) { to[i](m.kind, m.payload) }
	if len(m.everybody) > 0 {
		return func() { b.together(len(to), deliver) }
	}
	return func() { inTurn(len(to), deliver) }
}

// handlers appends the handlers of the checkers of m's name, unless these are cut off.
func (b *Bus) handlers(to []func(events.Kind, []byte), m message) []func(events.Kind, []byte) {
	if b.isCut(m) {
		return to
	}
	for _, c := range b.checkers[m.checker] {
		if c.handle != nil {
			to = append(to, c.handle)
		}
	}
	return to
}

// answers are the kinds of messages that workers get, and those of the answers.
var answers = map[events.Kind]events.Kind{
	events.KindReport: events.KindRefresh,
	events.KindLease:  events.KindGrant,
	events.KindHello:  events.KindWelcome,
}

func (b *Bus) memberCall(m message) func() {
	handle := b.workers[m.worker].handle
	if handle == nil {
		return nil
	}
	b.traffic.Workers.hear(&m, 1)
	return func() { handle(m.kind, m.payload, nil) }
}

func (b *Bus) workerCall(m message, answer events.Kind) func() {
	var all, group []func(events.Kind, []byte, func([]byte) error)
	for _, w := range b.workers {
		if w.handle == nil {
			continue
		}
		all = append(all, w.handle)
		if w.attends(&m) {
			group = append(group, w.handle)
		}
	}
	if len(group) == 0 && m.kind != events.KindHello {
		to := events.Address{Kind: m.kind, Format: events.FormatPlain, Shard: m.shard, ToOwner: m.toOwner}
		if m.kind == events.KindReport {
			to.Format = events.PeekFormat(m.payload)
		}
		return func() { b.send(message{kind: events.KindUnheard, checker: m.checker, payload: []byte(to.String())}) }
	}
	if len(group) > 0 && !m.toOwner { // all that believe to be the owner get it
		chosen := b.rand.IntN(len(group))
		group = group[chosen : chosen+1]
	}
	if m.kind != events.KindHello {
		all = nil
	}
	b.traffic.Workers.hear(&m, len(all)+len(group))
	reply := func(payload []byte) error {
		b.send(message{kind: answer, checker: m.checker, payload: payload})
		return nil
	}
	return func() {
		for _, handle := range all { // of a hello
			handle(m.kind, m.payload, nil)
		}
		for _, handle := range group {
			handle(m.kind, m.payload, reply)
		}
	}
}

func (b *Bus) isCut(m message) bool {
	if m.checker == "" {
		return false
	}
	all, one := b.cut[""], b.cut[m.checker]
	if _, ok := answers[m.kind]; ok {
		return all.from || one.from
	}
	return all.to || one.to
}

func (b *Bus) chance(share float64) bool { return share > 0 && b.rand.Float64() < share }

func (b *Bus) upTo(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return time.Duration(b.rand.Int64N(int64(d)))
}
