// Package natsbus carries events over core NATS.
//
// Subjects, below a namespace (so that fleets share a server), with the format's version inside, so
// that no older part is handed what it cannot read:
//
//	<ns>.report.v1.<shard>.<checker>   a report, to one aggregator (queue group) of those that attend to the shard
//	<ns>.refresh.v1.<checker>          its answer
//	<ns>.hello.v1.<checker>            a hello, to every aggregator; one of them answers
//	<ns>.welcome.v1.<checker>          its answer
//	<ns>.alarm.v1.<shard>              an alarm, to every checker
//	<ns>.lease.v1.<shard>.<checker>    a lease request, to one aggregator (queue group), likewise
//	<ns>.grant.v1.<checker>            its answer
//	<ns>.report.v2.<shard>.<checker>   a report with rows of refunded hits, and
//	<ns>.alarm.v2.<shard>              an alarm with such rows, which parts that do not know them do not hear
//
// A report or lease request for the aggregator of an ID has <shard>-<ID> in the place of the shard.
//
// A subject names its sender, so a server's accounts can hold each checker to its own. <checker>
// may be two tokens, <owner>.<epoch> (see [Owned]): then accounts can be written down before
// anybody knows the epoch, and for several checkers at once, and a worker drops what an owner says
// in the name of an epoch that is not its own. Nothing is stored on the way and nothing is buffered
// while the server is away: a message that cannot be sent now is an error, and the sender's own
// repeats make up for it.
package natsbus

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/offpath-io/offpath/pkg/events"
)

// queueGroup shares reports, lease requests and hellos among the aggregators.
const queueGroup = "aggregators"

var token = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// Connect returns a connection for a carrier to one of some servers, whose URLs have commas
// between. It tries for ever, in the background, even if no server is there yet, and buffers
// nothing meanwhile (a buffer would deliver old reports in a burst, after their repeats). The error
// is for a malformed URL, which it does not quote, or for an option. Further options, such as
// credentials and handlers, come last and win.
func Connect(servers, name string, options ...nats.Option) (*nats.Conn, error) {
	all := append([]nats.Option{
		nats.Name(name),
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(250 * time.Millisecond),
		nats.ReconnectJitter(250*time.Millisecond, time.Second),
		nats.ReconnectBufSize(-1),
		// A server that stops reading is as good as gone, and a send must not wait for it long.
		nats.FlusherTimeout(time.Second),
		nats.PingInterval(5 * time.Second),
		nats.MaxPingsOutstanding(2),
	}, options...)
	conn, err := nats.Connect(servers, all...)
	if _, malformed := errors.AsType[*url.Error](err); malformed { // which quotes any password
		return nil, errors.New("connect to NATS: malformed URL")
	}
	if err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	return conn, nil
}

// CheckName returns an error unless name can be a namespace or a checker's name: 1 to 64 letters,
// digits, '-' and '_'.
func CheckName(name string) error {
	if !token.MatchString(name) {
		return fmt.Errorf("name %q: want 1 to 64 letters, digits, '-' or '_'", name)
	}
	return nil
}

// Owned is the name of a checker that a server knows as owner, which must be a name for CheckName:
// the epoch, which must be one of [events.NewEpoch] for that owner, tells apart the checkers that
// share one. Of a checker without an owner, "", it is the epoch alone.
func Owned(owner string, epoch uint64) string {
	name := strconv.FormatUint(epoch, 16)
	if owner == "" {
		return name
	}
	return owner + "." + name
}

// topic is what subjects of a kind and format begin with.
func topic(ns string, kind events.Kind, format uint32) string {
	return ns + "." + kind.String() + ".v" + strconv.FormatUint(uint64(format), 10) + "."
}

// checkChecker is CheckName for what names a checker.
func checkChecker(name string) error {
	owner, epoch, owned := strings.Cut(name, ".")
	if !owned {
		return CheckName(name)
	}
	return errors.Join(CheckName(owner), CheckName(epoch))
}

// Checker is one checker's end. It is safe for concurrent use.
type Checker struct {
	conn     *nats.Conn
	ns, name string
}

// inbox is the subject of this checker's messages of a kind: its hellos, and what answers it.
func (c *Checker) inbox(kind events.Kind) string {
	return topic(c.ns, kind, events.FormatPlain) + c.name
}

// NewChecker returns the end of the checker of this name, which must be unique in the namespace.
// The connection stays the caller's to close. After some complaints of a server the library closes
// it by itself, and does not open it again (see [nats.ClosedHandler]): then nothing is sent or
// heard any more.
func NewChecker(conn *nats.Conn, namespace, name string) (*Checker, error) {
	if err := errors.Join(CheckName(namespace), checkChecker(name)); err != nil {
		return nil, err
	}
	return &Checker{conn: conn, ns: namespace, name: name}, nil
}

