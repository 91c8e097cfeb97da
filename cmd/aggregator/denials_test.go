package main

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/offpath-io/offpath/internal/status"
	"github.com/offpath-io/offpath/internal/testing/daemontest"
)

// TestDenials: the stream is made when a checker wants it and only then, tried anew after an error
// that is told once, and seen to now and then for as long as it is wanted.
func TestDenials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var made atomic.Int64
		var fails atomic.Bool
		var log strings.Builder
		d := newDenials(nil, "f", slog.New(slog.NewTextHandler(&log, nil)))
		d.make = func(context.Context) error {
			made.Add(1)
			if fails.Load() {
				return errors.New("no JetStream")
			}
			return nil
		}
		stop := daemontest.Background(t, d.run)
		tell := func(s status.Checker, seconds int) {
			for range seconds {
				d.heard(s)
				time.Sleep(time.Second)
				synctest.Wait()
			}
		}
		wants := status.Checker{WantsLog: true}
		for _, step := range []struct {
			why     string
			status  status.Checker
			seconds int
			fails   bool
			made    int64
		}{
			{"nobody wants it", status.Checker{}, 100, false, 0},
			{"who wanted it leaves", status.Checker{WantsLog: true, Part: status.Part{Leaving: true}}, 1, false, 0},
			{"it cannot be made, every 2 s", wants, 9, true, 5},
			{"now it can", wants, 2, false, 6},
			{"it is there, and looked for every 30 s", wants, 60, false, 8},
			{"nobody wants it any more; what was heard last counts", status.Checker{}, 100, false, 9},
		} {
			fails.Store(step.fails)
			if tell(step.status, step.seconds); made.Load() != step.made {
				t.Errorf("%s: made %d times, want %d", step.why, made.Load(), step.made)
			}
		}
		stop()
		equal(t, "how often it is told", strings.Count(log.String(), "no JetStream"), 1)
	})
}
