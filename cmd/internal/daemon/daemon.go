// Package daemon runs the parts of a command and stops them in order.
//
// A part runs until it is told to stop, finishes its work, and returns. Parts are given in the
// order of their dependencies: each may need those before it, so they are stopped from the last to
// the first, one at a time.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"golang.org/x/sync/errgroup"
)

// Part runs for as long as the command does.
type Part struct {
	// Name is for errors and logs, such as "HTTP API".
	Name string
	// Run works until ctx is done, then stops in an orderly way, within a deadline of its own, and
	// returns nil, or an error of stopping.
	Run func(ctx context.Context) error
}

var errEnded = errors.New("ended unasked")

// Run runs all parts until ctx is done or one of them ends by itself; then it stops them, the last
// part first, each only once the one after it has returned. The error is the first one of a part.
func Run(ctx context.Context, log *slog.Logger, parts ...Part) error {
	group, over := errgroup.WithContext(ctx)
	started := make([]running, len(parts))
	for i, part := range parts {
		own, stop := context.WithCancel(context.WithoutCancel(ctx))
		ended := make(chan struct{})
		started[i] = running{part.Name, stop, ended}
		group.Go(func() error {
			defer close(ended)
			return part.run(own)
		})
	}
	<-over.Done()
	log.Info("stopping")
	for i := len(started) - 1; i >= 0; i-- {
		started[i].stop()
		<-started[i].ended
		log.Debug("stopped", "part", started[i].name)
	}
	err := group.Wait()
	if err == nil {
		log.Info("stopped")
	}
	return err
}

type running struct {
	name  string
	stop  context.CancelFunc
	ended chan struct{}
}

func (p Part) run(ctx context.Context) error {
	err := p.Run(ctx)
	if err == nil && ctx.Err() == nil {
		err = errEnded
	}
	if err != nil {
		return fmt.Errorf("%s: %w", p.Name, err)
	}
	return nil
}
