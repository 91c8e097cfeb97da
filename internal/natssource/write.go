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

// Put writes a set if the bucket holds the expected revision, 0 for none, and returns the new
// revision. Otherwise it changes nothing and returns a *ConflictError. It creates the bucket if
// there is none. It signs the set if there is a key, and returns ErrNoKey if there is only a
// verifier.
//
// After another error, such as the end of ctx, the set may have been written or not.
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
	for try := 1; kvwatch.IsOutrun(err) && b.options.Key != nil && try < mostWrites; try++ {
		at, err = b.put(ctx, kv, data, expected) // usually by a value that is not trusted
	}
	if err != nil {
		return 0, b.wrap("put rules into", b.conflict(ctx, kv, expected, err))
	}
	return at, nil
}

// mostWrites bounds the attempts to write a signed set while other writers are quicker, whose sets
// are not trusted.
const mostWrites = 5

func (b *Bucket) put(
	ctx context.Context, kv jetstream.KeyValue, data []byte, expected uint64,
) (uint64, error) {
	over := expected
	if b.options.Key != nil {
		entry, last, err := b.newest(ctx, kv)
		switch {
		case err != nil && !errors.Is(err, ErrNoRules):
			return 0, err
		case entry.Revision != expected:
			return 0, &ConflictError{Expected: expected, Found: entry.Revision}
		}
		// Untrusted values are overwritten: else anybody could prevent changes.
		over = last
		text, _ := split(data) // without the signature that it was read with
		signed, err := b.options.Key.Sign(signature.Claims{
			Bucket: b.kv.Name, Key: Key, Operation: signature.Put,
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

// CheckSize returns the ErrTooLarge that Put would return over the present connection.
func (b *Bucket) CheckSize(data []byte) error {
	most := MaxSize
	if payload := int(b.kv.Conn.MaxPayload()); payload > 0 { // 0 before the first connection
		most = min(most, payload-overhead)
	}
	if len(data) <= most {
		return nil
	}
	err := fmt.Errorf("%w: the set has %d bytes, and the bucket takes %d", ErrTooLarge, len(data), most)
	return b.wrap("put rules into", err)
}

// open opens the bucket, and creates it for a first set.
func (b *Bucket) open(ctx context.Context, expected uint64) (jetstream.KeyValue, error) {
	kv, err := b.kv.Open(ctx)
	if !errors.Is(err, jetstream.ErrBucketNotFound) {
		return kv, translate(err)
	}
	if expected != 0 {
		return nil, &ConflictError{Expected: expected}
	}
	kv, err = b.kv.Create(ctx, jetstream.KeyValueConfig{
		Description: "rules of an offpath fleet", History: Remembered, Replicas: b.options.Replicas,
	})
	return kv, translate(err)
}

// conflict finds out which revision is there, if a write failed because of it.
func (b *Bucket) conflict(
	ctx context.Context, kv jetstream.KeyValue, expected uint64, err error,
) error {
	if !kvwatch.IsOutrun(err) {
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
