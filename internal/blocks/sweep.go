package blocks

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/offpath-io/offpath/internal/kvwatch"
	"github.com/offpath-io/offpath/pkg/signature"
)

// markFor is how long a mark of a deletion stays, for watches.
const markFor = time.Hour

// Sweep removes entries of blocks that have ended, n of them, and marks of deletions that are an
// hour old. Where entries are signed, it also restores those that the verifier holds and somebody
// without a key has overwritten or removed, so that new watches find them. Any number of sweeps may
// run at once: none removes an entry that has just been renewed.
func (b *Bucket) Sweep(ctx context.Context, now time.Time) (n int, err error) {
	all, kv, err := b.read(ctx)
	if err != nil || kv == nil {
		return 0, b.wrap("sweep", err)
	}
	stream, err := b.kv.JS.Stream(ctx, "KV_"+b.kv.Name)
	if err != nil {
		return 0, b.wrap("sweep", err)
	}
	if b.options.Verifier != nil { // first: it is more urgent than making room
		err = b.restore(ctx, kv, all, now)
	}
	for name, got := range all {
		if got.Operation() != jetstream.KeyValuePut {
			if time.Since(got.Created()) < markFor {
				continue
			}
			before := jetstream.WithPurgeSequence(got.Revision() + 1)
			purged := stream.Purge(ctx, jetstream.WithPurgeSubject("$KV."+b.kv.Name+"."+name), before)
			if purged != nil {
				return n, b.wrap("sweep", errors.Join(err, purged))
			}
			continue
		}
		if !b.ended(got, now) {
			continue
		}
		// An error: another writer was quicker.
		if kv.Purge(ctx, name, jetstream.LastRevision(got.Revision())) == nil {
			n++
		}
	}
	return n, b.wrap("sweep", err)
}

// sweepAfter is how long after its end a signed entry is swept: to a reader whose clock is behind,
// the sweep would look like a deletion by somebody without a key.
const sweepAfter = time.Minute

// ended reports whether an entry has no effect any more: its block has ended, and, where entries
// are signed, so has every block that it replaced. It is false for entries that are not trusted.
func (b *Bucket) ended(got jetstream.KeyValueEntry, now time.Time) bool {
	data, s, err := b.verify(got, now)
	if err != nil {
		return errors.Is(err, signature.ErrExpired)
	}
	if b.options.Verifier != nil {
		return !now.Before(s.Expires.Add(sweepAfter))
	}
	e, err := decode(data)
	return err == nil && e.Ended(now)
}

// restore writes trusted entries that were overwritten or removed.
func (b *Bucket) restore(
	ctx context.Context, kv jetstream.KeyValue, all map[string]jetstream.KeyValueEntry, now time.Time,
) error {
	var errs []error
	for _, held := range b.options.Verifier.All(b.kv.Name, now) {
		if !now.Before(held.Expires) {
			continue
		}
		var revision uint64
		if got := all[held.Key]; got != nil {
			_, s, err := b.verify(got, now)
			if err == nil && s.Version >= held.Version {
				continue
			}
			revision = got.Revision()
		}
		if err := replace(ctx, kv, held.Key, held.Raw, revision); !kvwatch.IsOutrun(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
