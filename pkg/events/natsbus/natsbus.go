// Package natsbus carries events over core NATS.
//
// Subjects, below a namespace (so that fleets share a server), with the format's version inside, so
// that no older part is handed what it cannot read:
//
//	<ns>.report.v1.<shard>.<checker>   a report, to one aggregator (queue group)
//	<ns>.refresh.v1.<checker>          its answer
//	<ns>.hello.v1.<checker>            a hello, to every aggregator; one of them answers
//	<ns>.welcome.v1.<checker>          its answer
//	<ns>.alarm.v1.<shard>              an alarm, to every checker
//	<ns>.lease.v1.<shard>.<checker>    a lease request, to one aggregator (queue group)
//	<ns>.grant.v1.<checker>            its answer
//
// A subject names its sender, so a server's accounts can hold each checker to its own. <checker> may be two tokens,
// <owner>.<epoch> (see [Owned]): then accounts can be written down before anybody knows the epoch, and for several checkers
// at once, and a worker drops what an owner says in the name of an epoch that is not its own. Nothing is
// stored on the way and nothing is buffered while the server is away: a message that cannot be sent
// now is an error, and the sender's own repeats make up for it.
package natsbus

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/offpath-io/offpath/pkg/events"
)

// queueGroup shares reports, lease requests and hellos among the aggregators.
const queueGroup = "aggregators"

var token = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// Connect returns a connection for a carrier: it tries forever, in the background, also when the
// server is not there yet, and buffers nothing meanwhile (a buffer would deliver old reports in a
// burst, after their repeats). The error is for a malformed URL or option only. Further options,
// such as credentials and handlers, come last and win.
func Connect(url, name string, options ...nats.Option) (*nats.Conn, error) {
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
	conn, err := nats.Connect(url, all...)
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

// Owned is the name of a checker that a server knows as owner, which must be a name for CheckName: the epoch, which must be one
// of [events.NewEpoch] for that owner, tells apart those who share one.
func Owned(owner string, epoch uint64) string { return owner + "." + strconv.FormatUint(epoch, 16) }

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
	conn       *nats.Conn
	ns, name   string
	refreshes  string
	welcomes   string
	grants     string
	helloTopic string
}

// NewChecker returns the end of the checker of this name, which must be unique in the namespace.
// The connection stays the caller's to close. After some complaints of a server the library closes it by itself, and does not open
// it again (see [nats.ClosedHandler]): then nothing is sent or heard any more.
func NewChecker(conn *nats.Conn, namespace, name string) (*Checker, error) {
	if err := errors.Join(CheckName(namespace), checkChecker(name)); err != nil {
		return nil, err
	}
	return &Checker{
		conn:       conn,
		ns:         namespace,
		name:       name,
		refreshes:  namespace + ".refresh.v1." + name,
		welcomes:   namespace + ".welcome.v1." + name,
		grants:     namespace + ".grant.v1." + name,
		helloTopic: namespace + ".hello.v1." + name,
	}, nil
}

// Report sends a report to one of the aggregators. It does not wait for the server; the error says
// that the report certainly was not sent.
func (c *Checker) Report(shard uint32, report []byte) error {
	subject := c.ns + ".report.v1." + strconv.FormatUint(uint64(shard), 10) + "." + c.name
	if err := c.conn.PublishRequest(subject, c.refreshes, report); err != nil {
		return fmt.Errorf("publish report: %w", err)
	}
	return nil
}

// Lease sends a lease request to one of the aggregators, likewise.
func (c *Checker) Lease(shard uint32, request []byte) error {
	subject := c.ns + ".lease.v1." + strconv.FormatUint(uint64(shard), 10) + "." + c.name
	if err := c.conn.PublishRequest(subject, c.grants, request); err != nil {
		return fmt.Errorf("publish lease request: %w", err)
	}
	return nil
}

// Hello sends a hello to every aggregator; one of them answers.
func (c *Checker) Hello(hello []byte) error {
	if err := c.conn.PublishRequest(c.helloTopic, c.welcomes, hello); err != nil {
		return fmt.Errorf("publish hello: %w", err)
	}
	return nil
}

// Listen hands every refresh, grant, welcome and alarm to h, possibly several at a time, until ctx is done.
// Once it has returned, h is not called any more.
func (c *Checker) Listen(ctx context.Context, h func(events.Kind, []byte)) error {
	var g gate
	defer g.shut()
	for subject, kind := range map[string]events.Kind{
		c.refreshes:          events.KindRefresh,
		c.welcomes:           events.KindWelcome,
		c.grants:             events.KindGrant,
		c.ns + ".alarm.v1.*": events.KindAlarm,
	} {
		sub, err := c.conn.Subscribe(subject, func(m *nats.Msg) {
			// No message of ours is empty. The server answers a request with an empty one when
			// nobody serves it; then there is no aggregator, and the next repeat may find one.
			if len(m.Data) > 0 {
				g.pass(func() { h(kind, m.Data) })
			}
		})
		if err != nil {
			return fmt.Errorf("subscribe to %s: %w", subject, err)
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
}

// NewWorker returns the end of one aggregator. The connection stays the caller's to close.
func NewWorker(conn *nats.Conn, namespace string) (*Worker, error) {
	if err := CheckName(namespace); err != nil {
		return nil, err
	}
	return &Worker{conn: conn, ns: namespace}, nil
}

// Alarm sends an alarm to every checker.
func (w *Worker) Alarm(shard uint32, alarm []byte) error {
	if err := w.conn.Publish(w.ns+".alarm.v1."+strconv.FormatUint(uint64(shard), 10), alarm); err != nil {
		return fmt.Errorf("publish alarm: %w", err)
	}
	return nil
}

// Serve hands this aggregator's share of reports, lease requests and hellos to h, possibly several at a
// time, until ctx is done, and then what is already on its way here. A hello that is another aggregator's
// to answer comes with a nil reply. Once Serve has returned, h is not called any more.
func (w *Worker) Serve(ctx context.Context, h func(events.Kind, []byte, func([]byte) error)) error {
	var g gate
	defer g.shut()
	hellos := w.ns + ".hello.v1.>"
	var subs []*nats.Subscription
	for subject, kind := range map[string]events.Kind{
		w.ns + ".report.v1.*.>": events.KindReport,
		w.ns + ".lease.v1.*.>":  events.KindLease,
		hellos:                  events.KindHello,
	} {
		sub, err := w.conn.QueueSubscribe(subject, queueGroup, func(m *nats.Msg) {
			if w.genuine(kind, m) {
				g.pass(func() { h(kind, m.Data, m.Respond) })
			}
		})
		if err != nil {
			return fmt.Errorf("subscribe to %s: %w", subject, err)
		}
		defer unsubscribe(sub)
		subs = append(subs, sub)
	}
	noteSub, err := w.conn.Subscribe(hellos, func(m *nats.Msg) {
		if w.genuine(events.KindHello, m) {
			g.pass(func() { h(events.KindHello, m.Data, nil) })
		}
	})
	if err != nil {
		return fmt.Errorf("subscribe to %s: %w", hellos, err)
	}
	defer unsubscribe(noteSub)
	<-ctx.Done()
	drain(append(subs, noteSub)...)
	return nil
}

// drainTimeout is how long the server may take to end a subscription.
const drainTimeout = time.Second

// drain ends subscriptions so that what the server has sent until it knows of the end is still handed
// over, instead of being lost until it is repeated.
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

// unsubscribe fails only when the connection or the subscription is closed already.
func unsubscribe(s *nats.Subscription) { _ = s.Unsubscribe() }
