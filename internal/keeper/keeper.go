// Package keeper keeps the last good rules.
//
// A source (packages filesource and natssource) offers bytes whenever they change, and tells when it
// cannot be read. A [Keeper] reads the bytes, hands the set on if it is good, and remembers why if it is
// not; the set before stays in force then. It says at any time what is in force and what was refused,
// for metrics and for those who look.
package keeper

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/offpath-io/offpath/pkg/rules"
)

// Options make a Keeper. Only Use is required.
type Options struct {
	// Use puts a set in force. It is called by one goroutine at a time, and must not call the Keeper. An
	// error refuses the set.
	Use func(set *rules.Set, revision uint64) error
	// Read makes a set of a source's bytes, which it must not keep. Default rules.Parse.
	Read func(data []byte) (*rules.Set, error)
	// Now is the time. Default time.Now.
	Now func() time.Time
}

// Keeper keeps the last good rules. Its methods may be called from any goroutine.
type Keeper struct {
	options Options

	using sync.Mutex // held through a whole Offer, so that sets come into force in the order of their calls
	mu    sync.Mutex
	state State
}

// State is what a Keeper knows.
type State struct {
	// Revision is the source's number of the set in force: a bucket's revision, a file's time in Unix
	// milliseconds. 0 together with a zero Loaded: none is in force yet.
	Revision uint64
	// Digest tells sets' bytes apart: 12 hexadecimal digits of their SHA-256.
	Digest string
	// Rules is how many rules the set has.
	Rules int
	// Loaded is when it came into force.
	Loaded time.Time
	// Refused is the newest set that was refused since then, nil if none was.
	Refused *Refusal
	// Trouble is why the source cannot be read now, nil if it can, as far as is known.
	Trouble error
	// Loads and Refusals count sets that came into force, and sets that were refused.
	Loads, Refusals int64
}

// Refusal is a set that was not good.
type Refusal struct {
	Revision uint64
	At       time.Time
	// Line and Column count from 1; they are 0 if there is no one place to point at.
	Line, Column int
	// Err says where and why.
	Err error
}

// New returns a Keeper that has nothing yet.
func New(o Options) *Keeper {
	if o.Read == nil {
		o.Read = rules.Parse
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Keeper{options: o}
}

// Offer puts the set in force that the bytes say, or returns why it is refused; the one before stays
// then. That the source could be read ends its trouble. The revision is taken as it is, even if it is lower than the
// one before: a bucket that was lost and made anew starts again.
func (k *Keeper) Offer(revision uint64, data []byte) error {
	k.using.Lock()
	defer k.using.Unlock()
	set, err := k.read(data)
	if err == nil {
		err = k.options.Use(set, revision)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	s := &k.state
	s.Trouble = nil
	if err != nil {
		s.Refusals++
		s.Refused = refusal(revision, k.options.Now(), err)
		return err
	}
	s.Loads++
	s.Refused = nil
	s.Revision, s.Digest, s.Loaded = revision, Digest(data), k.options.Now()
	s.Rules = len(set.Rules())
	return nil
}

// read does not let a reader's panic end the process that the last good set still serves.
func (k *Keeper) read(data []byte) (set *rules.Set, err error) {
	defer func() {
		if p := recover(); p != nil {
			set, err = nil, fmt.Errorf("cannot be read: %v", p)
		}
	}()
	return k.options.Read(data)
}

func refusal(revision uint64, at time.Time, err error) *Refusal {
	r := &Refusal{Revision: revision, At: at, Err: err}
	if place, ok := errors.AsType[*rules.Error](err); ok {
		r.Line, r.Column = place.Line, place.Column
	}
	return r
}

// Trouble notes why the source cannot be read; nil that it can be again. What is in force stays.
func (k *Keeper) Trouble(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.state.Trouble = err
}

// State is what the Keeper knows now. The Refusal is shared, and must not be changed.
func (k *Keeper) State() State {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.state
}

// InForce reports whether a good set has come into force.
func (s State) InForce() bool { return !s.Loaded.IsZero() }

// String says it in one line, such as "revision 7, refused: line 3, column 12: limit: …".
func (s State) String() string {
	text := "none yet"
	if s.InForce() {
		text = fmt.Sprintf("revision %d", s.Revision)
	}
	if s.Refused != nil {
		text += ", refused: " + s.Refused.Err.Error()
	}
	if s.Trouble != nil {
		text += ", source: " + s.Trouble.Error()
	}
	return text
}

// Digest is a set's bytes in short: 12 hexadecimal digits of their SHA-256.
func Digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:6])
}
