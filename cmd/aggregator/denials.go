package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/offpath-io/offpath/cmd/internal/decisionlog"
	"github.com/offpath-io/offpath/internal/status"
)

// denials makes the stream of the decision log when a checker wants to write to it and may not make
// it. A checker must not: the settings of a stream can have the server publish to any subject.
type denials struct {
	make   func(ctx context.Context) error
	log    *slog.Logger
	wanted chan struct{}
}

const (
	// lookAgain is after how long it is seen to that the stream is still there, makeAgain after how
	// long it is tried anew to make it.
	lookAgain, makeAgain = 30 * time.Second, 2 * time.Second
	// makeTimeout is how long that may take.
	makeTimeout = 5 * time.Second
)

func newDenials(conn *nats.Conn, namespace string, log *slog.Logger) *denials {
	return &denials{
		make: func(ctx context.Context) error { return decisionlog.Make(ctx, conn, namespace) },
		log:  log, wanted: make(chan struct{}, 1),
	}
}

// heard takes a checker's status, and does not wait.
func (d *denials) heard(s status.Checker) {
	if s.WantsLog && !s.Leaving {
		select {
		case d.wanted <- struct{}{}:
		default:
		}
	}
}

// run makes the stream when it is wanted, until ctx is done. Of what goes wrong it tells once.
func (d *denials) run(ctx context.Context) error {
	said := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-d.wanted:
		}
		wait := lookAgain
		asking, cancel := context.WithTimeout(ctx, makeTimeout)
		err := d.make(asking)
		cancel()
		switch {
		case err == nil:
			said = ""
		case ctx.Err() == nil:
			wait = makeAgain
			if said != err.Error() {
				said = err.Error()
				d.log.Warn("the decision log's stream cannot be made", "error", err)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}
