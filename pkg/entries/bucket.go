package entries

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/offpath-io/offpath/pkg/internal/kvwatch"
)

// Errors of Bucket, to be told apart by errors.Is.
var (
	// ErrNoBucket says that nobody has made the bucket yet.
	ErrNoBucket = errors.New("the bucket does not exist yet")
	// ErrNoEntry says that there is no such entry.
	ErrNoEntry = errors.New("there is no such entry")
	// ErrFull says that there are as many entries as a bucket takes.
	ErrFull = fmt.Errorf("there are %d entries already", Most)
)

// Options of a Bucket. The zero value suits.
type Options struct {
	// Replicas is on how many servers of a cluster the bucket is kept, if it is made, 1 to 5. Default 1.
	Replicas int
	// Check is about the time between two looks whether a watch has missed anything. Default 10 s.
	Check time.Duration
	// Retry is about the time after which a watch is tried again while there is no bucket or while it fails, at first. It doubles, up
	// to ten times. Default 250 ms.
	Retry time.Duration
	// Now is the time by which entries end: the fleet's, for those who know it. Default time.Now.
	Now func() time.Time
}

// Bucket is the bucket of one fleet. It is safe for concurrent use.
type Bucket struct {
	conn    *nats.Conn
	js      jetstream.JetStream
	name    string
	changes string // the subject at which the bucket tells of what is written
	options Options
	most    int // entries
}

// New returns the bucket of the namespace, without asking whether it is there. The connection stays the caller's.
func New(conn *nats.Conn, namespace string, o Options) (*Bucket, error) {
	o.Replicas = max(o.Replicas, 1)
	if o.Check <= 0 {
		o.Check = 10 * time.Second
	}
	if o.Retry <= 0 {
		o.Retry = 250 * time.Millisecond
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	js, err := jetstream.New(conn)
	if err != nil {
		return nil, fmt.Errorf("use JetStream: %w", err)
	}
	b := &Bucket{conn: conn, js: js, name: Name(namespace), options: o, most: Most}
	b.changes = namespace + ".stored.v1.entries"
	return b, nil
}

// Name is the name of a namespace's bucket.
func Name(namespace string) string { return namespace + "-entries" }

// Make makes the bucket, if it is not there.
func (b *Bucket) Make(ctx context.Context) error {
	_, err := b.open(ctx)
	return b.wrap("make", err)
}

// open opens the bucket, and makes it if it is not there.
func (b *Bucket) open(ctx context.Context) (jetstream.KeyValue, error) {
	kv, err := b.js.KeyValue(ctx, b.name)
	if err == nil {
		kvwatch.Upgrade(ctx, b.js, b.name, b.changes)
	}
	if !errors.Is(err, jetstream.ErrBucketNotFound) {
		return kv, err
	}
	kv, err = b.js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
		Bucket:       b.name,
		Description:  "blocks of single keys of an offpath fleet",
		MaxValueSize: 16 << 10,
		History:      1,
		Replicas:     b.options.Replicas,
		RePublish:    kvwatch.RePublish(b.name, b.changes),
	})
	if errors.Is(err, jetstream.ErrBucketExists) { // somebody else, who wants other replicas
		return b.js.KeyValue(ctx, b.name)
	}
	return kv, err
}

// Put writes an entry, in place of one with the same rule and key. It makes the bucket if there is none. The error is ErrEntry or
// ErrFull, or NATS'; after one of these the entry may have been written.
func (b *Bucket) Put(ctx context.Context, e Entry) error {
	data, err := encode(e)
	if err != nil {
		return err
	}
	kv, err := b.open(ctx)
	if err != nil {
		return b.wrap("put an entry into", err)
	}
	if _, err := kv.Get(ctx, name(e.Rule, e.Key)); err != nil { // it is another one
		if err := b.checkRoom(ctx, kv); err != nil {
			return b.wrap("put an entry into", err)
		}
	}
	_, err = kv.Put(ctx, name(e.Rule, e.Key), data)
	return b.wrap("put an entry into", err)
}

