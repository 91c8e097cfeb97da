package blocks

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/offpath-io/offpath/internal/kvwatch"
	"github.com/offpath-io/offpath/pkg/signature"
)

// mostRetries is how many times Retry the time between two tries becomes.
const mostRetries = 10

// Watch calls changed with all blocks that have not ended, and again within milliseconds when they are
// others, also when one has ended; until ctx is done. Changes that come at once are told at once;
// of very many entries less often, so that telling takes a tenth of the time at most. It calls
// trouble with the reason when there is nothing to watch, and with nil when there is again: the
// connection is away, there is no JetStream, or nobody has made the bucket (ErrNoBucket). It waits
// for all of these; what was told last is all that is known then. Both are called by this
// goroutine, one at a time. The list must not be changed.
//
// After the connection was away it begins anew, and it looks now and then whether it was told
// everything. Where entries are signed, what does not count changes nothing, and is told to the
// verifier.
func (b *Bucket) Watch(ctx context.Context, changed func([]Block), trouble func(error)) {
	w := &watch{
		bucket: b.name, verifier: b.options.Verifier, changed: changed,
		trouble: kvwatch.Changes{Tell: trouble}, now: b.options.Now, pause: shortPause,
	}
	kvwatch.Watch{
		Conn: b.conn, JS: b.js, Bucket: b.name, Changes: b.changes + ".>",
		Check: b.options.Check, Retry: b.options.Retry, MostRetry: mostRetries * b.options.Retry,
	}.Run(ctx, kvwatch.Handler{
		Begin: w.begin, Take: w.take, Fail: func(err error) { w.trouble.Note(b.wrap("watch", err)) }, Next: w.next, Due: w.due,
	})
}

// watch is one call of Watch.
type watch struct {
	bucket   string
	verifier *signature.Verifier // nil: everything counts

	changed func([]Block)
	trouble kvwatch.Changes
	now     func() time.Time

	all   map[string]Block // also those that have ended, until they are swept: clocks are corrected
	whole bool             // all that was there has been told

	since time.Time     // something has changed since, by the process' clock; zero: nothing
	pause time.Duration // between a change and telling of it
	told  int           // entries, -1 for never
}

const (
	// shortPause is how long changes are gathered before they are told of, so that many at once are told of once.
	shortPause = 2 * time.Millisecond
	// share is what part of the time telling may take, of very many entries that change all the time.
	share = 10
	// tick is how often it is looked whether something has ended, since the clock that says so may be set.
	tick = time.Second
)

func (w *watch) begin(bool) {
	w.all, w.whole = make(map[string]Block), false
	if w.verifier == nil {
		return
	}
	for _, held := range w.verifier.All(w.bucket, w.now()) { // what is not there any more counts all the same
		data, _ := split(held.Raw)
		w.put(held.Key, held.Operation, data)
	}
}

// put puts what a value says in place of what was under the name.
func (w *watch) put(name string, o signature.Operation, data []byte) {
	delete(w.all, name)
	if e, err := decode(data); err == nil && o != signature.Lift { // else it is not for us
		w.all[name] = e
	}
}

// take takes what the watcher tells: nil says that all that was there has been told.
func (w *watch) take(got jetstream.KeyValueEntry) {
	switch {
	case got == nil:
		w.whole, w.told = true, -1
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

// takeSigned takes what counts; the error says why it does not.
func (w *watch) takeSigned(got jetstream.KeyValueEntry) error {
	now := w.now()
	if got.Operation() != jetstream.KeyValuePut {
		held, ok := w.verifier.Held(w.bucket, got.Key(), now)
		switch {
		case !ok || !now.Before(held.Expires): // it was swept
			delete(w.all, got.Key())
			return nil
		case got.Created().Before(held.Written): // another reader was quicker
			return nil
		}
		return signature.ErrDeleted
	}
	data, signed := split(got.Value())
	s, err := w.verifier.Take(signature.Found{
		Bucket: w.bucket, Key: got.Key(), Value: data, Text: signed, Raw: got.Value(), Written: got.Created(),
	}, now)
	if err == nil {
		w.put(got.Key(), s.Operation, data)
	}
	return err
}

// due tells of what has changed, and of what has ended.
func (w *watch) due() {
	if !w.since.IsZero() && time.Since(w.since) < w.pause {
		return
	}
	w.offer()
}

// offer tells of all entries that hold; not before it is known which there are: who is told of some takes the others for ended.
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
	if w.since.IsZero() && holding == w.told { // nothing has changed, and none has ended: they are the same
		return
	}
	w.since, w.told = time.Time{}, holding
	begin := time.Now()
	w.changed(sorted(w.all, now))
	w.pause = max(shortPause, (share-1)*time.Since(begin))
}

// next is in how long there may be something to tell.
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
