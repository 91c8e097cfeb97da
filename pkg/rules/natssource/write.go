package natssource

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/offpath-io/offpath/pkg/internal/kvwatch"
)

// Put writes a set if the bucket holds the expected revision, 0 for none, and returns its revision. Otherwise it
// returns a *ConflictError, and has changed nothing. It makes the bucket if there is none.
//
// After another error, such as the end of ctx, the set may have been written or not; Get tells.
func (b *Bucket) Put(ctx context.Context, data []byte, expected uint64) (uint64, error) {
	if err := b.CheckSize(data); err != nil {
		return 0, err
	}
	kv, err := b.open(ctx, expected)
	if err != nil {
		return 0, b.wrap("put rules into", err)
	}
	var at uint64
	if expected == 0 {
		at, err = kv.Create(ctx, Key, data) // also after a Delete
	} else {
		at, err = kv.Update(ctx, Key, data, expected)
	}
	if err != nil {
		return 0, b.wrap("put rules into", b.conflict(ctx, expected, err))
	}
	return at, nil
}

// CheckSize returns the ErrTooLarge that Put would, if the connection is there.
func (b *Bucket) CheckSize(data []byte) error {
	most := MaxSize
	if payload := int(b.conn.MaxPayload()); payload > 0 { // 0 before the first connection
		most = min(most, payload-overhead)
	}
	if len(data) <= most {
		return nil
	}
	return b.wrap("put rules into", fmt.Errorf("%w: the set has %d bytes, and the bucket takes %d", ErrTooLarge, len(data), most))
}

// Delete takes the set away if it is the expected revision; who watches keeps the last one, and says so. The bucket
// goes on to remember it. The errors are those of Put, and ErrNoRules.
func (b *Bucket) Delete(ctx context.Context, expected uint64) error {
	entry, err := b.Get(ctx)
	if err != nil {
		return err
	}
	if entry.Revision != expected { // and never 0, which the library takes for no expectation
		return b.wrap("delete rules from", &ConflictError{Expected: expected, Found: entry.Revision})
	}
	kv, err := b.js.KeyValue(ctx, b.name)
	if err == nil {
		err = kv.Delete(ctx, Key, jetstream.LastRevision(expected))
	}
	if err != nil {
		return b.wrap("delete rules from", b.conflict(ctx, expected, err))
	}
	return nil
}

// open opens the bucket, and makes it for a first set.
func (b *Bucket) open(ctx context.Context, expected uint64) (jetstream.KeyValue, error) {
	kv, err := b.js.KeyValue(ctx, b.name)
	if err == nil {
		kvwatch.Upgrade(ctx, b.js, b.name, b.changes)
	}
	if err == nil || !errors.Is(err, jetstream.ErrBucketNotFound) {
		return kv, translate(err)
	}
	if expected != 0 {
		return nil, &ConflictError{Expected: expected}
	}
	kv, err = b.js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
		Bucket:      b.name,
		Description: "rules of an offpath fleet",
		History:     Remembered,
		Replicas:    b.options.Replicas,
		RePublish:   kvwatch.RePublish(b.name, b.changes),
	})
	if errors.Is(err, jetstream.ErrBucketExists) { // another first writer, who wants other replicas
		kv, err = b.js.KeyValue(ctx, b.name)
	}
	return kv, translate(err)
}

// conflict finds out which revision is there, if that is why a write was refused.
func (b *Bucket) conflict(ctx context.Context, expected uint64, err error) error {
	if !errors.Is(err, jetstream.ErrKeyRevisionMismatch) && !errors.Is(err, jetstream.ErrKeyExists) {
		return translate(err)
	}
	found, again := b.newest(ctx) // nothing if there is none
	if again != nil && !errors.Is(again, ErrNoRules) {
		return fmt.Errorf("%s is not there any more; which is: %w", revision(expected), again)
	}
	return &ConflictError{Expected: expected, Found: found.Revision}
}
