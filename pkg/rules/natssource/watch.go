package natssource

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// askTimeout is how long a server may take to answer a watch's question.
const askTimeout = 2 * time.Second

// Watch calls changed with the newest revision, and again whenever there is a newer one, until ctx is done. It calls
// trouble with the reason when there is nothing to watch, and with nil when there is again: the connection is away, the
// bucket does not exist yet (an error that is ErrNoBucket), or the set was deleted (ErrNoRules). It waits for all of these. Both are called by this
// goroutine, one at a time.
//
// After the connection was away it begins anew at once, and it looks now and then whether it was told everything, so
// that no revision that stays the newest is missed. A bucket that was lost and made again is noticed, and its
// revisions begin again.
func (b *Bucket) Watch(ctx context.Context, changed func(Entry), trouble func(error)) {
	w := &watch{bucket: b, changed: changed, trouble: trouble}
	connected := b.conn.StatusChanged(nats.CONNECTED)
	defer b.conn.RemoveStatusListener(connected)
	for ctx.Err() == nil {
		if err := w.once(ctx, connected); err != nil && ctx.Err() == nil {
			w.tell(b.wrap("watch", err))
		}
		pause := time.NewTimer(about(b.options.Retry))
		select {
		case <-ctx.Done():
		case <-pause.C:
		case <-connected:
		}
		pause.Stop()
	}
}

// watch is one call of Watch.
type watch struct {
	bucket  *Bucket
	changed func(Entry)
	trouble func(error)

	made    time.Time // when the bucket was made whose revision was seen
	seen    uint64    // the newest revision of it
	why     string    // the trouble last told
	deleted error     // that there is no set in it
}

// once watches until the watch has to begin anew; the error says why, nil that nothing is wrong.
func (w *watch) once(ctx context.Context, connected <-chan nats.Status) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watcher, err := w.begin(ctx, cancel)
	if err != nil {
		return err
	}
	check := time.NewTimer(about(w.bucket.options.Check))
	defer check.Stop()
	behind := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-connected:
			return nil
		case entry, ok := <-watcher.Updates():
			if !ok {
				return errors.New("the subscription has ended")
			}
			w.take(entry)
		case <-check.C:
			last, err := w.last(ctx)
			switch {
			case err != nil:
				return err
			case last > w.seen && behind: // twice: it was not on its way
				return nil
			}
			behind = last > w.seen
			check.Reset(about(w.bucket.options.Check))
		}
	}
}

// begin subscribes: to what is newer than what was seen, if this is the bucket that was seen.
func (w *watch) begin(ctx context.Context, cancel context.CancelFunc) (jetstream.KeyWatcher, error) {
	if !w.bucket.conn.IsConnected() { // a question would wait for it
		return nil, errAway
	}
	tooLong := time.AfterFunc(askTimeout, cancel)
	defer tooLong.Stop()
	info, err := w.bucket.info(ctx)
	if err != nil {
		return nil, asked(ctx, err)
	}
	kv, err := w.bucket.js.KeyValue(ctx, w.bucket.name)
	if err != nil {
		return nil, asked(ctx, err)
	}
	var options []jetstream.WatchOpt
	if info.Created.Equal(w.made) && w.seen > 0 {
		options = append(options, jetstream.ResumeFromRevision(w.seen+1))
	} else {
		w.made, w.seen = info.Created, 0
	}
	watcher, err := kv.Watch(ctx, Key, options...)
	if err != nil {
		return nil, asked(ctx, err)
	}
	if !tooLong.Stop() {
		return nil, errSlow
	}
	return watcher, nil
}

var (
	errAway = errors.New("not connected to NATS")
	errSlow = fmt.Errorf("no answer within %v", askTimeout)
)

// asked is the error of a question: its context's end means that nobody has answered.
func asked(ctx context.Context, err error) error {
	if ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded) {
		return errSlow
	}
	return translate(err)
}

// info is what the server says of the bucket, which is a stream to it.
func (b *Bucket) info(ctx context.Context) (*jetstream.StreamInfo, error) {
	stream, err := b.js.Stream(ctx, "KV_"+b.name)
	if err != nil {
		return nil, err
	}
	return stream.CachedInfo(), nil
}

// take takes what the watcher tells: nil says that all that was there has been told.
func (w *watch) take(got jetstream.KeyValueEntry) {
	var entry Entry
	switch {
	case got != nil && got.Revision() <= w.seen:
		return
	case got != nil:
		entry = makeEntry(got)
		w.seen, w.deleted = entry.Revision, nil
		if entry.Deleted {
			w.deleted = w.bucket.wrap("watch", fmt.Errorf("deleted with revision %d: %w", entry.Revision, ErrNoRules))
		}
	case w.seen == 0:
		w.deleted = w.bucket.wrap("watch", ErrNoRules)
	}
	w.tell(w.deleted)
	if got != nil && !entry.Deleted {
		w.changed(entry)
	}
}

// last is the newest revision of the bucket, with an error if it is not the one that is watched.
func (w *watch) last(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	info, err := w.bucket.info(ctx)
	switch {
	case err != nil:
		return 0, asked(ctx, err)
	case !info.Created.Equal(w.made):
		return 0, errors.New("it is another one than before")
	}
	return info.State.LastSeq, nil
}

// tell tells of trouble once, and of its end.
func (w *watch) tell(err error) {
	why := ""
	if err != nil {
		why = err.Error()
	}
	if why != w.why {
		w.why = why
		w.trouble(err)
	}
}

// about is d, or up to half as much more, so that a fleet's checkers do not ask in the same moment.
func about(d time.Duration) time.Duration { return d + rand.N(d/2+1) }
