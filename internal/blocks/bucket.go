package blocks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/offpath-io/offpath/internal/kvwatch"
	"github.com/offpath-io/offpath/pkg/signature"
)

// Errors of Bucket, for errors.Is.
var (
	// ErrNoBucket says that the bucket does not exist yet.
	ErrNoBucket = errors.New("the bucket does not exist yet")
	// ErrNoBlock says that there is no such block.
	ErrNoBlock = errors.New("there is no such block")
	// ErrFull says that there are as many blocks as a bucket takes.
	ErrFull = fmt.Errorf("there are %d blocks already", Most)
	// ErrNoKey says that blocks have to be signed, and that there is no signing key.
	ErrNoKey = errors.New("blocks have to be signed here, and there is no signing key")
)

// Options of a Bucket. The zero value suits.
type Options struct {
	// Check is about the time between two checks for changes that a watch has missed. Default 10 s.
	Check time.Duration
	// Retry is about the first delay before a watch without a bucket, or a failed one, starts
	// again. It doubles, up to ten times. Default 250 ms.
	Retry time.Duration
	// Ask bounds the time until a server answers a request. Default 2 s.
	Ask time.Duration
	// Now is the time by which blocks end, the fleet's where it is known. Default time.Now.
	Now func() time.Time
	// Verifier holds the public keys of those who may block: entries that none of them has signed
	// are not trusted. Nil trusts everything in the bucket.
	Verifier *signature.Verifier
	// Key returns the key that signs entries; its public key has to be one that Verifier trusts.
	// Nil signs nothing.
	Key func() *signature.Key
}

// Bucket is the bucket of one fleet. It is safe for concurrent use.
type Bucket struct {
	kv      *kvwatch.Bucket
	options Options
	most    int // blocks
}

// New returns the bucket of the namespace, which need not exist. The connection stays the caller's.
func New(conn *nats.Conn, namespace string, o Options) (*Bucket, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Key != nil && o.Verifier == nil {
		return nil, errors.New("a signing key without public keys to check what is there")
	}
	kv, err := kvwatch.New(conn, namespace, "entries", o.Check, o.Retry, o.Ask)
	return &Bucket{kv, o, Most}, err
}

// Name is the name of a namespace's bucket.
func Name(namespace string) string { return namespace + "-entries" }

// Make creates the bucket if it does not exist.
func (b *Bucket) Make(ctx context.Context) error {
	_, err := b.open(ctx)
	return b.wrap("make", err)
}

// open opens the bucket, and creates it if it does not exist.
func (b *Bucket) open(ctx context.Context) (jetstream.KeyValue, error) {
	kv, err := b.kv.Open(ctx)
	if !errors.Is(err, jetstream.ErrBucketNotFound) {
		return kv, err
	}
	return b.kv.Create(ctx, jetstream.KeyValueConfig{
		Description: "blocks of single keys of an offpath fleet", MaxValueSize: 16 << 10, History: 1,
	})
}

// Put writes a block, in place of one with the same rule and key. It creates the bucket if there is
// none. The error wraps ErrBlock, ErrFull or ErrNoKey, or is NATS'; after one of NATS the block may
// have been written.
func (b *Bucket) Put(ctx context.Context, e Block) error {
	data, err := encode(e)
	if err != nil {
		return err
	}
	kv, err := b.open(ctx)
	if err != nil {
		return b.wrap("put a block into", err)
	}
	name := name(e.Rule, e.Key)
	err = b.write(ctx, kv, name, func(there record) ([]byte, error) {
		if !there.blocks {
			if err := b.checkRoom(ctx, kv); err != nil {
				return nil, err
			}
		}
		return b.sign(name, there, signature.Put, e.Until, data)
	})
	return b.wrap("put a block into", err)
}

// record is the entry under a name.
type record struct {
	revision uint64 // 0 if nothing is
	blocks   bool   // a trusted entry blocks the key; the block may have ended
	refused  bool   // there is an entry that is not trusted
	// newest is the signature of the newest trusted entry, which somebody without a key may have
	// removed; zero if there is none.
	newest signature.Signature
}

// find returns the entry under a name.
func (b *Bucket) find(
	ctx context.Context, kv jetstream.KeyValue, name string,
) (record, error) {
	var there record
	v, now := b.options.Verifier, b.options.Now()
	if v != nil {
		if held, ok := v.Held(b.kv.Name, name, now); ok {
			there.newest, there.blocks = held.Signature, held.Operation == signature.Put
		}
	}
	got, err := kv.Get(ctx, name)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return there, nil
	}
	if err != nil {
		return there, err
	}
	there.revision = got.Revision()
	if v == nil {
		there.blocks = true
		return there, nil
	}
	s, err := v.Verify(found(b.kv.Name, name, got.Value(), got.Created()), now)
	switch {
	case err != nil:
		there.refused = true
	case s.Version > there.newest.Version:
		there.newest, there.blocks = s, s.Operation == signature.Put
	}
	return there, nil
}

// sign makes the value of an entry that replaces another. It expires no earlier than that one,
// which could otherwise be put back once this one has expired.
func (b *Bucket) sign(
	name string, there record, o signature.Operation, until time.Time, data []byte,
) ([]byte, error) {
	switch {
	case b.options.Verifier == nil:
		return data, nil
	case b.options.Key == nil:
		return nil, ErrNoKey
	}
	if there.newest.Expires.After(until) {
		until = there.newest.Expires
	}
	signed, err := b.options.Key().Sign(signature.Claims{
		Bucket: b.kv.Name, Key: name, Operation: o, Expires: until,
		Version: signature.NextVersion(there.newest.Version, b.options.Now()),
	}, data)
	if err != nil {
		return nil, err
	}
	return join(data, signed), nil
}

