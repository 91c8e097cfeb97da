// Package natssource keeps a fleet's rules in a NATS JetStream key-value bucket, and watches them there.
//
// The bucket is called NAMESPACE-rules; the set's text is the value of its one key, "rules". The bucket numbers what is
// written: a *revision*. It remembers the last 64. Who writes says which revision was read before, and is refused if somebody
// else has written meanwhile. The bucket is made by the first write.
package natssource

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/offpath-io/offpath/pkg/internal/kvwatch"
)

const (
	// Key is the bucket's one key.
	Key = "rules"
	// Remembered is how many revisions a bucket keeps.
	Remembered = 64
	// MaxSize is the most bytes of a set: what NATS takes in one message unless it is told otherwise, 1 MiB, less
	// what the message needs beside them.
	MaxSize = 1<<20 - overhead
	// overhead is more than the subject and the headers of a write take.
	overhead = 1 << 10
)

// Errors of Bucket, to be told apart by errors.Is.
var (
	// ErrNoRules says that there is no set, or not any more.
	ErrNoRules = errors.New("there are no rules in the bucket")
	// ErrNoBucket says that there is no bucket; it is an ErrNoRules too.
	ErrNoBucket = fmt.Errorf("the bucket does not exist yet: %w", ErrNoRules)
	// ErrTooLarge says that a set is longer than MaxSize, or than what the server takes.
	ErrTooLarge = errors.New("too large")
)

// ConflictError says that a set was not written, because the bucket does not hold the revision that the writer
// expected.
type ConflictError struct {
	// Expected and Found are revisions; 0 is no set.
	Expected, Found uint64
}

// Error names both.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("%s was expected to be there, and %s is: somebody else has written", revision(e.Expected), revision(e.Found))
}

func revision(n uint64) string {
	if n == 0 {
		return "no set"
	}
	return fmt.Sprintf("revision %d", n)
}

// Entry is one revision.
type Entry struct {
	Revision uint64
	// Created is when it was written, by the server's clock.
	Created time.Time
	// Data is the set's text, nil if Deleted. It must not be changed.
	Data []byte
	// Deleted says that with this revision the set was taken away.
	Deleted bool
}

// Order says which of two sets is the newer one, wherever they are from: when the entry was written, in Unix milliseconds, as
// filesource.File.Revision is of a file. Revisions tell that of one bucket only, and as long as it is not lost.
func (e Entry) Order() uint64 { return uint64(max(e.Created.UnixMilli(), 1)) }

// Options of a Bucket. The zero value suits.
type Options struct {
	// Replicas is on how many servers of a cluster a bucket is kept that is made by a write, 1 to 5. Default 1.
	Replicas int
	// Check is about the time between two looks whether a watch has missed anything. Default 10 s.
	Check time.Duration
	// Retry is about the time after which a watch is tried again, while there is no bucket and while it fails.
	// Default 250 ms.
	Retry time.Duration
}

// Bucket is the rules' bucket of one fleet. It is safe for concurrent use.
type Bucket struct {
	conn    *nats.Conn
	js      jetstream.JetStream
	name    string
	changes string // the subject at which the bucket tells of what is written
	options Options
}

// New returns the bucket of the namespace, without asking whether it is there. The connection stays the caller's.
func New(conn *nats.Conn, namespace string, o Options) (*Bucket, error) {
	if o.Replicas == 0 {
		o.Replicas = 1
	}
	if o.Check <= 0 {
		o.Check = 10 * time.Second
	}
	if o.Retry <= 0 {
		o.Retry = 250 * time.Millisecond
	}
	js, err := jetstream.New(conn)
	if err != nil {
		return nil, fmt.Errorf("use JetStream: %w", err)
	}
	return &Bucket{conn: conn, js: js, name: Name(namespace), changes: namespace + ".stored.v1.rules", options: o}, nil
}

// Name is the name of a namespace's bucket.
func Name(namespace string) string { return namespace + "-rules" }

// Name is the bucket's name.
func (b *Bucket) Name() string { return b.name }

// Get returns the newest set, or an error that is ErrNoRules.
func (b *Bucket) Get(ctx context.Context) (Entry, error) {
	entry, err := b.newest(ctx)
	if err != nil {
		return Entry{}, b.wrap("get rules from", err)
	}
	return entry, nil
}

// newest is Get with bare errors.
func (b *Bucket) newest(ctx context.Context) (Entry, error) {
	kv, err := b.js.KeyValue(ctx, b.name)
	if err != nil {
		return Entry{}, translate(err)
	}
	return entryOf(kv.Get(ctx, Key))
}

// At returns the set of a revision that the bucket still has. If that is none, or one with which the set was deleted, the error is ErrNoRules.
func (b *Bucket) At(ctx context.Context, revision uint64) (Entry, error) {
	kv, err := b.js.KeyValue(ctx, b.name)
	if err == nil {
		var entry Entry
		if entry, err = entryOf(kv.GetRevision(ctx, Key, revision)); err == nil {
			return entry, nil
		}
	}
	return Entry{}, b.wrap(fmt.Sprintf("get revision %d from", revision), translate(err))
}

// History returns the revisions that the bucket still has, oldest first; none is an error that is ErrNoRules.
func (b *Bucket) History(ctx context.Context) ([]Entry, error) {
	_, err := b.js.KeyValue(ctx, b.name)
	var all []jetstream.KeyValueEntry
	if err == nil {
		all, err = kvwatch.All(ctx, b.conn, b.name)
	}
	var entries []Entry
	for _, one := range all {
		if one.Key() == Key {
			entries = append(entries, makeEntry(one))
		}
	}
	if err == nil && len(entries) == 0 {
		err = jetstream.ErrKeyNotFound
	}
	if err != nil {
		return nil, b.wrap("list revisions of", translate(err))
	}
	return entries, nil
}

// entryOf takes what the library returns for one entry. One that was deleted is an error to it.
func entryOf(got jetstream.KeyValueEntry, err error) (Entry, error) {
	if err != nil {
		return Entry{}, translate(err)
	}
	return makeEntry(got), nil
}

func makeEntry(got jetstream.KeyValueEntry) Entry {
	e := Entry{Revision: got.Revision(), Created: got.Created(), Deleted: got.Operation() != jetstream.KeyValuePut}
	if !e.Deleted {
		e.Data = got.Value()
	}
	return e
}

// translate makes the library's errors ours.
func translate(err error) error {
	switch {
	case errors.Is(err, jetstream.ErrBucketNotFound), errors.Is(err, jetstream.ErrStreamNotFound):
		return ErrNoBucket
	case errors.Is(err, jetstream.ErrKeyNotFound), errors.Is(err, jetstream.ErrKeyDeleted):
		return ErrNoRules
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, jetstream.ErrJetStreamNotEnabled):
		return fmt.Errorf("JetStream does not answer; is it enabled on the server? (%w)", err)
	}
	return err
}

func (b *Bucket) wrap(what string, err error) error {
	return fmt.Errorf("%s bucket %s: %w", what, b.name, err)
}
