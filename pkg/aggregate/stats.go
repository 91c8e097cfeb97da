package aggregate

import (
	"sync"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate/storage"
)

// Stats is a snapshot of a worker's counters, all since it was made unless stated otherwise.
type Stats struct {
	// Reports received, of which: Malformed could not be read; Refused were answered with an error
	// and will never be counted (malformed ones that name their sender are among them); Replaced
	// took the place of an earlier request of the same checker; Stale were older than one that
	// waits; Dropped went without an answer, for lack of a store or of room, and will be sent
	// again.
	Reports, Malformed, Refused, Replaced, Stale, Dropped int64
	// Answered reports, and of these the ones that had been counted before.
	Answered, Repeated int64
	// Waiting reports now, in all shards.
	Waiting int64
	// Batches applied, the Keys in them, and the Retries of batches because of repeated reports.
	Batches, Keys, Retries int64
	// ApplyErrors are batches that the store did not answer or refused.
	ApplyErrors int64
	// HitsCounted, HitsLate and HitsRefused, by this worker.
	HitsCounted, HitsLate, HitsRefused int64
	// Settlements received, of which: SettlementsRefused were invalid or of receipts that are too
	// old; SettlementsApplied were new when they were applied; SettlementsUncovered would have
	// given back more than checkers of their sender's credential had reported, and come again;
	// SettlementsOverflow were beyond [Options.MaxChunks], and count for nothing. The others had
	// been counted before.
	Settlements, SettlementsRefused, SettlementsApplied, SettlementsUncovered, SettlementsOverflow int64
	// RulesLong, RulesMany and RulesUnknown are reports, lease requests and settlements of rules
	// that are not counted: for a window beyond [Options.MaxWindow], more than events.MaxRules in
	// one message or than [Options.MaxRules] in all, and an algorithm, or a kind of hits, of a
	// later version. All but those with a kind, of which the other rules count, are refused.
	RulesLong, RulesMany, RulesUnknown int64
	// HitsRefunded and HitsSettled are hits that settlements gave back and added, by this worker.
	HitsRefunded, HitsSettled int64
	// LeaseRequests received, of which: LeasesRefused could not be read or were answered with an
	// error; LeasesReplaced took the place of an earlier one of the same checker, or were older
	// than it; LeasesDropped went without an answer, for lack of a store or of room, and will be
	// sent again.
	LeaseRequests, LeasesRefused, LeasesReplaced, LeasesDropped int64
	// LeasesAnswered requests, and the batches that they were in.
	LeasesAnswered, LeaseBatches int64
	// LeaseErrors are batches of lease requests that the store did not answer or refused.
	LeaseErrors int64
	// PermitsGranted and PermitsReturned, by this worker.
	PermitsGranted, PermitsReturned int64
	// Alarms sent, and the keys in them; AlarmErrors are those that could not be sent.
	Alarms, AlarmKeys, AlarmErrors int64
	// ReplyErrors are answers and welcomes that could not be sent.
	ReplyErrors int64
	// Losses are how often the store was found to have lost a shard's data, LostBatches how many
	// batches that it had applied are lost, and LastLoss the last loss.
	Losses, LostBatches int64
	LastLoss            ShardLoss
	// Hellos received, malformed ones included.
	Hellos int64
	// Checkers is how many have said hello lately. Time in which the worker did not hear itself
	// does not count.
	Checkers int
	// Aggregators is how many this worker has heard in the last second, itself included.
	Aggregators int
	// Owned is how many shards' reports go to this worker first.
	Owned int
	// StoreOffset is how far the fleet's time is ahead of the store's clock, as on record there; 0
	// until the store has been reached.
	StoreOffset time.Duration
	// Shards of the fleet; 0 until the store has been reached for the first time.
	Shards int
}

// ShardLoss is a loss of one shard's data.
type ShardLoss struct {
	storage.Loss
	Shard uint32
	// At is when it was found out, by the store's time in Unix nanoseconds; 0 if there was none.
	At int64
}

// counters are the worker's Stats, but for those that it looks up when asked.
type counters struct {
	mu    sync.Mutex
	stats Stats
}

// add changes the counters. change is short, and waits for nothing.
func (c *counters) add(change func(*Stats)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.stats)
}

func (c *counters) snapshot() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

// addBatch counts an applied batch.
func (c *Stats) addBatch(batch *storage.Batch, applied *storage.Applied) {
	c.Batches++
	c.Keys += int64(len(batch.Keys))
	c.SettlementsApplied += int64(len(batch.Settled))
	for _, t := range batch.Ledger {
		c.HitsCounted += t.Counted
		c.HitsLate += t.Late
		c.HitsRefused += t.Refused
		c.HitsRefunded += t.Refunded
		c.HitsSettled += t.Settled
	}
	for _, o := range applied.Overflow {
		c.HitsCounted -= o.Hits
	}
}

// addLoss counts a loss; it need not be the latest.
func (c *Stats) addLoss(loss ShardLoss) {
	lost, _ := loss.Batches()
	c.Losses++
	c.LostBatches += int64(lost)
	if c.LastLoss.At <= loss.At {
		c.LastLoss = loss
	}
}
