package natssource

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/offpath-io/offpath/internal/kvwatch"
	"github.com/offpath-io/offpath/pkg/signature"
)

// Watch calls changed with the newest trusted revision, and again for each newer one, until ctx is
// done. It calls trouble with an error when there is nothing to watch, and with nil when there is
// again: the connection is away, the bucket does not exist yet (ErrNoBucket), or the set was
// deleted (ErrNoRules). It waits for the end of all of these. Both are called by this goroutine,
// one at a time. A revision that is not trusted changes nothing, and is reported to the verifier;
// if there is no other, it is trouble (ErrNoRules).
//
// It starts again as soon as the connection is back, and checks from time to time for missed
// changes: so no revision that stays the newest is missed. A bucket that was lost and created again
// is noticed, and its revisions begin at 1; the versions of signed sets do not.
func (b *Bucket) Watch(ctx context.Context, changed func(Entry), trouble func(error)) {
	w := &watch{
		bucket: b, verifier: b.options.Verifier, changed: changed,
		trouble: kvwatch.Changes{Tell: trouble},
	}
	kvwatch.Watch{
		Bucket: b.kv, Key: Key, History: w.verifier != nil, MostRetry: b.kv.Retry,
	}.Run(ctx, kvwatch.Handler{
		Begin: w.begin, Take: w.take,
		Fail: func(err error) { w.trouble.Note(b.wrap("watch", translate(err))) },
	})
}

// watch is one call of Watch.
type watch struct {
	bucket   *Bucket
	verifier *signature.Verifier // nil trusts everything
	changed  func(Entry)
	trouble  kvwatch.Changes

	seen    uint64 // the newest revision
	whole   bool   // all revisions that were there have been read
	newest  Entry  // trusted, and not handed to changed yet; Revision is 0 if there is none
	version uint64 // of newest, or of the entry before it
	missing error  // there is no set in the bucket
	refused error  // why the newest revision is not trusted
}

func (w *watch) begin(other bool) {
	w.whole = false
	if other {
		w.seen = 0
	}
}

// take takes an entry; nil after the last of those that were there.
func (w *watch) take(got jetstream.KeyValueEntry) {
	switch {
	case got != nil && got.Revision() <= w.seen:
		return
	case got != nil:
		w.seen = got.Revision()
		w.read(got)
		if w.verifier != nil && !w.whole { // revisions of the past: the last trusted one is in force
			return
		}
	default:
		w.whole = true
		if w.seen == 0 {
			w.missing = w.bucket.wrap("watch", ErrNoRules)
		}
	}
	w.offer()
}

// read reads a revision.
func (w *watch) read(got jetstream.KeyValueEntry) {
	entry := w.bucket.makeEntry(got)
	if w.verifier == nil {
		w.missing = nil
		if entry.Deleted {
			why := fmt.Errorf("deleted with revision %d: %w", entry.Revision, ErrNoRules)
			w.missing = w.bucket.wrap("watch", why)
			return
		}
		w.newest = entry
		return
	}
	w.refused = entry.Refused
	if w.refused == nil {
		_, w.refused = w.verifier.Take(entry.read(w.bucket.kv.Name, got.Value()), time.Now())
	}
	if w.refused == nil && entry.Version > w.version {
		w.newest, w.version = entry, entry.Version
	}
}

// offer hands on the newest trusted set. Of the revisions that are not trusted it reports the
// newest only.
func (w *watch) offer() {
	if w.verifier != nil {
		if w.refused != nil {
			w.verifier.Refuse(w.bucket.kv.Name, Key, w.refused)
		}
		if _, held := w.verifier.Held(w.bucket.kv.Name, Key, time.Now()); held {
			w.missing = nil
		} else if w.refused != nil {
			why := fmt.Errorf("revision %d: %w: %w", w.seen, w.refused, ErrNoRules)
			w.missing = w.bucket.wrap("watch", why)
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
