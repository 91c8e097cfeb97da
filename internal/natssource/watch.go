package natssource

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/offpath-io/offpath/internal/kvwatch"
	"github.com/offpath-io/offpath/pkg/signature"
)

// Watch calls changed with the newest revision that counts, and again whenever there is a newer
// one, until ctx is done. It calls trouble with the reason when there is nothing to watch, and with
// nil when there is again: the connection is away, the bucket does not exist yet (an error that is
// ErrNoBucket), or the set was deleted (ErrNoRules). It waits for all of these. Both are called by
// this goroutine, one at a time. What does not count changes nothing, and is told to the verifier;
// only if there is nothing else, it is trouble (ErrNoRules).
//
// After the connection was away it begins anew at once, and it looks now and then whether it was
// told everything, so that no revision that stays the newest is missed. A bucket that was lost and
// made again is noticed, and its revisions begin again; versions of signed sets do not.
func (b *Bucket) Watch(ctx context.Context, changed func(Entry), trouble func(error)) {
	w := &watch{bucket: b, verifier: b.options.Verifier, changed: changed, trouble: kvwatch.Changes{Tell: trouble}}
	kvwatch.Watch{
		Conn: b.conn, JS: b.js, Bucket: b.name, Changes: b.changes + ".>", Key: Key, History: w.verifier != nil,
		Check: b.options.Check, Retry: b.options.Retry, MostRetry: b.options.Retry,
	}.Run(ctx, kvwatch.Handler{
		Begin: w.begin, Take: w.take, Fail: func(err error) { w.trouble.Note(b.wrap("watch", translate(err))) },
	})
}

// watch is one call of Watch.
type watch struct {
	bucket   *Bucket
	verifier *signature.Verifier // nil: everything counts
	changed  func(Entry)
	trouble  kvwatch.Changes

	seen    uint64 // the newest revision
	whole   bool   // all that was there has been told
	newest  Entry  // that counts, and has not been told of; Revision is 0 if there is none
	told    uint64 // the version told of last
	missing error  // that there is no set in the bucket
	refused error  // why the newest revision does not count
}

func (w *watch) begin(other bool) {
	w.whole = false
	if other {
		w.seen = 0
	}
}

// take takes what the watcher tells: nil says that all that was there has been told.
func (w *watch) take(got jetstream.KeyValueEntry) {
	switch {
	case got != nil && got.Revision() <= w.seen:
		return
	case got != nil:
		w.seen = got.Revision()
		w.read(got)
		if w.verifier != nil && !w.whole { // revisions of the past: it goes by the last that counts
			return
		}
	default:
		w.whole = true
		if w.seen == 0 {
			w.missing = w.bucket.wrap("watch", ErrNoRules)
		}
	}
	w.tell()
}

// read takes in a revision.
func (w *watch) read(got jetstream.KeyValueEntry) {
	entry := w.bucket.makeEntry(got)
	if w.verifier == nil {
		w.missing = nil
		if entry.Deleted {
			w.missing = w.bucket.wrap("watch", fmt.Errorf("deleted with revision %d: %w", entry.Revision, ErrNoRules))
			return
		}
		w.newest = entry
		return
	}
	w.refused = entry.Refused
	if w.refused == nil {
		_, signed := split(got.Value())
		_, w.refused = w.verifier.Take(signature.Found{
			Bucket: w.bucket.name, Key: Key, Value: entry.Data, Text: signed, Raw: got.Value(), Written: got.Created(),
		}, time.Now())
	}
	if w.refused == nil && entry.Version > w.told {
		w.newest, w.told = entry, entry.Version
	}
}

// tell tells of what has come. Which refusals there were on the way to what counts is not worth a
// word.
func (w *watch) tell() {
	if w.verifier != nil {
		if w.refused != nil {
			w.verifier.Refuse(w.bucket.name, Key, w.refused)
		}
		if _, held := w.verifier.Held(w.bucket.name, Key, time.Now()); held {
			w.missing = nil
		} else if w.refused != nil {
			w.missing = w.bucket.wrap("watch", fmt.Errorf("revision %d: %w: %w", w.seen, w.refused, ErrNoRules))
		}
		w.refused = nil
	}
	w.trouble.Note(w.missing)
	if w.newest.Revision > 0 {
		newest := w.newest
		w.newest = Entry{}
		w.changed(newest)
	}
}
