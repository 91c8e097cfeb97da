// Package natssource keeps a fleet's rules in a NATS JetStream key-value bucket, and watches them
// there.
//
// The bucket is called NAMESPACE-rules; the set's text is the value of its one key, "rules". The
// bucket numbers what is written: a *revision*. It remembers the last 64. Who writes says which
// revision was read before, and is refused if somebody else has written meanwhile. The bucket is
// made by the first write.
//
// Sets can be signed (package signature): the signature is a comment, the text's last line. A
// reader with public keys takes the signed set of the highest version, whatever else has been
// written, deleted or purged since.
package natssource

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/offpath-io/offpath/internal/kvwatch"
	"github.com/offpath-io/offpath/pkg/signature"
)

const (
	// Key is the bucket's one key.
	Key = "rules"
	// Remembered is how many revisions a bucket keeps.
	Remembered = 64
	// MaxSize is the most bytes of a set: what NATS takes in one message unless it is told otherwise, 1 MiB, less
	// what the message needs beside them.
	MaxSize = 1<<20 - overhead
	// overhead is more than the signature, the subject and the headers of a write take.
	overhead = 1 << 10
)

// Errors of Bucket, to be told apart by errors.Is.
var (
	// ErrNoRules says that there is no set, or not any more.
	ErrNoRules = errors.New("there are no rules in the bucket")
	// ErrNoBucket says that there is no bucket; it is an ErrNoRules too.
	ErrNoBucket = fmt.Errorf("the bucket does not exist yet: %w", ErrNoRules)
	// ErrNoKey says that a set has to be signed, and that there is no key to do it with.
	ErrNoKey = errors.New("rules have to be signed here, and there is no signing key")
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
	// Data is the set's text without its signature, nil if Deleted. It must not be changed.
	Data []byte
	// Deleted says that with this revision the set was taken away.
	Deleted bool
	// Version is what the set was signed with, and SignedBy the public key; 0 and "" if it is not
	// signed. Nobody has checked them without Options.Verifier.
	Version  uint64
	SignedBy string
	// Raw is the bucket's whole value, signature included. It must not be changed.
	Raw []byte
	// Refused is why it does not count, an error that is signature.ErrRefused; nil if it does, or
	// without Options.Verifier.
	Refused error
}

// Order says which of two sets is the newer one, wherever they are from: when the entry was signed
// or, if it was not, written, in Unix milliseconds, as filesource.File.Revision is of a file.
// Revisions tell that of one bucket only, and as long as it is not lost.
func (e Entry) Order() uint64 {
	if e.Version > 0 {
		return e.Version
	}
	return uint64(max(e.Created.UnixMilli(), 1))
}