// Report sends a report to an aggregator. It does not wait for the server; the error says that the
// report certainly was not sent.
func (c *Checker) Report(shard uint32, aggregator uint64, report []byte) error {
	return c.request(events.KindReport, events.PeekFormat(report), shard, aggregator, report)
}

// Lease sends a lease request to an aggregator, likewise.
func (c *Checker) Lease(shard uint32, aggregator uint64, request []byte) error {
	return c.request(events.KindLease, events.FormatPlain, shard, aggregator, request)
}

// Hello sends a hello to every aggregator; one of them answers.
func (c *Checker) Hello(hello []byte) error {
	return c.publish(events.KindHello, c.inbox(events.KindHello), hello)
}

// request sends a request of some kind and format to one aggregator, by its ID, or with 0 to any.
func (c *Checker) request(
	kind events.Kind, format, shard uint32, aggregator uint64, data []byte,
) error {
	to := strconv.FormatUint(uint64(shard), 10)
	if aggregator != 0 {
		to += "-" + strconv.FormatUint(aggregator, 16)
	}
	return c.publish(kind, topic(c.ns, kind, format)+to+"."+c.name, data)
}

func (c *Checker) publish(kind events.Kind, subject string, data []byte) error {
	if err := c.conn.PublishRequest(subject, c.inbox(answers[kind]), data); err != nil {
		return fmt.Errorf("publish %v: %w", kind, err)
	}
	return nil
}

// noResponders is the status of the server's answer to a request that nobody serves.
const noResponders = "503"

// Listen hands every refresh, grant, welcome and alarm to h, possibly several at a time, until ctx
// is done. Once it has returned, h is not called any more.
func (c *Checker) Listen(ctx context.Context, h func(events.Kind, []byte)) error {
	var g gate
	defer g.shut()
	// The order matters: all are told alarms, and who hears a plain one hears everything.
	for _, of := range []struct {
		subject string
		kind    events.Kind
	}{
		{c.inbox(events.KindRefresh), events.KindRefresh},
		{c.inbox(events.KindWelcome), events.KindWelcome},
		{c.inbox(events.KindGrant), events.KindGrant},
		{topic(c.ns, events.KindAlarm, events.FormatRefunds) + "*", events.KindAlarm},
		{topic(c.ns, events.KindAlarm, events.FormatPlain) + "*", events.KindAlarm},
	} {
		sub, err := c.conn.Subscribe(of.subject, func(m *nats.Msg) {
			// No message of ours is empty. The server answers a request with an empty one when
			// nobody serves it.
			switch {
			case len(m.Data) > 0:
				g.pass(func() { h(of.kind, m.Data) })
			case m.Header.Get("Status") == noResponders && of.kind != events.KindWelcome:
				g.pass(func() { h(events.KindUnheard, nil) })
			}
		})
		if err != nil {
			return fmt.Errorf("subscribe to %s: %w", of.subject, err)
		}
		defer unsubscribe(sub)
	}
	<-ctx.Done()
	return nil
}

// Worker is one aggregator's end. It is safe for concurrent use.
type Worker struct {
	conn *nats.Conn
	ns   string
	id   uint64

	mu       sync.Mutex
	attended []bool                            // shards
	shards   [][]*nats.Subscription            // by shard, while serving
	hellos   *nats.Subscription                // of the queue group
	handle   func(events.Kind) nats.MsgHandler // nil unless it serves
}

// NewWorker returns the end of one aggregator. The connection stays the caller's to close.
func NewWorker(conn *nats.Conn, namespace string) (*Worker, error) {
	if err := CheckName(namespace); err != nil {
		return nil, err
	}
	return &Worker{conn: conn, ns: namespace, id: rand.Uint64() | 1}, nil
}

// ID is the number by which checkers can send to this aggregator.
func (w *Worker) ID() uint64 { return w.id }

// Alarm sends an alarm to every checker.
func (w *Worker) Alarm(shard uint32, alarm []byte) error {
	subject := topic(w.ns, events.KindAlarm, events.PeekFormat(alarm)) + strconv.FormatUint(uint64(shard), 10)
	if err := w.conn.Publish(subject, alarm); err != nil {
		return fmt.Errorf("publish alarm: %w", err)
	}
	return nil
}

// Attend says of each shard whether its reports and lease requests are to come here. It does not
// wait for the server.
func (w *Worker) Attend(shards []bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.attended = slices.Clone(shards)
	return w.subscribe()
}

