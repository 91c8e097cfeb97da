// Package natssource keeps a fleet's rules in a NATS JetStream key-value bucket, and watches them
// there.
//
// The bucket is called NAMESPACE-rules; the text of the rules is the value of its one key, "rules".
// The bucket numbers the writes: a *revision*. It keeps the last 64. A writer names the revision
// that it has read, and is refused if another writer was quicker. The first write creates the
// bucket.
//
// Rules can be signed (package signature): the signature is a comment, the last line of the text. A
// reader with public keys takes the signed rules of the highest version, whatever else has been
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

	"github.com/offpath-io/offpath/internal/diskcache"
	"github.com/offpath-io/offpath/internal/kvwatch"
	"github.com/offpath-io/offpath/pkg/signature"
)

const (
	// Key is the bucket's one key.
	Key = "rules"
	// Remembered is how many revisions a bucket keeps.
	Remembered = 64
	// MaxSize is the most bytes of a set: NATS' default bound of a message, 1 MiB, less overhead.
	MaxSize = 1<<20 - overhead
	// overhead bounds the signature, the subject and the headers of a write.
	overhead = 1 << 10
)

// Errors of Bucket, to be told apart by errors.Is.
var (
	// ErrNoRules says that there is no set, or no longer one.
	ErrNoRules = errors.New("there are no rules in the bucket")
	// ErrNoBucket says that there is no bucket; it is an ErrNoRules too.
	ErrNoBucket = fmt.Errorf("the bucket does not exist yet: %w", ErrNoRules)
	// ErrNoKey says that a set has to be signed, and that there is no signing key.
	ErrNoKey = errors.New("rules have to be signed here, and there is no signing key")
	// ErrTooLarge says that a set is longer than MaxSize, or than the server accepts.
	ErrTooLarge = errors.New("too large")
)

// ConflictError says that a set was not written, because the bucket does not hold the revision that
// the writer expected.
type ConflictError struct {
	// Expected and Found are revisions; 0 is no set.
	Expected, Found uint64
}

// Error names both.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("%s was expected to be there, and %s is: somebody else has written",
		revision(e.Expected), revision(e.Found))
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
	// Created is when the set was written, by the server's clock.
	Created time.Time
	// Data is the set's text without its signature, nil if Deleted. It must not be changed.
	Data []byte
	// Deleted says that this revision deleted the set.
	Deleted bool
	// Version is the version of the signature, and SignedBy its public key; 0 and "" if the set is
	// not signed. Without Options.Verifier they are not verified.
	Version  uint64
	SignedBy string
	// Raw is the bucket's whole value, signature included. It must not be changed.
	Raw []byte
	// Refused says why the entry is not trusted, by an error that wraps signature.ErrRefused; nil
	// if it is trusted, and without Options.Verifier.
	Refused error
}

// Order is higher for the newer of two sets from any sources: when the entry was signed, or, if it
// is unsigned, written, in Unix milliseconds, as the revision of a file is. Revisions can be
// compared within one bucket only, and until it is lost.
func (e Entry) Order() uint64 {
	if e.Version > 0 {
		return e.Version
	}
	return uint64(max(e.Created.UnixMilli(), 1))
}

// Options of a Bucket. The zero value suits.
type Options struct {
	// Replicas is the number of servers of a cluster that keep a bucket which a write creates, 1 to
	// 5. Default 1.
	Replicas int
	// Check is about the time between two checks for changes that a watch has missed. Default 10 s.
	Check time.Duration
	// Retry is about the delay before a watch without a bucket, or a failed one, starts again.
	// Default 250 ms.
	Retry time.Duration
	// Ask bounds the time until a server answers a request. Default 2 s.
	Ask time.Duration
	// Verifier holds the public keys of those who may write rules: sets that none of them has
	// signed are not trusted. Nil trusts everything in the bucket.
	Verifier *signature.Verifier
	// Key signs the sets that are written. Nil signs nothing.
	Key *signature.Key
}

// Bucket is the rules' bucket of one fleet. It is safe for concurrent use.
type Bucket struct {
	kv      *kvwatch.Bucket
	options Options
}

// New returns the bucket of the namespace, which need not exist. The connection stays the caller's.
func New(conn *nats.Conn, namespace string, o Options) (*Bucket, error) {
	o.Replicas = max(o.Replicas, 1)
	kv, err := kvwatch.New(conn, namespace, "rules", o.Check, o.Retry, o.Ask)
	return &Bucket{kv, o}, err
}

