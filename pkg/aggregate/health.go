package aggregate

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// trouble is a failure and when it came.
type trouble struct {
	err  error
	at   int64 // own time
	told bool  // the log has it
}

// health is what Ready knows of the store as a whole, and what has been logged of it.
type health struct {
	log *slog.Logger

	mu     sync.Mutex
	err    error // of the last Join
	lastOK int64 // own time of the last Join without an error
	since  int64 // own time of the first Join of those that have failed since then
	ever   bool
	told   string // the reason that the log gave last
	toldAt int64  // own time
}

// tellAgain is how soon the log may give another reason why the store is away, or tell of a shard's
// trouble or refused requests again.
const tellAgain = 10 * time.Second

var (
	errNotJoined   = errors.New("the store has not been reached yet")
	errNotRecalled = errors.New("what is remembered of its shards has not been read yet")
)

// noteJoin takes note of a Join's end, and logs when the store goes, when it is away for another reason, and when it comes back.
func (h *health) noteJoin(now int64, err error) {
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
	if errors.Is(err, ErrShards) {
		return
	}
	why := cause(err)
	if was == nil || why != h.told && now-h.toldAt >= int64(tellAgain) {
		h.log.Warn("waiting for the store", slog.Any("error", err))
		h.told, h.toldAt = why, now
	}
}

// cause returns the text of the innermost error: those around it name ports, which are others at each try.
func cause(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}

// away says whether the store did not answer when it was asked last, and since which own time.
func (h *health) away() (since int64, away bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.since, h.err != nil
}

// counts says whether reports can be counted, as far as the worker knows. In a Redis Cluster the node that has the fleet's record may be
// dead while the others count on: what they have taken since then tells.
func (w *Worker) counts() bool {
	since, away := w.health.away()
	if !away {
		return true
	}
	shards, live := w.shards(), 0
	for _, s := range shards {
		if s.hasTakenSince(since) {
			live++
		}
	}
	return 2*live > len(shards)
}

// hasTakenSince says whether the store has taken a fold of the shard since then, and refused none after it.
func (s *shard) hasTakenSince(since int64) bool {
	return s.trouble.Load() == nil && s.lastOK.Load() > since
}

func (h *health) joined(now int64) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.err != nil:
		return h.err
	case !h.ever:
		return errNotJoined
	case now-h.lastOK > int64(staleJoin):
		return fmt.Errorf("the store has not answered for %v", time.Duration(now-h.lastOK).Round(time.Second))
	}
	return nil
}
