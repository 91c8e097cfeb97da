package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/offpath-io/offpath/internal/status"
)

// The audit log is a stream of JetStream's, NAMESPACE-audit, of the subject NAMESPACE.audit.v1: one
// record for each change that anybody has made or tried to make through a console or a command.
// Aggregators log the same, of what they were asked to do.

// ErrUnwritten says that something was done, but could not be written to the audit log.
var ErrUnwritten = errors.New("done, but not written to the audit log")

const (
	// writeTimeout is how long a record may take to be written.
	writeTimeout = 3 * time.Second
	// keptRecords, keptBytes and keptFor bound the stream; the oldest records go.
	keptRecords, keptBytes, keptFor = 100_000, 64 << 20, 400 * 24 * time.Hour
	// shownRecords is how many a console shows.
	shownRecords = 20
)

// Who is who asked for something.
type Who struct {
	// Name is that of a token, or of the account of a command.
	Name string `json:"name"`
	// From is where from: an address, or the host of a command.
	From string `json:"from"`
}

// ByCommand marks a name as given by a command, which has shown no token.
func (w Who) ByCommand() Who {
	w.Name = "command: " + w.Name
	return w
}

// Record is one line of the audit log.
type Record struct {
	At   time.Time `json:"at"`
	Who  Who       `json:"who"`
	What string    `json:"what"` // block, unblock or reset
	Rule string    `json:"rule"`
	// Key is the key's text, as it is kept and sent.
	Key    status.Text `json:"key"`
	Until  time.Time   `json:"until,omitzero"` // of a block
	Detail string      `json:"detail,omitempty"`
	Error  string      `json:"error,omitempty"` // why it was not done
}

// attributes are for a line of a log.
func (r Record) attributes() []any {
	list := []any{"what", r.What, "who", r.Who.Name, "from", r.Who.From, "rule", r.Rule, "key", fmt.Sprintf("%q", string(r.Key)), "detail", r.Detail}
	if r.Error != "" {
		list = append(list, "error", r.Error)
	}
	return list
}

func streamName(namespace string) string   { return namespace + "-audit" }
func auditSubject(namespace string) string { return namespace + ".audit.v1" }

// storedSubject is where the stream tells of what it has stored: who publishes records may be in
// another account than who listens.
func storedSubject(namespace string) string { return namespace + ".stored.v1.audit" }

// WriteRecord writes to the audit log, which it makes if there is none.
func WriteRecord(ctx context.Context, conn *nats.Conn, namespace string, r Record) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	// First, since without it those who only listen would take the record, and nobody would say
	// that it was not kept.
	if _, err = js.Stream(ctx, streamName(namespace)); errors.Is(err, jetstream.ErrStreamNotFound) {
		_, err = js.CreateStream(ctx, jetstream.StreamConfig{
			Name: streamName(namespace), Subjects: []string{auditSubject(namespace)}, Description: "who has changed what in an offpath fleet",
			MaxMsgs: keptRecords, MaxBytes: keptBytes, MaxAge: keptFor, Discard: jetstream.DiscardOld,
			RePublish: &jetstream.RePublish{Source: auditSubject(namespace), Destination: storedSubject(namespace)},
		})
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // somebody else has made it
			err = nil
		}
	}
	if err == nil {
		_, err = js.Publish(ctx, auditSubject(namespace), data)
	}
	return err
}

// diary is the end of the audit log, to show.
type diary struct {
	conn      *nats.Conn
	namespace string

	mu   sync.Mutex
	last []Record // oldest first
}

func newDiary(conn *nats.Conn, namespace string) *diary {
	return &diary{conn: conn, namespace: namespace}
}

// againEvery is about how often the diary looks whether it has missed anything.
const againEvery = 30 * time.Second

// read follows the audit log until ctx is done: what was there, as far as it can be had, and what
// comes. What came while the connection was away, or was in the stream before there was one, it
// catches up with.
func (d *diary) read(ctx context.Context) error {
	messages := make(chan *nats.Msg, 256)
	sub, err := d.conn.ChanSubscribe(storedSubject(d.namespace), messages)
	if err != nil {
		return fmt.Errorf("subscribe to %s: %w", storedSubject(d.namespace), err)
	}
	defer func() { _ = sub.Unsubscribe() }() // fails only when the connection is closed
	connected := d.conn.StatusChanged(nats.CONNECTED)
	defer d.conn.RemoveStatusListener(connected)
	again := time.NewTicker(againEvery)
	defer again.Stop()
	d.catchUp(ctx)
	for {
		select {
		case <-ctx.Done():
			return nil
		case m := <-messages:
			d.add(m.Data)
		case <-connected:
			d.catchUp(ctx)
		case <-again.C: // JetStream may answer later than NATS
			d.catchUp(ctx)
		}
	}
}

// catchUp reads the last records that are in the stream. Without one, the diary begins empty.
func (d *diary) catchUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	js, err := jetstream.New(d.conn)
	if err != nil || !d.conn.IsConnected() {
		return
	}
	stream, err := js.Stream(ctx, streamName(d.namespace))
	if err != nil {
		return
	}
	s := stream.CachedInfo().State
	for n := max(s.FirstSeq, s.LastSeq-min(s.LastSeq, shownRecords-1)); n <= s.LastSeq && ctx.Err() == nil; n++ {
		if m, err := stream.GetMsg(ctx, n); err == nil {
			d.add(m.Data)
		}
	}
}

func (d *diary) add(data []byte) {
	var r Record
	if len(data) > 64<<10 || json.Unmarshal(data, &r) != nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if slices.ContainsFunc(d.last, r.same) { // it came while we caught up
		return
	}
	d.last = append(d.last, r)
	slices.SortStableFunc(d.last, func(a, b Record) int { return a.At.Compare(b.At) })
	d.last = slices.Delete(d.last, 0, max(len(d.last)-shownRecords, 0))
}

// same says whether two are one, whatever zones their times are in.
func (r Record) same(other Record) bool {
	if !r.At.Equal(other.At) || !r.Until.Equal(other.Until) {
		return false
	}
	other.At, other.Until = r.At, r.Until
	return r == other
}

// latest returns the last records, the newest first.
func (d *diary) latest() []Record {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := append([]Record{}, d.last...) // in JSON no null
	slices.Reverse(list)
	return list
}
