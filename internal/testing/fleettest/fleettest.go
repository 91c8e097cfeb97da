// Package fleettest runs what participants of a fleet need: NATS, and an aggregator.
package fleettest

import (
	"testing"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/servers"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/memstore"
	"github.com/offpath-io/offpath/pkg/events/natsbus"
)

// Fleet is NATS and an aggregator that counts in memory, in the default namespace.
type Fleet struct {
	*servers.NATS
	store *memstore.Store
}

// Start starts both, and stops them when the test is over.
func Start(t testing.TB) *Fleet {
	t.Helper()
	f := &Fleet{serverstest.JetStream(t), memstore.New()}
	bus, err := natsbus.NewWorker(serverstest.Connect(t, f.URL()), "offpath")
	daemontest.Must(t, err)
	worker, err := aggregate.New(aggregate.Options{Store: f.store, Bus: bus})
	daemontest.Must(t, err)
	daemontest.Background(t, worker.Run)
	return f
}

// Counted returns how many hits the store has counted under a rule.
func (f *Fleet) Counted(t testing.TB, rule string) int64 {
	t.Helper()
	ledger, err := f.store.Ledger(t.Context())
	daemontest.Must(t, err)
	return ledger[rule].Counted
}
