package peers

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/offpath-io/offpath/internal/testing/servers"
	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/redisstore"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
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

func newFleet(t testing.TB, q quota) *subject {
	t.Helper()
	f := &fleet{redis: startRedis(t)}
	f.add(f.redis.close)
	var err error
	f.nats, err = servers.StartNATS(servers.NATSOptions{})
	must(t, err)
	f.add(f.nats.Stop)
	f.store, err = redisstore.Open(redisstore.Options{URL: f.redis.URL(), Namespace: namespace})
	must(t, err)
	f.add(f.store.Close)
	atAggregator, err := natsbus.Connect(f.nats.URL(), "aggregator")
	must(t, err)
	f.add(func() error { atAggregator.Close(); return nil })
	bus, err := natsbus.NewWorker(atAggregator, namespace)
	must(t, err)
	worker, err := aggregate.New(aggregate.Options{Store: f.store, Bus: bus})
	must(t, err)
	f.add(background(worker.Run))

	set, err := q.rules()
	must(t, err)
	atChecker, err := natsbus.Connect(f.nats.URL(), "checker")
	must(t, err)
	f.add(func() error { atChecker.Close(); return nil })
	link, err := natsbus.NewChecker(atChecker, namespace, "bench")
	must(t, err)
	f.checker, err = check.New(check.Options{Rules: set, Link: link, DrainTimeout: patience})
	must(t, err)
	f.stopChecker = background(f.checker.Run)
	f.add(f.stopChecker)
	// Before the checker has heard of the aggregator, it would report nothing.
	must(t, until("the checker is welcomed", func() bool { return f.checker.Stats().Freshness == check.Fresh }))
	s := checkerSubject(f.checker)
	s.redis, s.settle, s.close = f.redis, answered(f.checker), f.end
	return s
}

// end delivers the last reports, and holds the ledger against what was admitted.
func (f *fleet) end(admitted int64) error {
	errs := []error{f.stopChecker(), charged(f.checker, admitted)}
	ledger, err := f.store.Ledger(context.Background())
	if got := ledger[ruleName]; err == nil && got != (storage.RuleLedger{Counted: admitted}) {
		err = fmt.Errorf("%d hits were admitted, but the ledger says %+v", admitted, got)
	}
	return errors.Join(append(errs, err, f.close())...)
}
