package main

import (
	"log/slog"
	"net/http"
	"sync/atomic"

	"github.com/offpath-io/offpath/cmd/internal/rulesfile"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/rules/keeper"
)

// living is a checker whose rules come and change while the daemon runs. There is none before the first good set:
// nothing could be decided then, and to let everything pass would be a limit that silently does not apply.
type living struct {
	keeper  *keeper.Keeper
	log     *slog.Logger
	newOne  func(set *rules.Set, revision uint64) (*check.Checker, error)
	newDoor func(*check.Checker) http.Handler

	last uint64 // the checker's revision; use's own
	at   atomic.Pointer[atWork]
	made chan struct{} // closed when there is a checker
}

// atWork is the checker and its door.
type atWork struct {
	checker *check.Checker
	door    http.Handler
	first   *rules.Set
}

func newLiving(log *slog.Logger, newOne func(*rules.Set, uint64) (*check.Checker, error), newDoor func(*check.Checker) http.Handler) *living {
	l := &living{log: log, newOne: newOne, newDoor: newDoor, made: make(chan struct{})}
	l.keeper = keeper.New(keeper.Options{Read: rulesfile.Read, Use: l.use})
	return l
}

// use puts a set in force. Calls come one at a time.
//
// A source's revision may go back: a bucket that was lost and made again begins anew, and a file may be replaced by an older
// one. To the checker the newest set is the one that came last, so it gets a higher number all the same.
func (l *living) use(set *rules.Set, revision uint64) error {
	if revision <= l.last {
		revision = l.last + 1
	}
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
	l.at.Store(&atWork{checker, l.newDoor(checker), set})
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

// offer takes what a source offers, and logs what became of it.
func (l *living) offer(revision uint64, data []byte) error {
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

// ServeHTTP is the door.
func (l *living) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if at := l.at.Load(); at != nil {
		at.door.ServeHTTP(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Retry-After", "1")
	w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = w.Write([]byte(`{"error":"there are no rules yet"}` + "\n")) // an error means that the client has gone
}
