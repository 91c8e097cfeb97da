// Package kvwatch reads and watches a NATS JetStream key-value bucket, through outages of the
// connection, the server and the bucket. The NATS library does it with consumers. But a client that
// may create a consumer can have the server deliver the bucket's content to any subject. So this
// package reads by direct gets. It reads again when it receives a message that the bucket
// republishes, and does not trust the message itself: other clients of the account may be able to
// send one like it. From time to time it checks that it has missed nothing, and that the bucket is
// still the same.
package kvwatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// askTimeout bounds the time until a server answers a request.
	askTimeout = 2 * time.Second
	// callTimeout bounds what the library does for a caller whose context has no end.
	callTimeout = 5 * time.Second
)

// Errors of a watch that the library does not have.
var (
	errAway  = errors.New("there is no connection to NATS")
	errOther = errors.New("it is another one than before")
)

// Bucket is a bucket, which need not exist.
type Bucket struct {
	Conn *nats.Conn
	JS   jetstream.JetStream
	Name string
	// Changes begins the subjects at which the bucket republishes what is written: see [RePublish].
	Changes string
	// Check is about the time between two checks for changes that a watch has missed. Retry is
	// about the first delay before a failed watch starts again.
	Check, Retry time.Duration
	// Ask bounds the time until a server answers a request; 0 is 2 s. A test gives it more, so that
	// a machine that stands still is no server that does not answer.
	Ask time.Duration
}

// New returns a fleet's bucket of this kind. Zero durations are 10 s, 250 ms and 2 s.
func New(
	conn *nats.Conn, namespace, kind string, check, retry, ask time.Duration,
) (*Bucket, error) {
	js, err := jetstream.New(conn, jetstream.WithDefaultTimeout(max(ask, callTimeout)))
	if err != nil {
		return nil, fmt.Errorf("use JetStream: %w", err)
	}
	return &Bucket{
		Conn: conn, JS: js, Name: namespace + "-" + kind, Changes: namespace + ".stored.v1." + kind,
		Check: cmp.Or(check, 10*time.Second), Retry: cmp.Or(retry, 250*time.Millisecond),
		Ask: ask,
	}, nil
}

// Watch says what to watch of a bucket.
type Watch struct {
	*Bucket
	// Key restricts the watch to one key; "" watches all.
	Key string
	// History takes all revisions of Key that have not been taken yet, oldest first, instead of the
	// newest alone.
	History bool
	// MostRetry bounds the delay before a failed watch starts again, which doubles.
	MostRetry time.Duration
}

// Handler is called by the goroutine that runs the watch.
type Handler struct {
	// Begin is called when a watch starts. All entries follow; of a single key, only revisions that
	// have not been taken yet. other: the bucket is not the same as before.
	Begin func(other bool)
	// Take takes an entry, or nil once all entries that were there at the start have been taken.
	Take func(jetstream.KeyValueEntry)
	// Fail takes the error of each failed attempt, which can be one of the library.
	Fail func(error)
	// Next returns the time until Due has to be called; it is called after each entry and each Due.
	// Nil: never.
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
		case err == nil: // there was a bucket to watch
			retry = w.Retry
		case ctx.Err() == nil:
			h.Fail(err)
		}
		pause := about(retry)
		retry = min(2*retry, w.MostRetry)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		case <-connected:
			retry = w.Retry
		}
	}
}

// run is one call of Run.
type run struct {
	Watch
	h    Handler
	made time.Time // when the bucket was created that was watched last
	seen uint64    // its newest revision that was taken
}

// mostWaiting bounds the queue of changes. Those that it drops are found by reading.
const mostWaiting = 4096

// once watches until the watch has to start again; the error says why, nil is not a failure.
func (r *run) once(ctx context.Context, connected <-chan nats.Status) error {
	if !r.Conn.IsConnected() { // a request would wait for the connection
		return errAway
	}
	changes := make(chan *nats.Msg, mostWaiting)
	sub, err := r.Conn.ChanSubscribe(r.Changes+".>", changes) // first, so as to hear all later writes
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
	hint := newHints()
	defer hint.timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-connected:
			return nil
		case m := <-changes:
			if e, err := entryOf(r.Name, m); err == nil && e.revision > r.seen {
				hint.hear(e.revision)
			}
		case <-hint.timer.C:
			before := r.seen
			if err := r.each(ctx, r.seen+1, r.take); err != nil {
				return err
			}
			hint.looked(before, r.seen)
			r.reset(due)
		case <-due.C:
			r.h.Due()
			r.reset(due)
		case <-check.C:
			last, err := r.last(ctx)
			switch {
			case err != nil:
				return err
			case last > r.seen && behind: // twice in a row, so no change is on its way
				return nil
			}
			behind = last > r.seen || !republishes
			check.Reset(about(r.Check))
		}
	}
}

