// Package httpload asks a running checker over HTTP or gRPC at a fixed rate, and says how long the
// answers took.
//
// The load is *open*: request i is *due* at start + i/rate, whether or not the ones before it have
// been answered, as it is with real callers, who do not wait for each other. The *latency* of a
// request counts from when it was due. A generator that counts from when it sent, and sends less
// while the server is slow, measures a stall once instead of once for each request that was held up
// by it (coordinated omission). That time is given too, as *service*.
//
// Words: requests are due one by one; a *worker* has at most one request under way, over HTTP on a
// connection of its own, over gRPC on one that it shares. If all workers are busy, requests wait
// for one, and none is ever left out.
package httpload

import (
	"context"
	"sync"
	"time"

	"github.com/offpath-io/offpath/loadtest/pace"
)

const (
	tick = 100 * time.Millisecond // how often progress is told
	lead = 20 * time.Millisecond  // until the first request is due, for the workers to be ready
)

// Run loads the checker at o.URL or o.GRPC until all requests are answered, which a server that is
// slower than the rate can make much longer than the duration. It charges one hit more than it
// reports, since it first asks whether there is a checker at all; if not, or if the options are
// wrong, it returns an error.
//
// When ctx ends, Run drops what is under way and returns, without an error, what it has measured.
//
// Run calls progress, unless that is nil, in its own goroutine, ten times a second and at the end,
// with how many requests of all (those of the warm-up as well) have ended.
func Run(ctx context.Context, o Options, progress func(done, total int64)) (Result, error) {
	o = o.withDefaults()
	if err := o.check(); err != nil {
		return Result{}, err
	}
	server, err := open(o)
	if err != nil {
		return Result{}, err
	}
	defer server.close()
	return run(ctx, o, server, pace.New, progress)
}

// A server is asked by one protocol.
type server interface {
	// ask asks for a key, and waits for the whole answer. The status is as HTTP has it, 200 or 429
	// for a decision; the text is the beginning of an answer that is none. The error is that there
	// was no answer.
	ask(ctx context.Context, key int) (status int, text string, err error)
	// name says who is asked.
	name() string
	close()
}

func open(o Options) (server, error) {
	if o.GRPC != "" {
		return openGRPC(o)
	}
	return openHTTP(o, newTransport(o))
}

// run is Run with checked options, and with how it sends and how it waits.
func run(
	ctx context.Context, o Options, server server, newPause func() pace.Pauser, progress func(done, total int64),
) (Result, error) {
	l, err := prepare(ctx, o, server)
	switch {
	case err != nil && ctx.Err() != nil:
		return Result{Options: o, Interrupted: true}, nil
	case err != nil:
		return Result{}, err
	}
	records := l.work(ctx, newPause, progress)
	return l.result(records, time.Since(l.start)), nil
}

// prepare returns a load that is about to begin, on a checker that has answered.
func prepare(ctx context.Context, o Options, server server) (*load, error) {
	if err := probe(ctx, server); err != nil {
		return nil, err
	}
	start := time.Now().Add(lead)
	return &load{options: o, schedule: newSchedule(o), server: server, start: start}, nil
}

// work runs the workers to their end, and returns what each has measured.
func (l *load) work(ctx context.Context, newPause func() pace.Pauser, progress func(done, total int64)) []*record {
	var workers sync.WaitGroup
	records := make([]*record, l.options.Connections)
	for i := range records {
		records[i] = newRecord()
		workers.Go(func() {
			pause := newPause()
			defer pause.Close()
			l.worker(ctx, pause, records[i])
		})
	}
	ended := make(chan struct{})
	go func() { workers.Wait(); close(ended) }()
	l.report(ended, progress)
	return records
}

// report tells progress until the workers have ended.
func (l *load) report(ended <-chan struct{}, progress func(done, total int64)) {
	if progress == nil {
		<-ended
		return
	}
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			progress(l.done.Load(), l.total)
		case <-ended:
			progress(l.done.Load(), l.total)
			return
		}
	}
}
