package aggregate

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate/storage"
)

const (
	// joinEvery is how often the store is asked for the time, and so whether it is there.
	joinEvery = 500 * time.Millisecond
	// rejoinAfter is when it is asked again if its answer was too vague, or the memory gave none.
	rejoinAfter = 100 * time.Millisecond
	// staleJoin is how old the store's last answer may be before the worker is not ready.
	staleJoin = 10 * time.Second
	// probeAfter is how long a shard may have no batch before it is probed.
	probeAfter = 2 * time.Second
	// staleFailure is how old a shard's failed batch may be before it says nothing any more; by
	// then the checkers would have sent again.
	staleFailure = 10 * time.Second
	// logAgain is how soon the log may give another reason why the store is away, or report a
	// shard's failure or rejected requests again.
	logAgain = 10 * time.Second
)

var (
	errNotJoined   = errors.New("the store has not been reached yet")
	errNotRecalled = errors.New("the remembered states of its shards have not been read yet")
	errNoTime      = errors.New("the fleet's time is not known yet")
)

// health is whether the store as a whole answers, for Ready and the log.
type health struct {
	log *slog.Logger

	mu       sync.Mutex
	err      error // of the last Join
	lastOK   int64 // own time of the last Join without an error
	since    int64 // own time of the first failed Join since then
	ever     bool
	reason   string // that the log gave last
	loggedAt int64  // own time
}

// observe takes in the end of a Join, and logs when the store goes away, when it is away for
// another reason, and when it comes back.
func (h *health) observe(now int64, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	was := h.err
	h.err = err
	if err == nil {
		h.ever, h.lastOK = true, now
		if was != nil {
			h.log.Info("the store is back")
		}
		return
	}
	if was == nil {
		h.since = now
	}
	if errors.Is(err, storage.ErrShards) {
		return
	}
	reason := cause(err)
	if was == nil || reason != h.reason && now-h.loggedAt >= int64(logAgain) {
		h.log.Warn("waiting for the store", slog.Any("error", err))
		h.reason, h.loggedAt = reason, now
	}
}

// cause returns the text of the innermost error: those around it name ports, which differ each
// time.
func cause(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}

// away says whether the last Join failed, and since which own time.
func (h *health) away() (since int64, away bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.since, h.err != nil
}

// ready returns nil if the store has answered lately.
func (h *health) ready(now int64) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.err != nil:
		return h.err
	case !h.ever:
		return errNotJoined
	case now-h.lastOK > int64(staleJoin):
		silent := time.Duration(now - h.lastOK).Round(time.Second)
		return fmt.Errorf("the store has not answered for %v", silent)
	}
	return nil
}

// logLimit lets a message be logged now and then.
type logLimit struct{ last atomic.Int64 } // own time

// allow says whether the message may be logged again at own time now, and notes that it is.
func (l *logLimit) allow(now int64) bool {
	last := l.last.Load()
	return now-last >= int64(logAgain) && l.last.CompareAndSwap(last, now)
}
