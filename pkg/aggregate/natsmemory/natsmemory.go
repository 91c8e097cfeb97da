// Package natsmemory keeps the states of a fleet's shards in a NATS JetStream key-value bucket,
// beside the store that they are of. So aggregators that start know what others have seen, and find
// out when the store has lost data meanwhile. Who may write the bucket can have the fleet believe
// in a loss that there was not: let it be aggregators alone, as in deploy/nats.conf.
package natsmemory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
)

// Name is the name of a namespace's bucket.
func Name(namespace string) string { return namespace + "-states" }

// key is the only one of a bucket that this package uses. Consoles keep their history under
// another one.
const key = "shards"

// value is kept under it: for each shard, by number, generation and version.
type value struct {
	Shards [][2]uint64 `json:"shards"`
}

// Bucket is the bucket of one fleet. It is safe for concurrent use.
type Bucket struct {
	js   jetstream.JetStream
	name string

	mu sync.Mutex
	kv jetstream.KeyValue // nil: not opened yet
}

// New returns the bucket of the namespace, which the first Merge makes if it is not there. The
// connection stays the caller's.
func New(conn *nats.Conn, namespace string) (*Bucket, error) {
	js, err := jetstream.New(conn)
	if err != nil {
		return nil, fmt.Errorf("use JetStream: %w", err)
	}
	return &Bucket{js: js, name: Name(namespace)}, nil
}

// mostTries is how often a merge is tried when another one was quicker, or when the bucket is not
// the one that it was.
const mostTries = 5

// Merge is that of [aggregate.Memory]. It writes only if a state is later than the one kept.
func (b *Bucket) Merge(ctx context.Context, states []storage.State) (kept []storage.State, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for range mostTries {
		if kept, err = b.merge(ctx, states); err == nil {
			return kept, nil
		}
		if !outrun(err) {
			b.kv = nil
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, b.wrap(err)
}

func (b *Bucket) merge(ctx context.Context, states []storage.State) ([]storage.State, error) {
	if err := b.openLocked(ctx); err != nil {
		return nil, err
	}
	there, revision, err := b.read(ctx)
	if err != nil {
		return nil, err
	}
	kept := storage.Latest(there, states)
	if isWithin(states, there) {
		return kept, nil
	}
	data, err := encode(kept)
	if err != nil {
		return nil, err
	}
	if revision == 0 {
		_, err = b.kv.Create(ctx, key, data)
	} else {
		_, err = b.kv.Update(ctx, key, data, revision)
	}
	return kept, err
}

// isWithin says whether none of the states is later than the one kept.
func isWithin(states, there []storage.State) bool {
	for i, s := range states {
		if i >= len(there) || there[i].Less(s) {
			return false
		}
	}
	return true
}

func (b *Bucket) openLocked(ctx context.Context) (err error) {
	if b.kv != nil {
		return nil
	}
	b.kv, err = b.js.KeyValue(ctx, b.name)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		b.kv, err = b.js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket: b.name, Description: "what the aggregators of an offpath fleet have last seen of the shards in its store", History: 1,
		})
	}
	return err
}

// read returns the states kept; revision is 0 if there are none. An unreadable value is
// overwritten.
func (b *Bucket) read(ctx context.Context) (states []storage.State, revision uint64, err error) {
	entry, err := b.kv.Get(ctx, key)
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
		return nil, 0, nil
	case err != nil:
		return nil, 0, err
	}
	var v value
	if json.Unmarshal(entry.Value(), &v) != nil || len(v.Shards) > storage.MaxShards {
		return nil, entry.Revision(), nil
	}
	states = make([]storage.State, len(v.Shards))
	for i, s := range v.Shards {
		states[i] = storage.State{Generation: s[0], Version: s[1]}
	}
	return states, entry.Revision(), nil
}

func encode(states []storage.State) ([]byte, error) {
	v := value{Shards: make([][2]uint64, len(states))}
	for i, s := range states {
		v.Shards[i] = [2]uint64{s.Generation, s.Version}
	}
	return json.Marshal(v)
}

// outrun says whether a write failed because another writer was quicker.
func outrun(err error) bool {
	return errors.Is(err, jetstream.ErrKeyExists) || errors.Is(err, jetstream.ErrKeyRevisionMismatch)
}

// wrap names the attempt, and says whether another one soon can succeed.
func (b *Bucket) wrap(err error) error {
	refused, isAPI := errors.AsType[*jetstream.APIError](err)
	if errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrJetStreamNotEnabled) ||
		errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount) || isAPI && refused.Code < 500 && !outrun(err) {
		err = fmt.Errorf("%w: %w", aggregate.ErrNoMemory, err)
	}
	return fmt.Errorf("merge states into bucket %s: %w", b.name, err)
}
