package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/offpath-io/offpath/cmd/internal/daemon"
	"github.com/offpath-io/offpath/cmd/internal/rulesfile"
	"github.com/offpath-io/offpath/cmd/internal/signing"
	"github.com/offpath-io/offpath/internal/filesource"
	"github.com/offpath-io/offpath/internal/natssource"
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/signature"
)

// firstWait is how long a start waits for rules from a bucket before it says that there are none yet. They are
// waited for ever after.
const firstWait = 2 * time.Second

// source is where rules come from.
type source struct {
	// begin tells of those that are there at once; an error is that they are not good.
	begin func(l *living) error
	// watch tells of them when they change, until ctx is done.
	watch func(ctx context.Context, l *living)
	// heard is closed when the bucket has told of a set, or of why there is none; nil of a file,
	// which is read by begin.
	heard chan struct{}
}

// openFile reads the file, so that one that is not there or not good is an error before anything starts.
func openFile(path string) (source, error) {
	first, err := filesource.Read(path)
	if err != nil {
		return source{}, err
	}
	if _, err := rulesfile.Read(first.Data); err != nil {
		if refusal, ok := errors.AsType[*rules.Error](err); ok {
			refusal.File = path
		}
		return source{}, err
	}
	return source{
		begin: func(l *living) error { return l.offer(first.Revision(), first.Revision(), first.Data) },
		watch: func(ctx context.Context, l *living) {
			offer := func(f filesource.File) { _ = l.offer(f.Revision(), f.Revision(), f.Data) } // which logs the error
			_ = filesource.Watch(ctx, path, first, filesource.Options{}, offer, l.trouble)
		},
	}, nil
}

// fromBucket is the namespace's bucket, which need not be there yet. Until it has told of a set,
// the one that was kept is in force.
func fromBucket(at *lifeline, verifier *signature.Verifier, kept *cached) source {
	var revision, order uint64 // of the last that was offered
	heard := make(chan struct{})
	hear := sync.OnceFunc(func() { close(heard) })
	return source{
		heard: heard,
		begin: func(l *living) error {
			if e, ok := kept.loadRules(at.namespace, verifier); ok {
				revision, order = e.Revision, e.Order()
				_ = l.offer(revision, order, e.Data) // which logs the error
			}
			return nil
		},
		watch: func(ctx context.Context, l *living) {
			trouble := func(err error) {
				l.trouble(err)
				hear()
			}
			offer := func(e natssource.Entry) {
				defer hear()
				if e.Revision == revision && e.Order() == order { // by another connection, or the one that was kept
					l.trouble(nil)
					return
				}
				revision, order = e.Revision, e.Order()
				if l.offer(revision, order, e.Data) == nil { // which logs the error
					kept.saveRules(e)
				}
			}
			err := at.each(ctx, func(ctx context.Context, s *strand) error {
				bucket, err := natssource.New(s.conn, at.namespace, natssource.Options{Verifier: verifier})
				if err == nil {
					bucket.Watch(ctx, offer, trouble)
				}
				return err
			})
			if err != nil { // of a namespace that makes no bucket's name
				l.trouble(err)
			}
		},
	}
}

// seed puts rules into the bucket of an embedded server, in which there is none.
func seed(conn *nats.Conn, namespace string, keys signing.Opened, data []byte) error {
	bucket, err := natssource.New(conn, namespace, natssource.Options{Verifier: keys.Verifier, Key: keys.Key()})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), serverTimeout)
	defer cancel()
	_, err = bucket.Put(ctx, data, 0)
	return err
}

// watching is a source's watch at work.
type watching struct {
	stop  context.CancelFunc
	ended chan struct{}
}

// start begins to watch. The rules that come first may come later than this returns.
func (s source) start(ctx context.Context, l *living) (*watching, error) {
	if err := s.begin(l); err != nil {
		return nil, err
	}
	return watch(ctx, func(ctx context.Context) { s.watch(ctx, l) }), nil
}

// watch begins to watch, until it is stopped.
func watch(ctx context.Context, f func(context.Context)) *watching {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	w := &watching{stop: cancel, ended: make(chan struct{})}
	go func() {
		defer close(w.ended)
		f(ctx)
	}()
	return w
}

// part stops it in its turn.
func (w *watching) part() daemon.Part {
	return daemon.Part{Name: "rules", Run: func(ctx context.Context) error {
		select {
		case <-ctx.Done():
		case <-w.ended:
		}
		return w.close()
	}}
}

func (w *watching) close() error {
	w.stop()
	<-w.ended
	return nil
}

// awaitFirst waits for the first set, and where one was kept for the word of the source, which may
// have a newer one; but not for ever.
func (s source) awaitFirst(ctx context.Context, l *living) {
	timer := time.NewTimer(firstWait)
	defer timer.Stop()
	first := l.made
	if l.first() != nil && s.heard != nil {
		first = s.heard
	}
	select {
	case <-first:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// reporter is the checker's Run, once there is one.
func (l *living) reporter() daemon.Part {
	return daemon.Part{Name: "reporter", Run: func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return nil
		case <-l.made:
		}
		return l.at.Load().checker.Run(ctx)
	}}
}
