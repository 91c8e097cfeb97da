package blocks

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/offpath-io/offpath/internal/kvwatch"
	"github.com/offpath-io/offpath/pkg/signature"
)

// mostRetries bounds the delay between two attempts, as a multiple of Retry.
const mostRetries = 10

// Watch calls changed with all blocks that have not ended, and again within milliseconds of each
// change and each end, until ctx is done. Changes at the same time are one call. With very many
// blocks, calls are less frequent, so that they take at most a tenth of the time. It calls trouble
// with an error when there is nothing to watch, and with nil when there is again: the connection is
// away, there is no JetStream, or the bucket does not exist yet (ErrNoBucket). It waits for the end
// of all of these. Both are called by this goroutine, one at a time. The list must not be changed.
//
// It starts again when the connection is back, and checks from time to time for missed changes.
// Where entries are signed, those that are not trusted change nothing, and are reported to the
// verifier.
func (b *Bucket) Watch(ctx context.Context, changed func([]Block), trouble func(error)) {
	w := &watch{
		bucket: b.kv.Name, verifier: b.options.Verifier, changed: changed,
		trouble: kvwatch.Changes{Tell: trouble}, now: b.options.Now, pause: shortPause,
	}
	kvwatch.Watch{
		Bucket: b.kv, MostRetry: mostRetries * b.kv.Retry,
	}.Run(ctx, kvwatch.Handler{
		Begin: w.begin, Take: w.take, Next: w.next, Due: w.due,
		Fail: func(err error) { w.trouble.Note(b.wrap("watch", err)) },
	})
}

// watch is one call of Watch.
type watch struct {
	bucket   string
	verifier *signature.Verifier // nil trusts everything

	changed func([]Block)
	trouble kvwatch.Changes
	now     func() time.Time

	all   map[string]Block // with those that have ended and are not swept: the clock can be set back
	whole bool             // all entries that were there have been read

	since time.Time     // of the first change that was not handed on, by this process' clock; or zero
	pause time.Duration // between a change and the call
	count int           // of blocks in the last call; -1: there was none
}

const (
	// shortPause is how long changes are gathered for one call.
	shortPause = 2 * time.Millisecond
	// share bounds the time that calls take: 1/share, with very many blocks that change all the
	// time.
	share = 10
	// tick is the time between two checks for ends, since the clock can be set.
	tick = time.Second
)

func (w *watch) begin(bool) {
	w.all, w.whole = make(map[string]Block), false
	if w.verifier == nil {
		return
	}
	for _, held := range w.verifier.All(w.bucket, w.now()) { // also those that were removed
		data, _ := split(held.Raw)
		w.put(held.Key, held.Operation, data)
	}
}

// put takes a trusted value under a name.
func (w *watch) put(name string, o signature.Operation, data []byte) {
	delete(w.all, name)
	if e, err := decode(data); err == nil && o != signature.Lift {
		w.all[name] = e
	}
}

// take takes an entry; nil after the last of those that were there.
func (w *watch) take(got jetstream.KeyValueEntry) {
	switch {
	case got == nil:
		w.whole, w.count = true, -1
		w.trouble.Note(nil)
		w.offer()
		return
	case w.verifier != nil:
		if err := w.takeSigned(got); err != nil {
			w.verifier.Refuse(w.bucket, got.Key(), err)
			return
		}
	case got.Operation() == jetstream.KeyValuePut:
		data, _ := split(got.Value())
		w.put(got.Key(), signature.Put, data)
	default:
		delete(w.all, got.Key())
	}
	if w.since.IsZero() {
		w.since = time.Now()
	}
}

// takeSigned takes a trusted entry; the error says why it is not trusted.
func (w *watch) takeSigned(got jetstream.KeyValueEntry) error {
	now := w.now()
	if got.Operation() != jetstream.KeyValuePut {
		held, ok := w.verifier.Held(w.bucket, got.Key(), now)
		switch {
		case !ok || !now.Before(held.Expires): // a sweep
			delete(w.all, got.Key())
			return nil
		case got.Created().Before(held.Written): // another watch has read a newer entry
			return nil
		}
		return signature.ErrDeleted
	}
	f := found(w.bucket, got.Key(), got.Value(), got.Created())
	s, err := w.verifier.Take(f, now)
	if err == nil {
		w.put(got.Key(), s.Operation, f.Value)
	}
	return err
}

// due hands on changes and ends.
func (w *watch) due() {
	if !w.since.IsZero() && time.Since(w.since) < w.pause {
		return
	}
	w.offer()
}

// offer calls changed with all blocks that have not ended, once all entries have been read: blocks
// that are missing in the list would be lifted.
func (w *watch) offer() {
	if !w.whole {
		return
	}
	now, holding := w.now(), 0
	for _, e := range w.all {
		if !e.Ended(now) {
			holding++
		}
	}
	if w.since.IsZero() && holding == w.count { // nothing has changed, and no block has ended
		return
	}
	w.since, w.count = time.Time{}, holding
	begin := time.Now()
	w.changed(sorted(w.all, now))
	w.pause = max(shortPause, (share-1)*time.Since(begin))
}

// next is the time until there may be a call.
func (w *watch) next() time.Duration {
	switch {
	case !w.whole:
		return MaxSpan
	case !w.since.IsZero():
		return max(w.pause-time.Since(w.since), 0)
	}
	wait, now := tick, w.now()
	for _, e := range w.all {
		if left := e.Until.Sub(now); left > 0 {
			wait = min(wait, left)
		}
	}
	return wait
}
