// Package natsbus carries events over core NATS.
//
// Subjects, below a namespace (so that fleets share a server), with the format's version inside, so
// that no older part is handed what it cannot read:
//
//	<ns>.report.v1.<shard>.<checker>   a report, to one aggregator (queue group) of those that serve
//	                                   the shard
//	<ns>.refresh.v1.<checker>          its answer
//	<ns>.hello.v1.<checker>            a hello, to every aggregator; one of them answers
//	<ns>.welcome.v1.<checker>          its answer
//	<ns>.alarm.v1.<shard>              an alarm, to every checker
//	<ns>.lease.v1.<shard>.<checker>    a lease request, to one aggregator (queue group), likewise
//	<ns>.grant.v1.<checker>            its answer
//	<ns>.report.v2.<shard>.<checker>   a report with rows of refunded hits, and
//	<ns>.alarm.v2.<shard>              an alarm with such rows, which parts that do not know them do
//	                                   not hear
//	<ns>.member.v1                     what an aggregator tells all of them, itself included
//
// A report or lease request for the owner of a shard has <shard>-owner in the place of the shard,
// and goes to every aggregator that believes it owns it. If nobody listens, the server says so.
// From NATS 2.12 on it names the subject; before that, the sender waits for its time-out.
//
// A subject names its sender, so a server's accounts can hold each checker to its own. <checker>
// may be two tokens, <credential>.<epoch> (see [CheckerName]): then accounts can be written down
// before anybody knows the epoch, and for several checkers at once, and a worker drops what a
// credential says in the name of an epoch that is not its own. Nothing is stored on the way and
// nothing is buffered while the server is away: a message that cannot be sent now is an error, and
// the sender's own repeats make up for it.
package natsbus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
		// With TLS, a failed write is the end of all others, though answers can still be read.
		nats.ReconnectOnFlusherError(),
		nats.PingInterval(5 * time.Second),
		nats.MaxPingsOutstanding(2),
	}, options...)
	conn, err := nats.Connect(servers, append(all, dial)...)
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
		return fmt.Errorf("name %.64q: want 1 to 64 letters, digits, '-' or '_'", name)
	}
	return nil
}

// CheckerName is the name of a checker that a server knows by a credential, which must be a name
// for CheckName: the epoch, which must be one of [events.NewEpoch] for that credential, tells apart
// the checkers that share one. Of a checker without a credential, "", it is the epoch alone.
func CheckerName(credential string, epoch uint64) string {
	name := strconv.FormatUint(epoch, 16)
	if credential == "" {
		return name
	}
	return credential + "." + name
}

// topic is what subjects of a kind and format begin with.
func topic(ns string, kind events.Kind, format uint32) string {
	return ns + "." + kind.String() + ".v" + strconv.FormatUint(uint64(format), 10) + "."
}

// checkChecker is CheckName for what names a checker.
func checkChecker(name string) error {
	credential, epoch, both := strings.Cut(name, ".")
	if !both {
		return CheckName(name)
	}
	return errors.Join(CheckName(credential), CheckName(epoch))
}

// Checker is one checker's end. It is safe for concurrent use.
type Checker struct {
	conn     *nats.Conn
	ns, name string
	presence *presence
}

// inbox is the subject of this checker's messages of a kind: its hellos, and what answers it.
func (c *Checker) inbox(kind events.Kind) string {
	return topic(c.ns, kind, events.FormatPlain) + c.name
}

// NewChecker returns the end of the checker of this name, which must be unique in the namespace. It
// watches the connection until that is closed, which stays the caller's to do. After some complaints
// of a server the library closes it by itself, and does not open it again (see
// [nats.ClosedHandler]): then nothing is sent or heard any more.
func NewChecker(conn *nats.Conn, namespace, name string) (*Checker, error) {
	if err := errors.Join(CheckName(namespace), checkChecker(name)); err != nil {
		return nil, err
	}
	return &Checker{conn: conn, ns: namespace, name: name, presence: watch(conn)}, nil
}

// Report sends a report to the owner of its shard, or to any aggregator. It does not wait for the
// server; the error says that the report certainly was not sent.
func (c *Checker) Report(shard uint32, toOwner bool, report []byte) error {
	return c.request(events.KindReport, events.PeekFormat(report), shard, toOwner, report)
}

// Lease sends a lease request, likewise.
func (c *Checker) Lease(shard uint32, toOwner bool, request []byte) error {
	return c.request(events.KindLease, events.FormatPlain, shard, toOwner, request)
}