// Serve hands this aggregator's share of reports, lease requests and hellos to h, possibly several
// at a time, until ctx is done, and then what is already on its way here. A hello that is another
// aggregator's to answer comes with a nil reply. Once Serve has returned, h is not called any more.
func (w *Worker) Serve(ctx context.Context, h func(events.Kind, []byte, func([]byte) error)) error {
	var g gate
	defer g.shut()
	all := w.ns + ".hello.v1.>"
	heard, err := w.conn.Subscribe(all, func(m *nats.Msg) {
		if w.genuine(events.KindHello, m) {
			g.pass(func() { h(events.KindHello, m.Data, nil) })
		}
	})
	if err != nil {
		return fmt.Errorf("subscribe to %s: %w", all, err)
	}
	w.mu.Lock()
	w.handle = func(kind events.Kind) nats.MsgHandler {
		return func(m *nats.Msg) {
			if w.genuine(kind, m) {
				g.pass(func() { h(kind, m.Data, m.Respond) })
			}
		}
	}
	err = w.subscribe()
	w.mu.Unlock()
	if err == nil {
		<-ctx.Done()
	}
	drain(append(w.forget(), heard)...)
	return err
}

// subscribe brings subscriptions in line with what is attended to. The lock is held.
func (w *Worker) subscribe() (err error) {
	if w.handle == nil {
		return nil
	}
	w.shards = append(w.shards, make([][]*nats.Subscription, max(len(w.attended)-len(w.shards), 0))...)
	for i := range w.shards {
		attended := i < len(w.attended) && w.attended[i]
		switch {
		case attended && w.shards[i] == nil:
			w.shards[i], err = w.subscribeTo(i)
		case !attended:
			unsubscribe(w.shards[i]...)
			w.shards[i] = nil
		}
		if err != nil {
			return err
		}
	}
	switch answers := slices.Contains(w.attended, true); {
	case answers && w.hellos == nil:
		w.hellos, err = w.conn.QueueSubscribe(w.ns+".hello.v1.>", queueGroup, w.handle(events.KindHello))
	case !answers && w.hellos != nil:
		unsubscribe(w.hellos)
		w.hellos = nil
	}
	return err
}

// subscribeTo subscribes to what is sent to any aggregator of a shard, and to this one. Both are of
// the queue group, since aggregators of before IDs subscribe to either: one of all gets a message.
func (w *Worker) subscribeTo(shard int) (subs []*nats.Subscription, err error) {
	for _, of := range []struct {
		kind   events.Kind
		format uint32
	}{{events.KindReport, events.FormatPlain}, {events.KindReport, events.FormatRefunds}, {events.KindLease, events.FormatPlain}} {
		to := topic(w.ns, of.kind, of.format)
		any, here := fmt.Sprintf("%s%d.>", to, shard), fmt.Sprintf("%s%d-%x.>", to, shard, w.id)
		sub, err := w.conn.QueueSubscribe(any, queueGroup, w.handle(of.kind))
		if err == nil {
			subs = append(subs, sub)
			sub, err = w.conn.QueueSubscribe(here, queueGroup, w.handle(of.kind))
		}
		if err != nil {
			unsubscribe(subs...)
			return nil, fmt.Errorf("subscribe to %s and %s: %w", any, here, err)
		}
		subs = append(subs, sub)
	}
	return subs, nil
}

// forget ends serving, and returns what there is to drain.
func (w *Worker) forget() (subs []*nats.Subscription) {
	w.mu.Lock()
	defer w.mu.Unlock()
	subs = slices.Concat(w.shards...)
	if w.hellos != nil {
		subs = append(subs, w.hellos)
	}
	w.shards, w.hellos, w.handle = nil, nil, nil
	return subs
}

// drainTimeout is how long the server may take to end a subscription.
const drainTimeout = time.Second

// drain ends subscriptions so that what the server has sent until it knows of the end is still
// handed over, instead of being lost until it is repeated.
func drain(subs ...*nats.Subscription) {
	closed := make(chan struct{}, len(subs))
	open := 0
	for _, s := range subs {
		s.SetClosedHandler(func(string) { closed <- struct{}{} })
		if s.Drain() == nil { // else there is no connection, and nothing more to come
			open++
		}
	}
	timeout := time.After(drainTimeout)
	for range open {
		select {
		case <-closed:
		case <-timeout:
			return
		}
	}
}

// unsubscribe fails only when the connection or a subscription is closed already.
func unsubscribe(subs ...*nats.Subscription) {
	for _, s := range subs {
		_ = s.Unsubscribe()
	}
}