// Options of a Bucket. The zero value suits.
type Options struct {
	// Replicas is on how many servers of a cluster a bucket is kept that is made by a write, 1 to 5. Default 1.
	Replicas int
	// Check is about the time between two looks whether a watch has missed anything. Default 10 s.
	Check time.Duration
	// Retry is about the time after which a watch is tried again, while there is no bucket and while it fails.
	// Default 250 ms.
	Retry time.Duration
	// Verifier holds the public keys of those who may write rules: what nobody of them has signed
	// does not count. Nil: everything counts that is in the bucket.
	Verifier *signature.Verifier
	// Key signs what is written. Nil: nothing is signed.
	Key *signature.Key
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

// Get returns the newest set that counts, or an error that is ErrNoRules.
func (b *Bucket) Get(ctx context.Context) (Entry, error) {
	kv, err := b.js.KeyValue(ctx, b.name)
	if err == nil {
		var entry Entry
		if entry, _, err = b.newest(ctx, kv); err == nil {
			return entry, nil
		}
	}
	return Entry{}, b.wrap("get rules from", translate(err))
}

// newest returns the set that counts, or ErrNoRules, and the revision that was written last, 0 if
// none was: whether it counts or not.
func (b *Bucket) newest(ctx context.Context, kv jetstream.KeyValue) (entry Entry, last uint64, err error) {
	if b.options.Verifier == nil {
		got, err := kv.Get(ctx, Key)
		if err != nil {
			return Entry{}, 0, translate(err)
		}
		entry = b.makeEntry(got)
		return entry, entry.Revision, nil
	}
	all, err := b.history(ctx)
	err = translate(err)
	for _, e := range all {
		last = e.Revision
		if e.Refused == nil && e.Version > entry.Version {
			entry = e
		}
	}
	if err == nil && entry.Version == 0 {
		err = ErrNoRules
	}
	return entry, last, err
}

// At returns the set of a revision that the bucket still has. If that is none, or one with which
// the set was deleted, the error is ErrNoRules; if it does not count, one that is
// signature.ErrRefused.
func (b *Bucket) At(ctx context.Context, revision uint64) (Entry, error) {
	kv, err := b.js.KeyValue(ctx, b.name)
	var got jetstream.KeyValueEntry
	if err == nil {
		got, err = kv.GetRevision(ctx, Key, revision)
	}
	if err == nil {
		entry := b.makeEntry(got)
		if entry.Refused == nil {
			return entry, nil
		}
		err = entry.Refused
	}
	return Entry{}, b.wrap(fmt.Sprintf("get revision %d from", revision), translate(err))
}

// History returns the revisions that the bucket still has, oldest first, also those that do not
// count; none is an error that is ErrNoRules.
func (b *Bucket) History(ctx context.Context) ([]Entry, error) {
	_, err := b.js.KeyValue(ctx, b.name)
	var all []Entry
	if err == nil {
		all, err = b.history(ctx)
	}
	if err != nil {
		return nil, b.wrap("list revisions of", translate(err))
	}
	return all, nil
}

func (b *Bucket) history(ctx context.Context) ([]Entry, error) {
	all, err := kvwatch.All(ctx, b.conn, b.name)
	var entries []Entry
	for _, one := range all {
		if one.Key() == Key {
			entries = append(entries, b.makeEntry(one))
		}
	}
	if err == nil && len(entries) == 0 {
		err = jetstream.ErrKeyNotFound
	}
	return entries, err
}

func (b *Bucket) makeEntry(got jetstream.KeyValueEntry) Entry {
	e := Entry{Revision: got.Revision(), Created: got.Created(), Deleted: got.Operation() != jetstream.KeyValuePut}
	v := b.options.Verifier
	if e.Deleted {
		if v != nil {
			e.Refused = signature.ErrDeleted
		}
		return e
	}
	text, signed := split(got.Value())
	e.Data, e.Raw = text, got.Value()
	if s, err := signature.Parse(b.name, Key, signed); err == nil {
		e.Version, e.SignedBy = s.Version, s.By
	}
	if v != nil {
		_, e.Refused = v.Verify(signature.Found{Bucket: b.name, Key: Key, Value: text, Text: signed}, time.Now())
	}
	return e
}

// Restore returns the entry of a set that was kept elsewhere as it was in the namespace's bucket:
// of before, only Revision, Created and Raw count. With a verifier, nil if nothing is signed, it
// counts as if it had been read from the bucket; the error is one that is signature.ErrRefused.
func Restore(namespace string, v *signature.Verifier, before Entry) (Entry, error) {
	text, signed := split(before.Raw)
	e := Entry{Revision: before.Revision, Created: before.Created, Data: text, Raw: before.Raw}
	if s, err := signature.Parse(Name(namespace), Key, signed); err == nil {
		e.Version, e.SignedBy = s.Version, s.By
	}
	if v == nil {
		return e, nil
	}
	_, err := v.Take(signature.Found{
		Bucket: Name(namespace), Key: Key, Value: text, Text: signed, Raw: before.Raw, Written: before.Created,
	}, time.Now())
	return e, err
}

// mark is what comes between a set's text and the signature's. The line's end that it begins with
// is not the text's.
const mark = "\n# offpath-signature: "

// join makes the bucket's value of a set's text and its signature's.
func join(text []byte, signed string) []byte {
	return slices.Concat(text, []byte(mark), []byte(signed), []byte("\n"))
}

// split takes a bucket's value apart; the signature is "" if there is none.
func split(value []byte) (text []byte, signed string) {
	i := bytes.LastIndex(value, []byte(mark))
	if i < 0 {
		return value, ""
	}
	line, found := strings.CutSuffix(string(value[i+len(mark):]), "\n")
	if !found || strings.Contains(line, "\n") { // it is a comment of the text's own
		return value, ""
	}
	return value[:i:i], line
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

// Digest tells sets' texts apart: 12 hexadecimal digits of their SHA-256.
func Digest(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:6])
}