// Hello sends a hello to every aggregator; one of them answers.
func (c *Checker) Hello(hello []byte) error {
	return c.publish(events.KindHello, c.inbox(events.KindHello), hello)
}

// request sends a request of some kind and format to the owner of a shard, or to any aggregator.
func (c *Checker) request(
	kind events.Kind, format, shard uint32, toOwner bool, data []byte,
) error {
	to := events.Address{Kind: kind, Format: format, Shard: shard, ToOwner: toOwner}
	return c.publish(kind, c.ns+"."+to.String()+"."+c.name, data)
}

func (c *Checker) publish(kind events.Kind, subject string, data []byte) error {
	err := c.presence.check()
	if err == nil {
		err = c.conn.PublishRequest(subject, c.inbox(answers[kind]), data)
	}
	if err != nil {
		return fmt.Errorf("publish %v: %w", kind, err)
	}
	return nil
}

// noResponders is the status of the server's answer to a request that nobody serves; the subject of
// the request is in a header of that name, from NATS 2.12 on.
const noResponders, unheardSubject = "503", "Nats-Subject"

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
				to := strings.TrimPrefix(m.Header.Get(unheardSubject), c.ns+".")
				g.pass(func() { h(events.KindUnheard, []byte(strings.TrimSuffix(to, "."+c.name))) })
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
	conn     *nats.Conn
	ns       string
	presence *presence

	mu              sync.Mutex
	attended, owned []bool                            // shards
	any, own        [][]*nats.Subscription            // by shard: as one of all, as its owner
	hellos          *nats.Subscription                // of the queue group
	handle          func(events.Kind) nats.MsgHandler // nil unless it serves
}

// NewWorker returns the end of one aggregator. It watches the connection until that is closed, which
// stays the caller's to do.
func NewWorker(conn *nats.Conn, namespace string) (*Worker, error) {
	if err := CheckName(namespace); err != nil {
		return nil, err
	}
	return &Worker{conn: conn, ns: namespace, presence: watch(conn)}, nil
}

// Alarm sends an alarm to every checker.
func (w *Worker) Alarm(shard uint32, alarm []byte) error {
	subject := topic(w.ns, events.KindAlarm, events.PeekFormat(alarm)) + strconv.FormatUint(uint64(shard), 10)
	if err := w.publish(subject, alarm); err != nil {
		return fmt.Errorf("publish alarm: %w", err)
	}
	return nil
}

// Tell sends a message to all aggregators, this one included.
func (w *Worker) Tell(member []byte) error {
	if err := w.publish(w.inbox(), member); err != nil {
		return fmt.Errorf("publish member: %w", err)
	}
	return nil
}

func (w *Worker) publish(subject string, data []byte) error {
	if err := w.presence.check(); err != nil {
		return err
	}
	return w.conn.Publish(subject, data)
}

// inbox is the subject of what aggregators tell each other.
func (w *Worker) inbox() string {
	return strings.TrimSuffix(topic(w.ns, events.KindMember, events.FormatPlain), ".")
}

// Attend says of each shard whether its reports and lease requests are to come here: as to one of
// all aggregators, and as to its owner. It does not wait for the server. What has come to the owner
// of a shard that is no longer owned, but attended to, is still handed over.
func (w *Worker) Attend(attended, owned []bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.attended, w.owned = slices.Clone(attended), slices.Clone(owned)
	return w.subscribeLocked()
}

// Serve hands this aggregator's share of reports, lease requests and hellos to h, and what any
// aggregator tells all, possibly several at a time, until ctx is done, and then what is already on
// its way here. A hello that is another aggregator's to answer, and what needs no answer, come with
// a nil reply. Once Serve has returned, h is not called any more.
func (w *Worker) Serve(ctx context.Context, h func(events.Kind, []byte, func([]byte) error)) error {
	var g gate
	defer g.shut()
	subs := make([]*nats.Subscription, 0, 2)
	for subject, kind := range map[string]events.Kind{
		w.ns + ".hello.v1.>": events.KindHello,
		w.inbox():            events.KindMember,
	} {
		sub, err := w.conn.Subscribe(subject, func(m *nats.Msg) {
			if kind == events.KindMember || w.genuine(kind, m) {
				g.pass(func() { h(kind, m.Data, nil) })
			}
		})
		if err != nil {
			unsubscribe(subs...)
			return fmt.Errorf("subscribe to %s: %w", subject, err)
		}
		subs = append(subs, sub)
	}
	w.mu.Lock()
	w.handle = func(kind events.Kind) nats.MsgHandler {
		return func(m *nats.Msg) {
			if w.genuine(kind, m) {
				g.pass(func() {
					h(kind, m.Data, func(answer []byte) error { return w.publish(m.Reply, answer) })
				})
			}
		}
	}
	err := w.subscribeLocked()
	w.mu.Unlock()
	if err == nil {
		<-ctx.Done()
	}
	drain(append(w.forget(), subs...)...)
	return err
}

