// Package kvwatch watches a NATS JetStream key-value bucket for as long as it takes. The library's own watch ends, or falls silent, with
// the server, the connection or the bucket; this one waits for all of them, and begins anew. It looks now and then whether it was told
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
	errEnded = errors.New("the subscription has ended")
	errOther = errors.New("it is another one than before")
)

// Watch says what to watch, and how often to ask. All but Resume and History is required.
type Watch struct {
	Conn   *nats.Conn
	JS     jetstream.JetStream
	Bucket string
	// Keys to watch, as the library has it.
	Keys string
	// Resume leaves out, when it begins anew with the same bucket, what it has told of already.
	Resume bool
	// History tells, when it begins anew, of all revisions that the bucket remembers, oldest first,
	// not of the newest alone.
	History bool
	// Check is about the time between two looks whether anything was missed. Retry is about the time after which it is tried
	// again while there is nothing to watch, at first; it doubles, up to MostRetry.
	Check, Retry, MostRetry time.Duration
}

// Handler is told of what happens, by the goroutine that runs the watch.
type Handler struct {
	// Begin says that a watch has begun. Anew: of all that there is; else of what is newer than what was told before.
	Begin func(anew bool)
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

// once watches until the watch has to begin anew; the error says why, nil that nothing is wrong.
func (r *run) once(ctx context.Context, connected <-chan nats.Status) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watcher, err := r.begin(ctx, cancel)
	if err != nil {
		return err
	}
	check := time.NewTimer(about(r.Check))
	defer check.Stop()
	due := r.newDue()
	defer due.Stop()
	behind := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-connected:
			return nil
		case got, ok := <-watcher.Updates():
			if !ok {
				return errEnded
			}
			if got != nil {
				r.seen = max(r.seen, got.Revision())
			}
			r.h.Take(got)
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
			behind = last > r.seen
			check.Reset(about(r.Check))
		}
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

// begin subscribes.
func (r *run) begin(ctx context.Context, cancel context.CancelFunc) (jetstream.KeyWatcher, error) {
	if !r.Conn.IsConnected() { // a question would wait for it
		return nil, errAway
	}
	tooLong := time.AfterFunc(askTimeout, cancel)
	defer tooLong.Stop()
	info, err := r.info(ctx)
	if err != nil {
		return nil, asked(ctx, err)
	}
	kv, err := r.JS.KeyValue(ctx, r.Bucket)
	if err != nil {
		return nil, asked(ctx, err)
	}
	var options []jetstream.WatchOpt
	anew := !r.Resume || r.seen == 0 || !info.Created.Equal(r.made)
	if anew {
		r.made, r.seen = info.Created, 0
		if r.History {
			options = append(options, jetstream.IncludeHistory())
		}
	} else {
		options = append(options, jetstream.ResumeFromRevision(r.seen+1))
	}
	watcher, err := kv.Watch(ctx, r.Keys, options...)
	if err != nil {
		return nil, asked(ctx, err)
	}
	if !tooLong.Stop() {
		return nil, errSlow
	}
	r.h.Begin(anew)
	return watcher, nil
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