// checkRoom returns ErrFull if there is none, also when those that have ended are gone. Marks of what was taken out lately take none.
func (b *Bucket) checkRoom(ctx context.Context, kv jetstream.KeyValue) error {
	status, err := kv.Status(ctx)
	if err != nil || status.Values() < uint64(b.most) {
		return err
	}
	if _, err := b.Sweep(ctx, b.options.Now()); err != nil {
		return err
	}
	all, _, err := b.read(ctx)
	maps.DeleteFunc(all, func(_ string, got jetstream.KeyValueEntry) bool {
		return got.Operation() != jetstream.KeyValuePut
	})
	if err == nil && len(all) >= b.most {
		err = ErrFull
	}
	return err
}

// Delete ends an entry; the error may be ErrNoEntry.
func (b *Bucket) Delete(ctx context.Context, rule, key string) error {
	kv, err := b.js.KeyValue(ctx, b.name)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return ErrNoEntry
	}
	if err == nil {
		_, err = kv.Get(ctx, name(rule, key))
	}
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return ErrNoEntry
	}
	if err == nil {
		err = kv.Purge(ctx, name(rule, key))
	}
	return b.wrap("take an entry out of", err)
}

// List returns the entries that hold, in the order of their ends; none if there is no bucket.
func (b *Bucket) List(ctx context.Context) ([]Entry, error) {
	all, _, err := b.read(ctx)
	if err != nil {
		return nil, b.wrap("list", err)
	}
	now := b.options.Now()
	entries := make(map[string]Entry, len(all))
	for name, got := range all {
		if e, err := decode(got.Value()); err == nil && got.Operation() == jetstream.KeyValuePut {
			entries[name] = e
		}
	}
	return sorted(entries, now), nil
}

// read returns all that is in the bucket, by name, with marks of what was taken out; kv is nil if
// there is no bucket.
func (b *Bucket) read(ctx context.Context) (all map[string]jetstream.KeyValueEntry, kv jetstream.KeyValue, err error) {
	kv, err = b.js.KeyValue(ctx, b.name)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	list, err := kvwatch.All(ctx, b.conn, b.name)
	all = make(map[string]jetstream.KeyValueEntry)
	for _, got := range list {
		all[got.Key()] = got
	}
	return all, kv, err
}

// markFor is how long a mark of what was taken out stays, for those who watch.
const markFor = time.Hour

// Sweep takes out what has ended, and what is left of what was taken out an hour ago; n is how many entries it took. Any number of
// sweeps may go on at once: none takes out an entry that somebody has just renewed.
func (b *Bucket) Sweep(ctx context.Context, now time.Time) (n int, err error) {
	all, kv, err := b.read(ctx)
	if err != nil || kv == nil {
		return 0, b.wrap("sweep", err)
	}
	stream, err := b.js.Stream(ctx, "KV_"+b.name)
	if err != nil {
		return 0, b.wrap("sweep", err)
	}
	for name, got := range all {
		if got.Operation() != jetstream.KeyValuePut {
			if time.Since(got.Created()) < markFor {
				continue
			}
			before := jetstream.WithPurgeSequence(got.Revision() + 1)
			if err := stream.Purge(ctx, jetstream.WithPurgeSubject("$KV."+b.name+"."+name), before); err != nil {
				return n, b.wrap("sweep", err)
			}
			continue
		}
		if e, err := decode(got.Value()); err != nil || !e.Ended(now) {
			continue
		}
		if kv.Purge(ctx, name, jetstream.LastRevision(got.Revision())) == nil { // else somebody was quicker
			n++
		}
	}
	return n, nil
}

// wrap says what was tried, in words of ours where that helps.
func (b *Bucket) wrap(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, jetstream.ErrBucketNotFound), errors.Is(err, jetstream.ErrStreamNotFound):
		err = ErrNoBucket
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, jetstream.ErrJetStreamNotEnabled):
		err = fmt.Errorf("JetStream does not answer; is it enabled on the server? (%w)", err)
	}
	return fmt.Errorf("%s bucket %s: %w", what, b.name, err)
}