// subscribeLocked brings subscriptions in line with what is attended to, as far as it can, and
// returns the first error.
func (w *Worker) subscribeLocked() error {
	if w.handle == nil {
		return nil
	}
	var errs [3]error
	w.any, errs[0] = w.follow(w.any, w.attended, false)
	w.own, errs[1] = w.follow(w.own, w.owned, true)
	switch answers := slices.Contains(w.attended, true); {
	case answers && w.hellos == nil:
		w.hellos, errs[2] = w.conn.QueueSubscribe(w.ns+".hello.v1.>", queueGroup, w.handle(events.KindHello))
	case !answers && w.hellos != nil:
		unsubscribe(w.hellos)
		w.hellos = nil
	}
	return cmp.Or(errs[:]...)
}

// follow brings the subscriptions of one role in line with the shards that are wanted in it: as the
// owner, or as one of all.
func (w *Worker) follow(
	shards [][]*nats.Subscription, wanted []bool, asOwner bool,
) (_ [][]*nats.Subscription, err error) {
	shards = append(shards, make([][]*nats.Subscription, max(len(wanted)-len(shards), 0))...)
	for i := range shards {
		switch want := i < len(wanted) && wanted[i]; {
		case want && shards[i] == nil:
			var failed error
			shards[i], failed = w.subscribeTo(uint32(i), asOwner)
			err = cmp.Or(err, failed)
		case want || shards[i] == nil:
		case asOwner && i < len(w.attended) && w.attended[i]:
			go finish(shards[i])
			shards[i] = nil
		default:
			unsubscribe(shards[i]...)
			shards[i] = nil
		}
	}
	return shards, err
}

// subscribeTo subscribes to the requests to a shard in one role. An owner is in no queue group: of
// two workers that both believe they are the owner both get its requests, so that none is lost with
// one that has stopped without a word.
func (w *Worker) subscribeTo(shard uint32, asOwner bool) (subs []*nats.Subscription, err error) {
	group := queueGroup
	if asOwner {
		group = ""
	}
	for _, to := range []events.Address{
		{Kind: events.KindReport, Format: events.FormatPlain},
		{Kind: events.KindReport, Format: events.FormatRefunds},
		{Kind: events.KindLease, Format: events.FormatPlain},
	} {
		to.Shard, to.ToOwner = shard, asOwner
		subject := w.ns + "." + to.String() + ".>"
		sub, err := w.conn.QueueSubscribe(subject, group, w.handle(to.Kind))
		if err != nil {
			unsubscribe(subs...)
			return nil, fmt.Errorf("subscribe to %s: %w", subject, err)
		}
		subs = append(subs, sub)
	}
	return subs, nil
}

// forget ends serving, and returns what there is to drain.
func (w *Worker) forget() (subs []*nats.Subscription) {
	w.mu.Lock()
	defer w.mu.Unlock()
	subs = slices.Concat(slices.Concat(w.any...), slices.Concat(w.own...))
	if w.hellos != nil {
		subs = append(subs, w.hellos)
	}
	w.any, w.own, w.hellos, w.handle = nil, nil, nil, nil
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

// finish ends the subscriptions of a former owner when it has been handed what has come meanwhile;
// at the latest after drainTimeout. Draining would ask the server for each of them.
func finish(subs []*nats.Subscription) {
	waits := func(s *nats.Subscription) bool {
		messages, _, err := s.Pending()
		return err == nil && messages > 0
	}
	for deadline := time.Now().Add(drainTimeout); slices.ContainsFunc(subs, waits) && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	unsubscribe(subs...)
}

// unsubscribe fails only when the connection or a subscription is closed already.
func unsubscribe(subs ...*nats.Subscription) {
	for _, s := range subs {
		_ = s.Unsubscribe()
	}
}
