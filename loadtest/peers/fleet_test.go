package peers

import (
	"context"
	"errors"
	"fmt"

	"github.com/offpath-io/offpath/internal/testing/servers"
	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/redisstore"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/events/natsbus"
)

const namespace = "peers"

// A fleet is one checker, one aggregator, and the servers between and behind them, all real, with
// their defaults.
type fleet struct {
	closers
	nats        *servers.NATS
	redis       *redisServer
	store       *redisstore.Store
	checker     *check.Checker
	stopChecker func() error
}

func newFleet(q quota) (_ *subject, err error) {
	f := &fleet{}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.close())
		}
	}()
	for _, start := range []func() error{f.startServers, f.startAggregator, func() error { return f.startChecker(q) }} {
		if err := start(); err != nil {
			return nil, err
		}
	}
	s := checkerSubject(f.checker)
	s.redis = f.redis
	s.settle = f.settle
	s.close = f.end
	return s, nil
}

func (f *fleet) startServers() (err error) {
	if f.redis, err = startRedis(); err != nil {
		return err
	}
	f.add(f.redis.close)
	if f.nats, err = servers.StartNATS(servers.NATSOptions{}); err != nil {
		return err
	}
	f.add(f.nats.Stop)
	return nil
}

func (f *fleet) startAggregator() (err error) {
	if f.store, err = redisstore.Open(redisstore.Options{URL: f.redis.URL(), Namespace: namespace}); err != nil {
		return err
	}
	f.add(f.store.Close)
	conn, err := natsbus.Connect(f.nats.URL(), "aggregator")
	if err != nil {
		return err
	}
	f.add(func() error { conn.Close(); return nil })
	bus, err := natsbus.NewWorker(conn, namespace)
	if err != nil {
		return err
	}
	worker, err := aggregate.New(aggregate.Options{Store: f.store, Bus: bus})
	if err != nil {
		return err
	}
	f.add(background(worker.Run))
	return nil
}

// startChecker returns when the checker has heard of the aggregator: before, it would report nothing.
func (f *fleet) startChecker(q quota) error {
	set, err := q.rules()
	if err != nil {
		return err
	}
	conn, err := natsbus.Connect(f.nats.URL(), "checker")
	if err != nil {
		return err
	}
	f.add(func() error { conn.Close(); return nil })
	link, err := natsbus.NewChecker(conn, namespace, "bench")
	if err != nil {
		return err
	}
	if f.checker, err = check.New(check.Options{Rules: set, Link: link, DrainTimeout: patience}); err != nil {
		return err
	}
	f.stopChecker = background(f.checker.Run)
	f.add(f.stopChecker)
	return until("the checker is welcomed", func() bool { return f.checker.Stats().Freshness == check.Fresh })
}

// settle returns when an aggregator has answered for every hit that was admitted.
func (f *fleet) settle(admitted int64) error {
	return until("all hits are reported and answered", func() bool {
		return f.checker.Stats().Rules[0].Answered == admitted
	})
}

// end delivers the last reports, and holds the ledger against what was admitted.
func (f *fleet) end(admitted int64) error {
	errs := []error{f.stopChecker(), charged(f.checker, admitted)}
	ledger, err := f.store.Ledger(context.Background())
	if got := ledger[ruleName]; err == nil && got != (aggregate.RuleLedger{Counted: admitted}) {
		err = fmt.Errorf("%d hits were admitted, but the ledger says %+v", admitted, got)
	}
	return errors.Join(append(errs, err, f.close())...)
}