// Name is the name of a namespace's bucket.
func Name(namespace string) string { return namespace + "-rules" }

// Name is the bucket's name.
func (b *Bucket) Name() string { return b.kv.Name }

// Get returns the newest trusted set, or an error that wraps ErrNoRules.
func (b *Bucket) Get(ctx context.Context) (Entry, error) {
	kv, err := b.kv.Get(ctx)
	if err == nil {
		var entry Entry
		if entry, _, err = b.newest(ctx, kv); err == nil {
			return entry, nil
		}
	}
	return Entry{}, b.wrap("get rules from", translate(err))
}

// newest returns the newest trusted set, or ErrNoRules, and the newest revision, trusted or not; 0
// for none.
func (b *Bucket) newest(
	ctx context.Context, kv jetstream.KeyValue,
) (entry Entry, last uint64, err error) {
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

// At returns the set of a revision. The error wraps ErrNoRules if the bucket no longer has the
// revision, or if it deleted the set, and signature.ErrRefused if it is not trusted.
func (b *Bucket) At(ctx context.Context, revision uint64) (Entry, error) {
	kv, err := b.kv.Get(ctx)
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

// History returns the revisions that the bucket still has, oldest first, trusted or not. Without
// any, the error wraps ErrNoRules.
func (b *Bucket) History(ctx context.Context) ([]Entry, error) {
	_, err := b.kv.Get(ctx)
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
	all, err := b.kv.All(ctx)
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
	e := Entry{Revision: got.Revision(), Created: got.Created()}
	e.Deleted = got.Operation() != jetstream.KeyValuePut
	v := b.options.Verifier
	if e.Deleted {
		if v != nil {
			e.Refused = signature.ErrDeleted
		}
		return e
	}
	found := e.read(b.kv.Name, got.Value())
	if v != nil {
		_, e.Refused = v.Verify(found, time.Now())
	}
	return e
}

// read takes the content of a value.
func (e *Entry) read(bucket string, raw []byte) signature.Found {
	text, signed := split(raw)
	e.Data, e.Raw = text, raw
	if s, err := signature.Parse(bucket, Key, signed); err == nil {
		e.Version, e.SignedBy = s.Version, s.By
	}
	return signature.Found{
		Bucket: bucket, Key: Key, Value: text, Text: signed, Raw: raw, Written: e.Created,
	}
}

// Restore returns the entry of a set that was kept elsewhere. A verifier, nil if nothing is signed,
// treats the set as if it had been read from the namespace's bucket; the error then wraps
// signature.ErrRefused.
func Restore(namespace string, v *signature.Verifier, kept diskcache.Value) (e Entry, err error) {
	e = Entry{Revision: kept.Revision, Created: kept.Written}
	found := e.read(Name(namespace), kept.Raw)
	if v != nil {
		_, err = v.Take(found, time.Now())
	}
	return e, err
}

// mark separates the text of a set from its signature. Its first line break does not belong to the
// text.
const mark = "\n# offpath-signature: "

// join makes the value of a text and its signature.
func join(text []byte, signed string) []byte {
	return slices.Concat(text, []byte(mark), []byte(signed), []byte("\n"))
}

// split is the opposite of join; the signature is "" if there is none.
func split(value []byte) (text []byte, signed string) {
	i := bytes.LastIndex(value, []byte(mark))
	if i < 0 {
		return value, ""
	}
	line, found := strings.CutSuffix(string(value[i+len(mark):]), "\n")
	if !found || strings.Contains(line, "\n") { // a comment of the text itself
		return value, ""
	}
	return value[:i:i], line
}

// translate replaces errors of the library by those of this package.
func translate(err error) error {
	if errors.Is(err, jetstream.ErrKeyNotFound) || errors.Is(err, jetstream.ErrKeyDeleted) {
		return ErrNoRules
	}
	return kvwatch.Explain(err, ErrNoBucket)
}

func (b *Bucket) wrap(what string, err error) error {
	return fmt.Errorf("%s bucket %s: %w", what, b.kv.Name, err)
}

// OneText returns the texts of a set's files as documents of one text, without their byte order
// marks; of one file as it is.
func OneText(files ...[]byte) []byte {
	if len(files) == 1 {
		return files[0]
	}
	documents := make([][]byte, len(files))
	for i, f := range files {
		documents[i] = bytes.TrimPrefix(f, []byte("\ufeff"))
	}
	return bytes.Join(documents, []byte("\n---\n"))
}

// Digest tells sets' texts apart: 12 hexadecimal digits of their SHA-256.
func Digest(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:6])
}
