package storage

import (
	"math"

	"github.com/offpath-io/offpath/pkg/window"
)

// Batch is what one call of [Store.Apply] adds to one shard, and which keys' totals it asks for.
type Batch struct {
	Shard uint32
	// Now is the fleet's time, by which the buckets below were judged.
	Now int64
	// Made is when the newest of the reports was made; 0 if none says so.
	Made int64
	// Seen is the latest state of the shard that any aggregator is known to have seen. A store that
	// is behind it has lost data, and starts a new generation.
	Seen State
	// Settled are the settlements in the batch, which must be new too; no two are the same.
	Settled []Settled
	// MaxChunks is how many chunks of settlements one sender may let the shard remember in a day; 0
	// for any number. The day begins with the first. A chunk in which another sender has settled
	// since then is not counted.
	MaxChunks int64
	// Credits bound what settlements may give back, each identity once. None may be overdrawn.
	Credits []Credit
	// Permits are the changes that settlements make to the permits that are held.
	Permits []Permits
	// Marks are the reports in the batch that must be new, at most one per epoch. The keys may also
	// be those of reports that were counted before, and then add nothing.
	Marks []Mark
	// Rules are the rules of the keys, each identity once.
	Rules []Rule
	// Ledger has an entry for each rule: what to add to the ledger under its name.
	Ledger []Tally
	// Keys are distinct: no two have the same rule and text.
	Keys []Key
}

// Mark is a report's number among those of its checker for the shard.
type Mark struct {
	Epoch, Sequence uint64
}

// Tally is the number of hits by outcome, see [RuleLedger].
type Tally struct {
	Counted, Late, Refused, Refunded, Settled int64
}

// Key is one key of a batch.
type Key struct {
	// Rule is an index in the batch's rules.
	Rule int
	// Text is any bytes, up to events.MaxKeyLength of them.
	Text string
	// Cells are the hits to add, in ascending order of distinct buckets, none of them gone. A count
	// of 0 adds nothing, and asks for that bucket's total.
	Cells []Cell
}

// Cell is a count for a bucket.
type Cell struct {
	Bucket, Count int64
}

// CountOf returns the count of a bucket, 0 if no cell has it.
func CountOf(cells []Cell, bucket int64) int64 {
	for i := len(cells) - 1; i >= 0; i-- {
		if cells[i].Bucket == bucket {
			return cells[i].Count
		}
	}
	return 0
}

// Sum adds two counts, neither of them negative. A sum beyond int64, which takes a broken checker,
// stays at the largest value.
func Sum(a, b int64) int64 {
	if sum := a + b; sum >= 0 {
		return sum
	}
	return math.MaxInt64
}

// Applied is the outcome of a batch.
type Applied struct {
	// State is the shard's, after the batch.
	State State
	// Loss is what was found lost when the shard's generation began; zero if no earlier state was
	// remembered then.
	Loss Loss
	// Repeated are the indices of those of the batch's marks that are not new, in ascending order.
	// If there are any, or any Spent, SettledOverflow or Overdrawn, nothing was changed, and
	// nothing else is known.
	Repeated []int
	// Spent are the indices of those of the batch's settlements that are not new, in ascending
	// order.
	Spent []int
	// SettledOverflow are the indices of the settlements for which MaxChunks leaves no room, in
	// ascending order.
	SettledOverflow []int
	// Overdrawn are those of the batch's credits of which more would be returned than there is.
	Overdrawn []Overdrawn
	// Totals are, for each of the batch's keys, the totals after the batch of every bucket that is
	// live at the batch's Now, and of every further one among the key's cells. Zeros may be left
	// out, other buckets (in the future) added; the order is ascending. The caller may keep them.
	Totals [][]Cell
	// Levels are, for each of the batch's keys whose rule drains, the level at the end of the
	// bucket before the first that is live at the batch's Now. All hits up to then are in the
	// level, less the refunds of each bucket, and none of them in Totals. May be nil if no rule of
	// the batch drains.
	Levels []window.Level
	// Overflow are the rules with hits of keys that the store has no room for: these hits are in
	// the ledger as such, and in no count; such keys have no totals.
	Overflow []Overflow
}

// IsNew reports whether the batch was applied: all in it was new and covered, and there was room.
func (a *Applied) IsNew() bool {
	return len(a.Repeated) == 0 && len(a.Spent) == 0 && len(a.SettledOverflow) == 0 &&
		len(a.Overdrawn) == 0
}

// Overflow is how many new keys of a batch the store had no room for, and their hits.
type Overflow struct {
	// Rule is an index in the batch's rules.
	Rule       int
	Keys, Hits int64
}
