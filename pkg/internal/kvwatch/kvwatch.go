// Package kvwatch reads and watches a NATS JetStream key-value bucket, for as long as it takes. The
// library does it by consumers, which a reader would have to be allowed to make: and who may make
// one has the server deliver what is in the bucket to any subject. So this reads by direct gets,
// and hears of changes by what the bucket republishes. It looks now and then whether it has heard
// everything, and whether the bucket is still the one that it was.
package kvwatch

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// askTimeout is how long a server may take to answer a question.
const askTimeout = 2 * time.Second

// Errors of a watch that no library has.
var (
	errAway  = errors.New("there is no connection to NATS")
	errSlow  = fmt.Errorf("no answer within %v", askTimeout)
	errOther = errors.New("it is another one than before")
)

// Watch says what to watch, and how often to ask. All but Key is required.
type Watch struct {
	Conn   *nats.Conn
	JS     jetstream.JetStream
	Bucket string
	// Changes is where the bucket republishes what is written: see [RePublish].
	Changes string
	// Key is the only one to watch; without it, all are.
	Key string
	// Check is about the time between two looks whether anything was missed. Retry is about the time after which it is tried
	// again while there is nothing to watch, at first; it doubles, up to MostRetry.
	Check, Retry, MostRetry time.Duration
}

// Handler is told of what happens, by the goroutine that runs the watch.
type Handler struct {
	// Begin says that a watch has begun, and that all that there is will be told; of one key only
	// what has not been told yet. Other: the bucket is not the one of before.
	Begin func(other bool)
	// Take takes an entry, or nil when all that was there has been told.
	Take func(jetstream.KeyValueEntry)
	// Fail takes what is wrong, each time that something is. It may be an error of the library.
	Fail func(error)
	// Next is in how long Due is to be called, asked after each entry and each Due. Nil: never.
	Next func() time.Duration
	Due  func()
}

// Run watches until ctx is done.
func (w Watch) Run(ctx context.Context, h Handler) {
	connected := w.Conn.StatusChanged(nats.CONNECTED)
	defer w.Conn.RemoveStatusListener(connected)
	r := run{Watch: w, h: h}
	retry := w.Retry
	for ctx.Err() == nil {
		switch err := r.once(ctx, connected); {
		case err == nil: // it was there
			retry = w.Retry
		case ctx.Err() == nil:
			h.Fail(err)
		}
		pause := time.NewTimer(about(retry))
		retry = min(2*retry, w.MostRetry)
		select {
		case <-ctx.Done():
		case <-pause.C:
		case <-connected:
			retry = w.Retry
		}
		pause.Stop()
	}
}

// run is one call of Run.
type run struct {
	Watch
	h    Handler
	made time.Time // when the bucket was made that was watched last
	seen uint64    // its newest revision that was told
}

// mostWaiting is how many changes may wait to be taken; what is beyond it is read again.
const mostWaiting = 4096

// once watches until the watch has to begin anew; the error says why, nil that nothing is wrong.
func (r *run) once(ctx context.Context, connected <-chan nats.Status) error {
	if !r.Conn.IsConnected() { // a question would wait for it
		return errAway
	}
	changes := make(chan *nats.Msg, mostWaiting)
	sub, err := r.Conn.ChanSubscribe(r.Changes, changes) // first: what is written from now on is heard
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }() // fails only when the connection is closed
	republishes, err := r.begin(ctx)
	if err != nil {
		return err
	}
	check := time.NewTimer(about(r.Check))
	defer check.Stop()
	due := r.newDue()
	defer due.Stop()
	behind := !republishes
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-connected:
			return nil
		case m := <-changes:
			e, err := entryOf(r.Bucket, m)
			if err != nil || e.revision <= r.seen {
				continue
			}
			if r.Key == "" && e.revision != r.seen+1 { // some were not heard
				return nil
			}
			r.take(e)
			r.reset(due)
		case <-due.C:
			r.h.Due()
			r.reset(due)
		case <-check.C:
			last, err := r.last(ctx)
			switch {
			case err != nil:
				return err
			case last > r.seen && behind: // twice: it was not on its way
				return nil
			}
			behind = last > r.seen || !republishes
			check.Reset(about(r.Check))
		}
	}
}

func (r *run) take(e *entry) {
	r.seen = max(r.seen, e.revision)
	if r.Key == "" || r.Key == e.key {
		r.h.Take(e)
	}
}

// newDue returns a timer that does not run unless there is something that can be due.
func (r *run) newDue() *time.Timer {
	due := time.NewTimer(time.Hour)
	due.Stop()
	r.reset(due)
	return due
}

func (r *run) reset(due *time.Timer) {
	if r.h.Next != nil {
		due.Reset(r.h.Next())
	}
}

// begin tells of all that there is, and returns whether the bucket republishes what is written from
// then on.
func (r *run) begin(ctx context.Context) (republishes bool, err error) {
	asking, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	info, err := r.info(asking)
	if err != nil {
		return false, asked(asking, err)
	}
	other := !info.Created.Equal(r.made)
	if other {
		r.made, r.seen = info.Created, 0
	}
	r.h.Begin(other)
	switch {
	case r.Key == "":
		err = each(ctx, r.Conn, r.Bucket, r.take)
	case info.State.LastSeq > r.seen: // else it is as it was, and may be large
		err = newest(ctx, r.Conn, r.Bucket, r.Key, r.take)
	}
	if err != nil {
		return false, err
	}
	r.h.Take(nil)
	return info.Config.RePublish != nil, nil
}

// asked is the error of a question: its context's end means that nobody has answered.
func asked(ctx context.Context, err error) error {
	if ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded) {
		return errSlow
	}
	return err
}

// info is what the server says of the bucket, which is a stream to it.
func (r *run) info(ctx context.Context) (*jetstream.StreamInfo, error) {
	stream, err := r.JS.Stream(ctx, "KV_"+r.Bucket)
	if err != nil {
		return nil, err
	}
	return stream.CachedInfo(), nil
}

// last is the newest revision of the bucket, with an error if it is not the one that is watched.
func (r *run) last(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	info, err := r.info(ctx)
	switch {
	case err != nil:
		return 0, asked(ctx, err)
	case !info.Created.Equal(r.made):
		return 0, errOther
	}
	return info.State.LastSeq, nil
}

// about is d, or up to half as much more, so that a fleet's checkers do not ask in the same moment.
func about(d time.Duration) time.Duration { return d + rand.N(d/2+1) }

// Changes tells of trouble once, and of its end: what Fail gets, again and again, for those who want to know when it changes.
type Changes struct {
	Tell func(error)
	why  string
}

// Note notes what is wrong now, nil if nothing is.
func (c *Changes) Note(err error) {
	why := ""
	if err != nil {
		why = err.Error()
	}
	if why != c.why {
		c.why = why
		c.Tell(err)
	}
}
