package signature

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nkeys"
)

// MostPublicKeys is how many public keys a Verifier has: the one in use, and while keys are changed
// the next one.
const MostPublicKeys = 2

// ParsePublicKeys reads public keys with commas between.
func ParsePublicKeys(text string) ([]string, error) {
	var keys []string
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		if !nkeys.IsValidPublicAccountKey(part) { // not quoted: it may be a seed
			return nil, errors.New("want public keys that begin with A, with commas between")
		}
		keys = append(keys, part)
	}
	if len(keys) > MostPublicKeys {
		return nil, fmt.Errorf("%d public keys: want at most %d", len(keys), MostPublicKeys)
	}
	return keys, nil
}

// ClockTolerance is how long after its end a value is still taken: clocks are wrong at times, and
// corrected. What ends at a certain moment says so in the value itself.
const ClockTolerance = 24 * time.Hour

// Verifier takes values that count, by public keys of one kind, and remembers the newest of each
// bucket's key, so that no older one counts again as long as the process lives. All readers of a
// process share one. It is safe for concurrent use.
type Verifier struct {
	pairs map[string]nkeys.KeyPair
	log   *slog.Logger

	mu       sync.Mutex
	held     map[place]Held
	pruneAt  int // entries of held
	refusals int64
	unsaid   int64 // refusals since the last line in the log
	saidAt   time.Time
}

type place struct{ bucket, key string }

// Found is a value as it was found in a bucket.
type Found struct {
	Bucket, Key string
	// Value is the signed value, and Text its signature, "" if there is none.
	Value []byte
	Text  string
	// Raw is the bucket's whole value, signature included, and Written when it came there.
	// [Verifier.Take] alone wants them. It keeps Raw, which must not be changed.
	Raw     []byte
	Written time.Time
}

// Held is a value that was taken, as it was found.
type Held struct {
	Signature
	Raw     []byte
	Written time.Time
}

// NewVerifier returns a verifier that trusts these public keys. It logs refusals once in a while;
// log may be nil.
func NewVerifier(log *slog.Logger, publicKeys ...string) (*Verifier, error) {
	if len(publicKeys) == 0 || len(publicKeys) > MostPublicKeys {
		return nil, fmt.Errorf("%d public keys: want 1 to %d", len(publicKeys), MostPublicKeys)
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	v := &Verifier{log: log, pruneAt: firstPrune,
		pairs: make(map[string]nkeys.KeyPair), held: make(map[place]Held)}
	for _, public := range publicKeys {
		pair, err := nkeys.FromPublicKey(public)
		if err != nil || !nkeys.IsValidPublicAccountKey(public) {
			return nil, errors.New("not a public key: want one that begins with A")
		}
		v.pairs[public] = pair
	}
	return v, nil
}

// Trusts says whether what this public key's owner signs is taken.
func (v *Verifier) Trusts(public string) bool { return v.pairs[public] != nil }

// Verify checks the signature of a value, and remembers nothing. The error is an ErrRefused.
func (v *Verifier) Verify(f Found, now time.Time) (Signature, error) {
	s, err := Parse(f.Bucket, f.Key, f.Text)
	if err != nil {
		return Signature{}, err
	}
	pair := v.pairs[s.By]
	switch {
	case pair == nil:
		return Signature{}, errStranger
	case pair.Verify(s.signed(f.Value), s.bytes) != nil:
		return Signature{}, errForged
	case s.past(now):
		return Signature{}, ErrExpired
	}
	return s, nil
}

// past says whether it has expired, by any clock that is tolerable.
func (c Claims) past(now time.Time) bool {
	return !c.Expires.IsZero() && now.After(c.Expires.Add(ClockTolerance))
}

// Take verifies a value that is to be in force, and also refuses one that is older than the value
// taken before. The error is ErrOutrun if another reader was quicker, which is normal. A value may
// be taken again. The caller reports refusals with [Verifier.Refuse].
func (v *Verifier) Take(f Found, now time.Time) (Signature, error) {
	at := place{f.Bucket, f.Key}
	v.mu.Lock()
	before, ok := v.held[at]
	v.mu.Unlock()
	if ok && bytes.Equal(f.Raw, before.Raw) { // it was verified
		return before.Signature, nil
	}
	s, err := v.Verify(f, now)
	if err != nil {
		return Signature{}, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if before, ok := v.held[at]; ok && s.Version <= before.Version {
		switch {
		case bytes.Equal(f.Raw, before.Raw): // another reader was quicker
			return s, nil
		case f.Written.Before(before.Written):
			return Signature{}, ErrOutrun
		}
		return Signature{}, errOlder
	}
	v.held[at] = Held{s, f.Raw, f.Written}
	if len(v.held) >= v.pruneAt {
		v.pruneLocked(now)
	}
	return s, nil
}

// firstPrune is how many values are held before it is looked which have expired.
const firstPrune = 1024

// pruneLocked forgets what would be refused for its age anyway.
func (v *Verifier) pruneLocked(now time.Time) {
	maps.DeleteFunc(v.held, func(_ place, of Held) bool { return of.past(now) })
	v.pruneAt = max(firstPrune, 2*len(v.held))
}

// Held returns the newest value of a bucket's key, if one was taken and counts still.
func (v *Verifier) Held(bucket, key string, now time.Time) (Held, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	held, ok := v.held[place{bucket, key}]
	return held, ok && !held.past(now)
}

// All returns the newest values of a bucket that count still, in no order.
func (v *Verifier) All(bucket string, now time.Time) []Held {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.pruneLocked(now)
	elsewhere := func(h Held) bool { return h.Bucket != bucket }
	return slices.DeleteFunc(slices.Collect(maps.Values(v.held)), elsewhere)
}

// sayEvery bounds the lines about refusals in the log: a writer can cause refusals without end.
const sayEvery = 10 * time.Second

// Refuse counts that something which was found in this place did not count, unless it was
// ErrOutrun, and logs it if that was not done just now.
func (v *Verifier) Refuse(bucket, key string, why error) {
	if errors.Is(why, ErrOutrun) {
		return
	}
	v.mu.Lock()
	v.refusals++
	v.unsaid++
	count, now := v.unsaid, time.Now()
	say := v.saidAt.IsZero() || now.Sub(v.saidAt) >= sayEvery
	if say {
		v.saidAt, v.unsaid = now, 0
	}
	v.mu.Unlock()
	if say {
		v.log.Error("a value in a NATS bucket does not count, and what is in force stays: "+
			"somebody without the signing key has written",
			"bucket", bucket, "key", key, "error", why, "since_last", count)
	}
}

// Refusals is how often Refuse was called.
func (v *Verifier) Refusals() int64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.refusals
}
