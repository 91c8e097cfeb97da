package blocks

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/offpath-io/offpath/pkg/signature"
)

// markFor is how long a mark of what was taken out stays, for those who watch.
const markFor = time.Hour

// Sweep takes out what has ended, and what is left of what was taken out an hour ago; n is how many
// entries it took. Where entries are signed, it also puts back what the verifier holds and somebody
// without a key has written over or taken out, so that who starts to watch learns of it. Any number
// of sweeps may go on at once: none takes out an entry that somebody has just renewed.
func (b *Bucket) Sweep(ctx context.Context, now time.Time) (n int, err error) {
	all, kv, err := b.read(ctx)
	if err != nil || kv == nil {
		return 0, b.wrap("sweep", err)
	}
	stream, err := b.js.Stream(ctx, "KV_"+b.name)
	if err != nil {
		return 0, b.wrap("sweep", err)
	}
	if b.options.Verifier != nil { // first: it does not wait for what only makes room
		err = b.restore(ctx, kv, all, now)
	}
	for name, got := range all {
		if got.Operation() != jetstream.KeyValuePut {
			if time.Since(got.Created()) < markFor {
				continue
			}
			before := jetstream.WithPurgeSequence(got.Revision() + 1)
			purged := stream.Purge(ctx, jetstream.WithPurgeSubject("$KV."+b.name+"."+name), before)
			if purged != nil {
				return n, b.wrap("sweep", errors.Join(err, purged))
			}
			continue
		}
		if !b.ended(got, now) {
			continue
		}
		if kv.Purge(ctx, name, jetstream.LastRevision(got.Revision())) == nil { // else somebody was quicker
			n++
		}
	}
	return n, b.wrap("sweep", err)
}

// sweepAfter is how long after its end a signed entry is swept: a reader whose clock is behind
// would take that for somebody else's deletion.
const sweepAfter = time.Minute

// ended says whether a value is of no use any more: an entry that has ended and, where entries are
// signed, takes the place of none that has not. What does not count is none of our business.
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

// restore puts back what is not there any more.
func (b *Bucket) restore(
	ctx context.Context, kv jetstream.KeyValue, all map[string]jetstream.KeyValueEntry, now time.Time,
) error {
	var errs []error
	for _, held := range b.options.Verifier.All(b.name, now) {
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
		if err := replace(ctx, kv, held.Key, held.Raw, revision); !outrun(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
