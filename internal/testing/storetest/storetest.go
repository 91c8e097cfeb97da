// Package storetest is the contract of storage.Store as tests, to be run against every store.
package storetest

import (
	"slices"
	"testing"

	"github.com/offpath-io/offpath/pkg/aggregate/storage"
)

// Harness is a store under test, empty, and what the tests need to do to it.
type Harness struct {
	Store storage.Store
	// Other is another worker's view of the same data; may be the same as Store.
	Other storage.Store
	// Now is the fleet's time to begin at.
	Now int64
	// Clock tells the store's time in Unix nanoseconds; nil if it has none.
	Clock func() int64
	// Ledger reads the store's ledger.
	Ledger func(t testing.TB) storage.Ledger
	// Lose drops all data.
	Lose func(t testing.TB)
	// Snapshot keeps a copy of all data, and returns what brings it back.
	Snapshot func(t testing.TB) (restore func())
	// Expiries lists when whatever is in the store expires, in fleet time; 0 stands for never.
	// State, ledger and the number of shards, which never do, are left out, and what a store has
	// beside the contract.
	Expiries func(t testing.TB) []int64
}

// Run runs all tests, or only those that are named; open is called for each and returns an empty
// store.
func Run(t *testing.T, open func(t testing.TB) Harness, only ...string) {
	for _, test := range []struct {
		name string
		run  func(*bench)
	}{
		{"Join", testJoin}, // the others have joined already
		{"Reading", testReading},
		{"Repeats", testRepeats},
		{"Marks", testMarks},
		{"Ledger", testLedger},
		{"Expiry", testExpiry},
		{"Generations", testGenerations},
		{"OlderSnapshot", testOlderSnapshot},
		{"Identity", testIdentity},
		{"Keys", testKeys},
		{"LargeCounts", testLargeCounts},
		{"LargeBatches", testLargeBatches},
		{"Shards", testShards},
		{"TwoWorkers", testTwoWorkers},
		{"Settle", testSettle},
		{"SettleLevel", testSettleLevel},
		{"SettleRepeats", testSettleRepeats},
		{"SettleExpiry", testSettleExpiry},
		{"SettlePermits", testSettlePermits},
		{"Credits", testCredits},
		{"SettledChunks", testSettledChunks},
		{"Random", testRandom},
		{"Order", testOrder},
		{"NewLimit", testNewLimit},
		{"LongLevel", testLongLevel},
		{"Lease", testLease},
		{"LeaseAhead", testLeaseAhead},
		{"LeaseBuckets", testLeaseBuckets},
		{"LeaseShares", testLeaseShares},
		{"LeaseRandom", testLeaseRandom},
		{"LeaseTwoWorkers", testLeaseTwoWorkers},
		{"LeaseKeys", testLeaseKeys},
		{"LeaseLarge", testLeaseLarge},
		{"LeaseExpiry", testLeaseExpiry},
		{"LeaseLoss", testLeaseLoss},
	} {
		if len(only) > 0 && !slices.Contains(only, test.name) {
			continue
		}
		t.Run(test.name, func(t *testing.T) {
			h := open(t)
			b := &bench{T: t, Harness: h, now: h.Now, model: newModel()}
			if test.name != "Join" {
				b.join(b.Store, 5)
				b.join(b.Other, 5)
			}
			test.run(b)
		})
	}
}
