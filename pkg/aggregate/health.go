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
	err error
	at  int64 // own time
}

// health is what Ready knows of the store as a whole, and what has been logged of it.
type health struct {
	log *slog.Logger

	mu     sync.Mutex
	err    error // of the last Join
	lastOK int64 // own time of the last Join without an error
	ever   bool
}

var errNotJoined = errors.New("the store has not been reached yet")

// noteJoin takes note of a Join's end, and logs when the store goes or comes back.
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
	if was == nil && !errors.Is(err, ErrShards) {
		h.log.Warn("waiting for the store", slog.Any("error", err))
	}
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
