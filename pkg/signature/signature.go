// Package signature signs values of NATS buckets and verifies them, so that values of other writers
// do not count.
//
// The accounts of the server decide about writing into a bucket; signatures decide about what is in
// force. A writer has a [Key], and signs with each value its bucket, its key, the operation, a
// version and the time at which it expires. A reader has a [Verifier], which holds public keys
// only: it takes values signed with one of them, and of two values of a key the one with the higher
// version. An unsigned value, a deletion or an older version changes nothing.
//
// Keys are Ed25519, written as NATS writes the keys of accounts: a private one is a seed that
// begins with SA, a public one begins with A. No user of NATS can log in with such a key, so none
// is asked to sign a server's challenge with it.
package signature

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nkeys"
)

// Operation is what a signed value does.
type Operation string

// The operations.
const (
	// Put puts a value in force.
	Put Operation = "put"
	// Lift takes what was put before out of force.
	Lift Operation = "lift"
)

// Claims are signed together with the value.
type Claims struct {
	// Bucket and Key are where the value belongs.
	Bucket, Key string
	Operation   Operation
	// Version rises with each value of a key. [NextVersion] makes one.
	Version uint64
	// Expires is when the value stops to count, to the millisecond; zero is never.
	Expires time.Time
}

// NextVersion is a version after that of the value before, 0 if there is none: the time in Unix
// milliseconds, or more.
func NextVersion(before uint64, now time.Time) uint64 {
	return max(before+1, uint64(max(now.UnixMilli(), 1)))
}

// ErrRefused is what the errors of values that do not count are.
var ErrRefused = errors.New("refused")

// Errors that say why, all of which are ErrRefused.
var (
	// ErrExpired says that a value was good once.
	ErrExpired = fmt.Errorf("%w: it has expired", ErrRefused)
	// ErrOutrun says that a newer value, which came into the bucket later, has been taken already.
	ErrOutrun = fmt.Errorf("%w: there is a newer one", ErrRefused)
	// ErrDeleted says that the value was deleted: a deletion cannot be signed.
	ErrDeleted = fmt.Errorf("%w: a deletion is not signed", ErrRefused)

	errUnsigned = fmt.Errorf("%w: it is not signed", ErrRefused)
	errText     = fmt.Errorf("%w: its signature cannot be read", ErrRefused)
	errStranger = fmt.Errorf("%w: it is signed with a key that is not trusted here", ErrRefused)
	errForged   = fmt.Errorf("%w: its signature is of something else", ErrRefused)
	errOlder    = fmt.Errorf("%w: it is not newer than what is in force", ErrRefused)
)

// signed is what a signature is of. No field but the value can have a line's end in it, so no two
// differ and read the same.
func (c Claims) signed(value []byte) []byte {
	claims := fmt.Appendf(nil, "offpath-signature-1\n%s\n%s\n%s\n%d\n%d\n",
		c.Bucket, c.Key, c.Operation, c.Version, c.expires())
	return append(claims, value...)
}

// expires is Expires in Unix milliseconds, 0 for never.
func (c Claims) expires() int64 {
	if c.Expires.IsZero() {
		return 0
	}
	return c.Expires.UnixMilli()
}

// format is the first part of each signature's text: the form of those that this version makes and
// knows.
const format = "1"

// text returns a signature as it is stored beside a value: claims, public key and signature.
// Bucket and key are not in it: the reader knows where it has read.
func (c Claims) text(public string, signature []byte) string {
	return fmt.Sprintf("%s.%s.%d.%d.%s.%s", format, c.Operation, c.Version, c.expires(), public,
		base64.RawURLEncoding.EncodeToString(signature))
}

// mostText is the most bytes of a signature's text.
const mostText = 256

// Signature is a signature that has been read, and not verified.
type Signature struct {
	Claims
	// By is the public key that it says it is by.
	By    string
	bytes []byte
}

// Parse reads the text of a signature of a value in this place. It checks nothing but its form; the
// error is an ErrRefused.
func Parse(bucket, key, text string) (Signature, error) {
	parts := strings.Split(text, ".")
	switch {
	case text == "":
		return Signature{}, errUnsigned
	case len(text) > mostText || len(parts) != 6 || parts[0] != format:
		return Signature{}, errText
	}
	version, errVersion := strconv.ParseUint(parts[2], 10, 64)
	expires, errExpires := strconv.ParseInt(parts[3], 10, 64)
	bytes, errBytes := base64.RawURLEncoding.DecodeString(parts[5])
	claims := Claims{Bucket: bucket, Key: key, Operation: Operation(parts[1]), Version: version}
	s := Signature{claims, parts[4], bytes}
	if expires > 0 {
		s.Expires = time.UnixMilli(expires)
	}
	if errors.Join(errVersion, errExpires, errBytes) != nil || s.text(s.By, bytes) != text ||
		s.Operation != Put && s.Operation != Lift {
		return Signature{}, errText
	}
	return s, nil
}

// Key signs values. It is safe for concurrent use.
type Key struct {
	pair   nkeys.KeyPair
	public string
}

// NewKey makes a key up.
func NewKey() (*Key, error) {
	pair, err := nkeys.CreateAccount()
	if err != nil {
		return nil, err
	}
	return newKey(pair)
}

// errSeed does not quote the content, which may be another secret.
var errSeed = errors.New("no signing key in it (want a seed that begins with SA, as " +
	"\"offpath keygen\" makes them)")

// ParseKey finds a key's seed in a file's content: the line that begins with SA.
func ParseKey(content []byte) (*Key, error) {
	pair, err := nkeys.ParseDecoratedNKey(content)
	if err != nil {
		return nil, errSeed
	}
	return newKey(pair)
}

func newKey(pair nkeys.KeyPair) (*Key, error) {
	public, err := pair.PublicKey()
	if err != nil || !nkeys.IsValidPublicAccountKey(public) {
		return nil, errSeed
	}
	return &Key{pair, public}, nil
}

// Seed is the key's secret as text, which ParseKey reads.
func (k *Key) Seed() (string, error) {
	seed, err := k.pair.Seed()
	return string(seed), err
}

// Public is the key by which others check what this one has signed.
func (k *Key) Public() string { return k.public }

// Sign returns the text of a signature of the value.
func (k *Key) Sign(c Claims, value []byte) (string, error) {
	signature, err := k.pair.Sign(c.signed(value))
	if err != nil {
		return "", fmt.Errorf("sign a value: %w", err)
	}
	return c.text(k.public, signature), nil
}
