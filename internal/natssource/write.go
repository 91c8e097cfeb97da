package natssource

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/offpath-io/offpath/internal/kvwatch"
	"github.com/offpath-io/offpath/pkg/signature"
)

// Put writes a set if the bucket holds the expected revision, 0 for none, and returns its revision.
// Otherwise it returns a *ConflictError, and has changed nothing. It makes the bucket if there is
// none. The set is signed if there is a key, and refused with ErrNoKey if there is a verifier
// alone.
//
// After another error, such as the end of ctx, the set may have been written or not; Get tells.
func (b *Bucket) Put(ctx context.Context, data []byte, expected uint64) (uint64, error) {
	if err := b.CheckSize(data); err != nil {
		return 0, err
	}
	if b.options.Key == nil && b.options.Verifier != nil {
		return 0, b.wrap("put rules into", ErrNoKey)
	}
	kv, err := b.open(ctx, expected)
	if err != nil {
		return 0, b.wrap("put rules into", err)
	}
	at, err := b.put(ctx, kv, data, expected)
	for try := 1; isOutrun(err) && b.options.Key != nil && try < mostWrites; try++ {
		at, err = b.put(ctx, kv, data, expected) // by a value that does not count, as a rule
	}
	if err != nil {
		return 0, b.wrap("put rules into", b.conflict(ctx, kv, expected, err))
	}
	return at, nil
}

// mostWrites is how often a signed set is written when others were quicker whose sets do not count.
const mostWrites = 5

// isOutrun says whether a write failed since somebody else was quicker.
func isOutrun(err error) bool {
	return errors.Is(err, jetstream.ErrKeyRevisionMismatch) || errors.Is(err, jetstream.ErrKeyExists)
}

func (b *Bucket) put(ctx context.Context, kv jetstream.KeyValue, data []byte, expected uint64) (uint64, error) {
	over := expected
	if b.options.Key != nil {
		entry, last, err := b.newest(ctx, kv)
		switch {
		case err != nil && !errors.Is(err, ErrNoRules):
			return 0, err
		case entry.Revision != expected:
			return 0, &ConflictError{Expected: expected, Found: entry.Revision}
		}
		// What does not count is written over: else anybody could keep a set from being changed.
		over = last
		text, _ := split(data) // it was read with the signature that it had
		signed, err := b.options.Key.Sign(signature.Claims{
			Bucket: b.name, Key: Key, Operation: signature.Put,
			Version: signature.NextVersion(entry.Version, time.Now()),
		}, text)
		if err != nil {
			return 0, err
		}
		data = join(text, signed)
	}
	if over == 0 {
		return kv.Create(ctx, Key, data) // also after a deletion
	}
	return kv.Update(ctx, Key, data, over)
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
func (b *Bucket) conflict(ctx context.Context, kv jetstream.KeyValue, expected uint64, err error) error {
	if !isOutrun(err) {
		return translate(err)
	}
	found, _, again := b.newest(ctx, kv) // nothing if there is none
	if again != nil && !errors.Is(again, ErrNoRules) {
		return fmt.Errorf("%s is not there any more; which is: %w", revision(expected), again)
	}
	if found.Revision == expected && b.options.Key != nil {
		return errors.New("somebody without a signing key writes all the time")
	}
	return &ConflictError{Expected: expected, Found: found.Revision}
}
