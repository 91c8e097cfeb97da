package main

import (
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/offpath-io/offpath/cmd/checker/door"
	"github.com/offpath-io/offpath/cmd/checker/forwardauth"
	"github.com/offpath-io/offpath/cmd/internal/rulesfile"
	"github.com/offpath-io/offpath/internal/keeper"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/rules"
)

// living is a checker whose rules come and change while the daemon runs. There is none before the first good set:
// nothing could be decided then, and to let everything pass would be a limit that silently does not apply.
type living struct {
	keeper  *keeper.Keeper
	log     *slog.Logger
	newOne  func(set *rules.Set, revision uint64) (*check.Checker, error)
	newDoor func(*check.Checker) (doors, error)

	order uint64 // of what is being offered
	last  uint64 // the checker's revision; use's own
	at    atomic.Pointer[atWork]
	made  chan struct{} // closed when there is a checker

	blocksMu sync.Mutex // held while a checker begins, too, so that it misses none
	blocks   []check.Block
}

// doors are what serves HTTP.
type doors struct {
	door  http.Handler
	proxy http.Handler // nil without --upstream
}

// atWork is the checker and its doors.
type atWork struct {
	checker *check.Checker
	doors   doors
	first   *rules.Set
}

func newLiving(log *slog.Logger, newOne func(*rules.Set, uint64) (*check.Checker, error), newDoor func(*check.Checker) (doors, error)) *living {
	l := &living{log: log, newOne: newOne, newDoor: newDoor, made: make(chan struct{})}
	l.keeper = keeper.New(keeper.Options{Read: rulesfile.Read, Use: l.use})
	return l
}

// use puts a set in force. Calls come one at a time.
//
// The checker's revision is not the source's, by which its writers tell sets apart, but when the set was written: that is
// comparable while some checkers of a fleet read a file, and others a bucket. It may go back: a file may be replaced by an older
// one. To the checker the newest set is the one that came last, so it gets a higher number all the same.
func (l *living) use(set *rules.Set, _ uint64) error {
	revision := max(l.order, l.last+1)
	err := l.put(set, revision)
	if err == nil {
		l.last = revision
	}
	return err
}

func (l *living) put(set *rules.Set, revision uint64) error {
	if at := l.at.Load(); at != nil {
		return at.checker.SetRules(set, revision)
	}
	checker, err := l.newOne(set, revision)
	if err != nil {
		return err
	}
	doors, err := l.newDoor(checker)
	if err != nil {
		return err
	}
	l.work(&atWork{checker, doors, set})
	close(l.made)
	return nil
}

// first is the set that came first, nil if none has.
func (l *living) first() *rules.Set {
	if at := l.at.Load(); at != nil {
		return at.first
	}
	return nil
}

// offer takes what a source offers, with the source's revision of it and when it was written, in Unix milliseconds; and logs what
// became of it. Calls must come one at a time.
func (l *living) offer(revision, order uint64, data []byte) error {
	l.order = order
	if err := l.keeper.Offer(revision, data); err != nil {
		stays := "none is in force"
		if s := l.keeper.State(); s.InForce() {
			stays = "the one before stays in force"
		}
		l.log.Error("rules refused: "+stays, "revision", revision, "error", err)
		return err
	}
	s := l.keeper.State()
	l.log.Info("rules in force", "revision", s.Revision, "rules", s.Rules, "digest", s.Digest)
	return nil
}

// trouble takes what a source says of itself.
func (l *living) trouble(err error) {
	l.keeper.Trouble(err)
	if err != nil {
		l.log.Warn("waiting for rules", "error", err)
		return
	}
	l.log.Info("rules can be read again")
}

// stats are the checker's, empty while there is none.
func (l *living) stats() check.Stats {
	if at := l.at.Load(); at != nil {
		return at.checker.Stats()
	}
	return check.Stats{}
}

// fleetNow is the fleet's time, as far as the checker knows it.
func (l *living) fleetNow() time.Time { return time.Now().Add(l.stats().ClockOffset) }

// ServeHTTP is the door.
func (l *living) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if at := l.at.Load(); at != nil {
		at.doors.door.ServeHTTP(w, r)
		return
	}
	if r.URL.Path == forwardauth.Path {
		notYet(w)
		return
	}
	door.NoRules().ServeHTTP(w, r)
}

// proxy is the reverse proxy.
func (l *living) proxy(w http.ResponseWriter, r *http.Request) {
	if at := l.at.Load(); at != nil {
		at.doors.proxy.ServeHTTP(w, r)
		return
	}
	w.Header().Set("Connection", "close") // a body that is still to come has no time set by anybody
	notYet(w)
}

func notYet(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Retry-After", "1")
	w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = w.Write([]byte(`{"error":"there are no rules yet"}` + "\n")) // an error means that the client has gone
}
