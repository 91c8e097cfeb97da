// Package kvwatch reads and watches a NATS JetStream key-value bucket, for as long as it takes. The
// library does it by consumers, which a reader would have to be allowed to make: and who may make
// one has the server deliver what is in the bucket to any subject. So this reads by direct gets,
// and looks for changes when it hears what the bucket republishes. That is never taken for a change
// itself, since others of the same account may be able to say it. It also looks now and then
// whether it has heard of everything, and whether the bucket is still the one that it was.
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

// Watch says what to watch, and how often to ask. All but Key and History is required.
type Watch struct {
	Conn   *nats.Conn
	JS     jetstream.JetStream
	Bucket string
	// Changes is where the bucket republishes what is written: see [RePublish].
	Changes string
	// Key is the only one to watch; without it, all are.
	Key string
	// History tells of all revisions of Key that have not been told yet, oldest first, not of the
	// newest alone.
	History bool
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
	hint := newHints()
	defer hint.timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-connected:
			return nil
		case m := <-changes:
			if e, err := entryOf(r.Bucket, m); err == nil && e.revision > r.seen {
				hint.hear(e.revision)
			}
		case <-hint.timer.C:
			before := r.seen
			if err := each(ctx, r.Conn, r.Bucket, r.seen+1, r.take); err != nil {
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
			case last > r.seen && behind: // twice: it was not on its way
				return nil
			}
			behind = last > r.seen || !republishes
			check.Reset(about(r.Check))
		}
	}
}

const (
	// mostLooks is how often it is looked for a change that was heard of: a server's replica may be
	// a little behind the one that told of it.
	mostLooks = 8
	// firstPause and mostPause bound the time between two looks of which the first has found
	// nothing.
	firstPause, mostPause = 5 * time.Millisecond, 200 * time.Millisecond
)

// hints are when to look for changes that were heard of. Made-up ones cost one look every
// mostPause, and hide nothing for longer.
type hints struct {
	timer *time.Timer // runs if a look is due
	newer uint64      // a revision that was heard of and has not been found; 0 for none
	looks int         // left until it is taken for made up
	pause time.Duration
}

func newHints() *hints {
	h := &hints{timer: time.NewTimer(time.Hour)}
	h.timer.Stop()
	return h
}

// hear notes that there is said to be a revision.
func (h *hints) hear(revision uint64) {
	if h.newer == 0 {
		h.timer.Reset(0)
	}
	h.newer, h.looks = max(h.newer, revision), mostLooks
}

// looked notes that a look has found the revisions after one up to another.
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
		err = each(ctx, r.Conn, r.Bucket, 1, r.take)
	case r.History:
		err = each(ctx, r.Conn, r.Bucket, r.seen+1, r.take)
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