const (
	// mostLooks bounds the reads for one announced change: the replica that answers can lag behind
	// the one that republished the change.
	mostLooks = 8
	// firstPause and mostPause bound the delay after a read that found nothing.
	firstPause, mostPause = 5 * time.Millisecond, 200 * time.Millisecond
)

// hints schedule reads for announced changes. Forged announcements cost one read every mostPause,
// and hide no change for longer.
type hints struct {
	timer *time.Timer // runs if a read is due
	newer uint64      // an announced revision that has not been found; 0 for none
	looks int         // reads left until it is taken for a forgery
	pause time.Duration
}

func newHints() *hints {
	h := &hints{timer: time.NewTimer(time.Hour)}
	h.timer.Stop()
	return h
}

// hear notes an announced revision.
func (h *hints) hear(revision uint64) {
	if h.newer == 0 {
		h.timer.Reset(0)
	}
	h.newer, h.looks = max(h.newer, revision), mostLooks
}

// looked notes that a read has found the revisions after one, up to another.
func (h *hints) looked(after, to uint64) {
	h.looks--
	if to > after {
		h.pause = 0
	} else {
		h.pause = min(max(2*h.pause, firstPause), mostPause)
	}
	if to >= h.newer || h.looks == 0 {
		h.newer, h.pause = 0, 0
		return
	}
	h.timer.Reset(h.pause)
}

func (r *run) take(e *entry) {
	r.seen = max(r.seen, e.revision)
	if r.Key == "" || r.Key == e.key {
		r.h.Take(e)
	}
}

// newDue returns a timer, which runs only if there is a Next.
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

// begin takes all entries, and returns whether the bucket republishes later writes.
func (r *run) begin(ctx context.Context) (republishes bool, err error) {
	asking, cancel := r.asking(ctx)
	defer cancel()
	info, err := r.info(asking)
	if err != nil {
		return false, r.asked(asking, err)
	}
	other := !info.Created.Equal(r.made)
	if other {
		r.made, r.seen = info.Created, 0
	}
	r.h.Begin(other)
	switch {
	case r.Key == "":
		err = r.each(ctx, 1, r.take)
	case r.History:
		err = r.each(ctx, r.seen+1, r.take)
	case info.State.LastSeq > r.seen: // else it has not changed, and can be large
		err = r.newest(ctx, r.Key, r.take)
	}
	if err != nil {
		return false, err
	}
	r.h.Take(nil)
	return info.Config.RePublish != nil, nil
}

// asking is the context of a request.
func (b *Bucket) asking(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, cmp.Or(b.Ask, askTimeout))
}

// asked is the error of a request: at the end of its context there was no answer.
func (b *Bucket) asked(ctx context.Context, err error) error {
	if ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no answer within %v", cmp.Or(b.Ask, askTimeout))
	}
	return err
}

// info returns the server's description of the bucket's stream.
func (r *run) info(ctx context.Context) (*jetstream.StreamInfo, error) {
	stream, err := r.JS.Stream(ctx, "KV_"+r.Name)
	if err != nil {
		return nil, err
	}
	return stream.CachedInfo(), nil
}

// last returns the newest revision of the bucket, and an error if it is another bucket.
func (r *run) last(ctx context.Context) (uint64, error) {
	ctx, cancel := r.asking(ctx)
	defer cancel()
	info, err := r.info(ctx)
	switch {
	case err != nil:
		return 0, r.asked(ctx, err)
	case !info.Created.Equal(r.made):
		return 0, errOther
	}
	return info.State.LastSeq, nil
}

// about is d, or up to half as much more, so that a fleet's checkers do not all ask at once.
func about(d time.Duration) time.Duration { return d + rand.N(d/2+1) }

// Changes turns the repeated errors of Fail into changes: it calls Tell once for each new error,
// and with nil when it is over.
type Changes struct {
	Tell func(error)
	why  string
}

// Note notes the present error, nil for none.
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
