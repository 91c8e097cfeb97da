package offpath

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/offpath-io/offpath/internal/natssource"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/rules/envoyrules"
)

// RulesState says which rules are in force, and what became of others.
type RulesState struct {
	// Revision is the source's number of the set in force: a bucket's revision, or the time of
	// modification, in Unix milliseconds, of the file of rules, or of the executable if the rules
	// are Options.Rules. 0 together with a zero Loaded: none is in force yet.
	Revision uint64
	// Digest tells sets' texts apart: 12 hexadecimal digits of their SHA-256.
	Digest string
	// Rules is how many rules the set has.
	Rules int
	// Loaded is when it came into force, by this machine's clock.
	Loaded time.Time
	// Refused is why the newest set is not in force; nil if it is. It is a *rules.Error, with line
	// and column, if the text is at fault.
	Refused error
	// Trouble is why the source cannot be read now; nil if it can, as far as is known.
	Trouble error
	// Loads and Refusals count sets that came into force, and sets that were refused.
	Loads, Refusals int64
}

// InForce reports whether there are rules.
func (s RulesState) InForce() bool { return !s.Loaded.IsZero() }

// String is one line, such as "revision 7, refused: line 3, column 12: limit: …".
func (s RulesState) String() string {
	text := "none yet"
	if s.InForce() {
		text = fmt.Sprintf("revision %d", s.Revision)
	}
	if s.Refused != nil {
		text += ", refused: " + s.Refused.Error()
	}
	if s.Trouble != nil {
		text += ", source: " + s.Trouble.Error()
	}
	return text
}

// readRules reads the rules of some files, all together.
type readRules func(...envoyrules.File) (*rules.Set, []envoyrules.Warning, error)

// inShadow reads the same rules, and puts each of them in shadow.
func inShadow(read readRules) readRules {
	return func(files ...envoyrules.File) (*rules.Set, []envoyrules.Warning, error) {
		set, warnings, err := read(files...)
		if err != nil {
			return nil, nil, err
		}
		list := make([]rules.Rule, 0, len(set.Rules()))
		for _, r := range set.Rules() {
			shadow := *r
			shadow.Shadow = true
			list = append(list, shadow)
		}
		set, err = rules.NewSet(list...)
		return set, warnings, err
	}
}

// reloadable is a checker whose rules and blocks change while it runs. There is none before the
// first good set: nothing could be decided then, and to admit everything would be a limit that
// silently does not apply. The last good set stays in force while others are refused.
type reloadable struct {
	log     *slog.Logger
	read    readRules
	create  func(set *rules.Set, revision uint64) (*check.Checker, error)
	begin   func(*check.Checker) error // nil: nothing
	checker atomic.Pointer[check.Checker]
	made    chan struct{} // closed when there is a checker

	offering sync.Mutex // held through an offer: sets come into force in the order of offers
	revision uint64     // the checker's

	mu    sync.Mutex
	state RulesState

	blocksMu sync.Mutex // held while a checker begins, too, so that it misses none
	blocks   []check.Block
}

func newReloadable(
	create func(*rules.Set, uint64) (*check.Checker, error), begin func(*check.Checker) error,
	log *slog.Logger,
) *reloadable {
	return &reloadable{
		log: log, read: envoyrules.ReadFiles, create: create, begin: begin, made: make(chan struct{}),
	}
}

// offer puts the set of some files in force, all together, or returns why it is refused, which it
// also logs. The revision is the source's, and taken as it is: a bucket that was lost and made
// again starts anew.
//
// The order is when the set was written, in Unix milliseconds. It makes the checker's revision,
// since it can be compared while some checkers of a fleet read a file, and others a bucket. It may
// go back: a file may be replaced by an older one. To the checker the newest set is the one that
// came last, so it gets a higher number all the same.
func (r *reloadable) offer(revision, order uint64, files ...envoyrules.File) error {
	r.offering.Lock()
	defer r.offering.Unlock()
	set, warnings, err := r.parse(files)
	if err == nil {
		higher := max(order, r.revision+1)
		if err = r.use(set, higher); err == nil {
			r.revision = higher
		}
	}
	s := r.note(revision, set, files, err)
	switch {
	case err == nil:
		r.log.Info("rules in force", "revision", s.Revision, "rules", s.Rules, "digest", s.Digest)
		for _, w := range warnings {
			r.log.Warn("rules in force, but not as they may be meant", "warning", w.String())
		}
	case s.InForce():
		r.log.Error("rules refused: the one before stays in force",
			"revision", revision, "error", err)
	default:
		r.log.Error("rules refused: none is in force", "revision", revision, "error", err)
	}
	return err
}

// parse does not let a parser's panic end the process that the last good set still serves.
func (r *reloadable) parse(
	files []envoyrules.File,
) (set *rules.Set, warnings []envoyrules.Warning, err error) {
	defer func() {
		if p := recover(); p != nil {
			set, err = nil, fmt.Errorf("cannot be read: %v", p)
		}
	}()
	return r.read(files...)
}

// use puts a set in force at the checker, or makes one.
func (r *reloadable) use(set *rules.Set, revision uint64) error {
	if c := r.checker.Load(); c != nil {
		return c.SetRules(set, revision)
	}
	c, err := r.create(set, revision)
	if err != nil {
		return err
	}
	r.blocksMu.Lock()
	defer r.blocksMu.Unlock()
	c.SetBlocks(r.blocks)
	if r.begin != nil {
		if err := r.begin(c); err != nil {
			return err
		}
	}
	r.checker.Store(c)
	close(r.made)
	return nil
}

// note writes down what became of an offer.
func (r *reloadable) note(
	revision uint64, set *rules.Set, files []envoyrules.File, err error,
) RulesState {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &r.state
	s.Trouble, s.Refused = nil, err // that there was an offer ends the source's trouble
	if err != nil {
		s.Refusals++
		return *s
	}
	s.Loads++
	s.Revision, s.Digest, s.Rules = revision, digestOf(files), len(set.Rules())
	s.Loaded = time.Now()
	return *s
}

// digestOf is the digest of the text, or of several as one.
func digestOf(files []envoyrules.File) string {
	texts := make([][]byte, len(files))
	for i, f := range files {
		texts[i] = f.Data
	}
	return natssource.Digest(natssource.OneText(texts...))
}

// trouble notes why the source cannot be read; nil that it can be again. The rules in force stay.
func (r *reloadable) trouble(err error) {
	r.mu.Lock()
	r.state.Trouble = err
	r.mu.Unlock()
	if err != nil {
		r.log.Warn("waiting for rules", "error", err)
		return
	}
	r.log.Info("rules can be read again")
}

// now is what is known of the rules.
func (r *reloadable) now() RulesState {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state
}

// block puts blocks in force, in place of those before.
func (r *reloadable) block(list []check.Block) {
	r.blocksMu.Lock()
	defer r.blocksMu.Unlock()
	r.blocks = list
	if c := r.checker.Load(); c != nil {
		c.SetBlocks(list)
	}
}

// stats are the checker's, empty while there is none.
func (r *reloadable) stats() check.Stats {
	if c := r.checker.Load(); c != nil {
		return c.Stats()
	}
	return check.Stats{}
}

// fleetNow is the fleet's time, as far as the checker knows it.
func (r *reloadable) fleetNow() time.Time { return time.Now().Add(r.stats().ClockOffset) }
