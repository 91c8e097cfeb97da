package aggregate

import (
	"sync"
	"sync/atomic"

	"github.com/offpath-io/offpath/pkg/aggregate/storage"
)

// Stats is a snapshot of a worker's counters, all since it was made unless stated otherwise.
type Stats struct {
	// Reports received, of which: Malformed could not be read; Refused were answered with an error and
	// will never be counted (malformed ones that name their sender are among them); Replaced took the
	// place of an earlier request of the same checker; Stale were older than one that waits; Dropped
	// went without an answer, for lack of a store or of room, and will be sent again.
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
	// Settlements received, of which: SettlementsRefused were invalid or of receipts that are too old;
	// SettlementsApplied were new when they were applied; SettlementsUncovered would have
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
	// LeaseRequests received, of which: LeasesRefused could not be read or were answered with an error;
	// LeasesReplaced took the place of an earlier one of the same checker, or were older than it;
	// LeasesDropped went without an answer, for lack of a store or of room, and will be sent again.
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
	// Checkers is how many have said hello lately.
	Checkers int
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

// counters count what Stats shows.
type counters struct {
	reports, malformed, refused, replaced, stale, dropped atomic.Int64
	answered, repeated                                    atomic.Int64
	batches, keys, retries, applyErrors                   atomic.Int64
	hitsCounted, hitsLate, hitsRefused                    atomic.Int64
	hitsRefunded, hitsSettled                             atomic.Int64
	settlements, settlementsRefused, settlementsApplied   atomic.Int64
	settlementsUncovered, settlementsOverflow             atomic.Int64
	rulesLong, rulesMany, rulesUnknown                    atomic.Int64
	alarms, alarmKeys, alarmErrors                        atomic.Int64
	leaseRequests, leasesRefused, leasesReplaced          atomic.Int64
	leasesDropped, leasesAnswered                         atomic.Int64
	leaseBatches, leaseErrors                             atomic.Int64
	permitsGranted, permitsReturned                       atomic.Int64
	replyErrors, hellos                                   atomic.Int64

	lossMu              sync.Mutex
	losses, lostBatches int64
	lastLoss            ShardLoss
}

// addBatch counts an applied batch.
func (c *counters) addBatch(batch *storage.Batch, applied *storage.Applied) {
	c.batches.Add(1)
	c.keys.Add(int64(len(batch.Keys)))
	for i := range batch.Ledger {
		c.hitsCounted.Add(batch.Ledger[i].Counted)
		c.hitsLate.Add(batch.Ledger[i].Late)
		c.hitsRefused.Add(batch.Ledger[i].Refused)
		c.hitsRefunded.Add(batch.Ledger[i].Refunded)
		c.hitsSettled.Add(batch.Ledger[i].Settled)
	}
	for _, o := range applied.Overflow {
		c.hitsCounted.Add(-o.Hits)
	}
	c.settlementsApplied.Add(int64(len(batch.Settled)))
}

// addLoss counts a loss; it need not be the latest.
func (c *counters) addLoss(loss ShardLoss) {
	lost, _ := loss.Batches()
	c.lossMu.Lock()
	defer c.lossMu.Unlock()
	c.losses++
	c.lostBatches += int64(lost)
	if c.lastLoss.At <= loss.At {
		c.lastLoss = loss
	}
}

func (c *counters) snapshot() Stats {
	c.lossMu.Lock()
	defer c.lossMu.Unlock()
	return Stats{
		Reports: c.reports.Load(), Malformed: c.malformed.Load(), Refused: c.refused.Load(),
		Replaced: c.replaced.Load(), Stale: c.stale.Load(), Dropped: c.dropped.Load(),
		Answered: c.answered.Load(), Repeated: c.repeated.Load(),
		Batches: c.batches.Load(), Keys: c.keys.Load(), Retries: c.retries.Load(),
		ApplyErrors: c.applyErrors.Load(), HitsCounted: c.hitsCounted.Load(),
		HitsLate: c.hitsLate.Load(), HitsRefused: c.hitsRefused.Load(),
		HitsRefunded: c.hitsRefunded.Load(), HitsSettled: c.hitsSettled.Load(),
		Settlements: c.settlements.Load(), SettlementsRefused: c.settlementsRefused.Load(),
		SettlementsApplied:   c.settlementsApplied.Load(),
		SettlementsUncovered: c.settlementsUncovered.Load(),
		SettlementsOverflow:  c.settlementsOverflow.Load(),
		RulesLong:            c.rulesLong.Load(), RulesMany: c.rulesMany.Load(), RulesUnknown: c.rulesUnknown.Load(),
		Alarms: c.alarms.Load(), AlarmKeys: c.alarmKeys.Load(), AlarmErrors: c.alarmErrors.Load(),
		LeaseRequests: c.leaseRequests.Load(), LeasesRefused: c.leasesRefused.Load(),
		LeasesReplaced: c.leasesReplaced.Load(), LeasesDropped: c.leasesDropped.Load(),
		LeasesAnswered: c.leasesAnswered.Load(), LeaseBatches: c.leaseBatches.Load(),
		LeaseErrors: c.leaseErrors.Load(), PermitsGranted: c.permitsGranted.Load(),
		PermitsReturned: c.permitsReturned.Load(), ReplyErrors: c.replyErrors.Load(),
		Hellos: c.hellos.Load(),
		Losses: c.losses, LostBatches: c.lostBatches, LastLoss: c.lastLoss,
	}
}
