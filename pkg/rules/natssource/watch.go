package natssource

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/offpath-io/offpath/pkg/internal/kvwatch"
)

// Watch calls changed with the newest revision, and again whenever there is a newer one, until ctx is done. It calls
// trouble with the reason when there is nothing to watch, and with nil when there is again: the connection is away, the
// bucket does not exist yet (an error that is ErrNoBucket), or the set was deleted (ErrNoRules). It waits for all of these. Both are called by this
// goroutine, one at a time.
//
// After the connection was away it begins anew at once, and it looks now and then whether it was told everything, so
// that no revision that stays the newest is missed. A bucket that was lost and made again is noticed, and its
// revisions begin again.
func (b *Bucket) Watch(ctx context.Context, changed func(Entry), trouble func(error)) {
	w := &watch{bucket: b, changed: changed, trouble: kvwatch.Changes{Tell: trouble}}
	kvwatch.Watch{
		Conn: b.conn, JS: b.js, Bucket: b.name, Changes: b.changes + ".>", Key: Key,
		Check: b.options.Check, Retry: b.options.Retry, MostRetry: b.options.Retry,
	}.Run(ctx, kvwatch.Handler{
		Begin: w.begin, Take: w.take, Fail: func(err error) { w.trouble.Note(b.wrap("watch", translate(err))) },
	})
}

// watch is one call of Watch.
type watch struct {
	bucket  *Bucket
	changed func(Entry)
	trouble kvwatch.Changes

	seen    uint64 // the newest revision
	deleted error  // that there is no set in the bucket
}

func (w *watch) begin(other bool) {
	if other {
		w.seen = 0
	}
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
	w.trouble.Note(w.deleted)
	if got != nil && !entry.Deleted {
		w.changed(entry)
	}
}