// mostWrites bounds the attempts of a write while other writers are quicker.
const mostWrites = 5

// write replaces the entry under a name by what change makes of it. It tries again if another
// writer was quicker.
func (b *Bucket) write(
	ctx context.Context, kv jetstream.KeyValue, name string, change func(record) ([]byte, error),
) error {
	for try := 1; ; try++ {
		there, err := b.find(ctx, kv, name)
		if err != nil {
			return err
		}
		data, err := change(there)
		if err != nil {
			return err
		}
		err = replace(ctx, kv, name, data, there.revision)
		if !kvwatch.IsOutrun(err) || try == mostWrites {
			return err
		}
	}
}

// replace writes a value in place of that of a revision, 0 for none.
func replace(
	ctx context.Context, kv jetstream.KeyValue, name string, data []byte, revision uint64,
) (err error) {
	if revision == 0 {
		_, err = kv.Create(ctx, name, data)
	} else {
		_, err = kv.Update(ctx, name, data, revision)
	}
	return err
}

// checkRoom returns ErrFull if there are too many blocks, not counting those that have ended. Marks
// of deletions, entries that lift a block, and untrusted entries take no room.
func (b *Bucket) checkRoom(ctx context.Context, kv jetstream.KeyValue) error {
	status, err := kv.Status(ctx)
	if err != nil || status.Values() < uint64(b.most) {
		return err
	}
	now := b.options.Now()
	if _, err := b.Sweep(ctx, now); err != nil {
		return err
	}
	all, _, err := b.read(ctx)
	if err != nil {
		return err
	}
	blocks := 0
	for _, got := range all {
		if _, s, err := b.verify(got, now); err == nil && s.Operation != signature.Lift {
			blocks++
		}
	}
	if blocks >= b.most {
		return ErrFull
	}
	return nil
}

// verify splits a value, and checks its signature if there is a verifier. Of a mark of a deletion
// the error is signature.ErrDeleted.
func (b *Bucket) verify(
	got jetstream.KeyValueEntry, now time.Time,
) (data []byte, s signature.Signature, err error) {
	if got.Operation() != jetstream.KeyValuePut {
		return nil, s, signature.ErrDeleted
	}
	f := found(b.kv.Name, got.Key(), got.Value(), got.Created())
	if v := b.options.Verifier; v != nil {
		s, err = v.Verify(f, now)
	}
	return f.Value, s, err
}

// Delete lifts a block; the error may be ErrNoBlock or ErrNoKey. Where entries are signed, it
// replaces the block by an entry that lifts it.
func (b *Bucket) Delete(ctx context.Context, rule, key string) error {
	kv, err := b.kv.Get(ctx)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return ErrNoBlock
	}
	if err != nil {
		return b.wrap("take a block out of", err)
	}
	name := name(rule, key)
	if b.options.Verifier == nil {
		if _, err = kv.Get(ctx, name); err == nil {
			err = kv.Purge(ctx, name)
		}
		if errors.Is(err, jetstream.ErrKeyNotFound) {
			return ErrNoBlock
		}
		return b.wrap("take a block out of", err)
	}
	err = b.write(ctx, kv, name, func(there record) ([]byte, error) {
		if !there.blocks && !there.refused {
			return nil, ErrNoBlock
		}
		until, now := there.newest.Expires, b.options.Now()
		if until.IsZero() { // the block was overwritten, and can be in force at readers all the same
			until = now.Add(MaxSpan)
		}
		data, err := encodeLift(rule, key, now)
		if err != nil {
			return nil, err
		}
		return b.sign(name, there, signature.Lift, until, data)
	})
	if errors.Is(err, ErrNoBlock) {
		return ErrNoBlock
	}
	return b.wrap("take a block out of", err)
}

// List returns the blocks that have not ended, in the order of their ends; none if there is no
// bucket.
func (b *Bucket) List(ctx context.Context) ([]Block, error) {
	all, _, err := b.read(ctx)
	if err != nil {
		return nil, b.wrap("list", err)
	}
	now := b.options.Now()
	entries := make(map[string]Block, len(all))
	for name, got := range all {
		data, _, err := b.verify(got, now)
		if err != nil {
			continue
		}
		if e, err := decode(data); err == nil {
			entries[name] = e
		}
	}
	return sorted(entries, now), nil
}

// read returns all entries by name, including marks of deletions; kv is nil if there is no bucket.
func (b *Bucket) read(
	ctx context.Context,
) (all map[string]jetstream.KeyValueEntry, kv jetstream.KeyValue, err error) {
	kv, err = b.kv.Get(ctx)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	list, err := b.kv.All(ctx)
	all = make(map[string]jetstream.KeyValueEntry)
	for _, got := range list {
		all[got.Key()] = got
	}
	return all, kv, err
}

// wrap says what failed, and replaces some errors of the library by clearer ones.
func (b *Bucket) wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s bucket %s: %w", what, b.kv.Name, kvwatch.Explain(err, ErrNoBucket))
}
