// Package aggregate is the worker behind the checkers: it adds their reports to the store, each
// exactly once, and tells them the totals.
//
// A [Worker] works in five steps, one file each. It gathers reports for a few milliseconds, folds
// those of one shard to one delta per key and bucket, applies the fold to a [Store] in one atomic
// call, answers each report with the totals of its keys, and raises an alarm to everybody about
// keys that are near their limit. A report that had been counted before (its checker has not heard
// the answer) is recognised by the store's marks, and answered without being counted again. Any
// number of workers share one store; none of them keeps anything that another could miss, but for
// what it has seen of the shards' states, which they exchange by a [Memory].
//
// Lease requests, for permits of keys under strict enforcement, take the same way on their own: they are
// gathered for a shorter time, since callers wait for them, and need no marks.
//
// A request whose fold fails is dropped without an answer: its checker sends it again, and the marks
// make that safe, whatever became of the first attempt. A fold that fails for what is in it is split until the
// request is found that the store cannot take, which is answered by an error and holds up nobody.
//
// Times are Unix nanoseconds. A worker's own time is its own clock's; the fleet's time, by which
// buckets are judged, is the store's.
package aggregate

import (
	"context"
	"errors"
	"time"

	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/window"
)

// ErrShards is wrapped by the error of [Store.Join] when the store has another number of shards on
// record than the one asked for.
var ErrShards = errors.New("another number of shards is on record")

// ErrFold is wrapped by errors of [Store.Apply] and [Store.Lease] that come of what is in the fold, or that say
// that the store's answer makes no sense: the same fold would fail again, and another one need not.
var ErrFold = errors.New("the store cannot take this fold")

// MaxShards is the largest number of shards.
const MaxShards = events.MaxShards

// Bus carries messages between this worker and the checkers. Packages natsbus and membus hold
// implementations.
type Bus interface {
	// ID is what checkers can call this worker by; 0 if they cannot.
	ID() uint64
	// Attend says of each shard whether its reports and lease requests are to come to this worker,
	// from now on; until it is called none do. While none is attended hellos come with a nil reply
	// only. It does not wait; what is on its way when a shard is left may be lost, until it is
	// repeated.
	Attend(shards []bool) error
	// Serve calls h for each report, lease request and hello until ctx is done, and then returns nil. h may be called
	// from several goroutines at once; it returns quickly and keeps nothing of the payload. reply
	// answers that message and may be called later, from any goroutine; it is nil for a hello that
	// another worker answers.
	Serve(ctx context.Context, h func(kind events.Kind, payload []byte, reply func([]byte) error)) error
	// Alarm sends an alarm to every checker. It does not keep the bytes.
	Alarm(shard uint32, alarm []byte) error
}

// Store holds the counters, the marks and the ledger of all shards. All methods are safe for
// concurrent use.
type Store interface {
	// Join says how many shards there are, and the store's time. With shards > 0 it records that
	// number if none is on record, and otherwise returns an error that wraps [ErrShards] unless it is
	// the same; with 0 it takes what is on record, or records a number of the store's own choice.
	// It is cheap, and called every few seconds: as a look at the clock, as a probe, and to record the
	// number again in a store that has lost its data.
	Join(ctx context.Context, shards int) (Fleet, error)
	// Apply adds the fold in one atomic step and returns the totals, or changes nothing and returns
	// which of its marks are not new, or returns an error, after which the fold may or may not have
	// been added: one that wraps [ErrFold] if that is for what is in the fold. It keeps nothing of the fold. A store may
	// want to be joined first.
	Apply(ctx context.Context, fold *Fold) (Applied, error)
	// Lease takes in what the fold returns, and then grants permits, in one atomic step: to each ask what
	// [Ask.Wants] says, as far as there is [Room], by [Divide] where there is not, and nothing at all
	// before [QuietUntil]. After an error the fold may or may not have been carried out; it may be
	// repeated whatever became of it. It keeps nothing of the fold.
	Lease(ctx context.Context, fold *LeaseFold) (Leased, error)
}

// Fleet is what a store says of the fleet that uses it.
type Fleet struct {
	// Shards is how many shards there are, from 1 to MaxShards. It never changes while the
	// store keeps its data.
	Shards int
	// Time is the store's time, the same for all workers; zero if the store has no clock, and each
	// worker's own is the fleet's.
	Time time.Time
}

// State names a shard's state: folds raise the version; a shard that has lost data starts a new,
// higher generation. The zero State is below every other.
type State struct {
	Generation, Version uint64
}

// Less reports whether s is an earlier state than t.
func (s State) Less(t State) bool {
	return s.Generation < t.Generation || s.Generation == t.Generation && s.Version < t.Version
}

// Fold is what one call of [Store.Apply] adds to one shard, and which keys' totals it asks for.
type Fold struct {
	Shard uint32
	// Now is the fleet's time, by which the buckets below were judged.
	Now int64
	// Made is when the newest of the reports was made, by the fleet's time; 0 if none says so.
	Made int64
	// Seen is the latest state of the shard that workers know of. A store that is behind it has
	// lost data, and starts a new generation.
	Seen State
	// Settled are the settlements in the fold, which have to be new too; no two are the same.
	Settled []Settled
	// MaxChunks is how many chunks of settlements one sender may let the shard remember in a day; 0
	// for any number. The day begins with the first, and a chunk that somebody has settled one of
	// since then is nobody's.
	MaxChunks int64
	// Credits are what settlements may give back, each identity once. None may be overdrawn.
	Credits []Credit
	// Permits are what settlements change of the permits that are held.
	Permits []Permits
	// Marks are the reports in the fold that have to be new, at most one per epoch. Their keys may
	// also be those of reports that were counted before, and then add nothing.
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

// Rule is what the reports say of a rule. Its name and shape together are its identity: after a
// change of shape it counts afresh.
type Rule struct {
	Name  string
	Shape window.Shape
	// Limit, Burst and Revision are the latest that the fold's reports know. Burst is for rules that drain.
	Limit, Burst int64
	Revision     uint64
	// Past are the limits of before of one that drains, see [window.Drain].
	Past []window.Rate
	// Kind says which of the rule's hits these are: other counters each.
	Kind Kind
	// Loose says that more than the limit may pass by the rule's own will.
	Loose bool
}

// Kind is which of a rule's hits are counted.
type Kind uint8

// The kinds of hits. What counts in a window is admitted less refunded, per bucket, and at least 0: two counters, so
// that both only grow. Denied hits limit nothing and are in no ledger; refunded ones are in that of the admitted.
const (
	Admitted Kind = iota
	Denied
	Refunded
)

// Tally is how many hits went where, see [RuleLedger].
type Tally struct {
	Counted, Late, Refused, Refunded, Settled int64
}

// Key is one key of a fold.
type Key struct {
	// Rule is an index in the fold's rules.
	Rule int
	// Text is any bytes, up to events.MaxKeyLength of them.
	Text string
	// Cells are what to add to which bucket, in ascending order of distinct buckets, none of them gone.
	// A count of 0 adds nothing, and asks for that bucket's total.
	Cells []Cell
}

// Cell is a count for a bucket.
type Cell struct {
	Bucket, Count int64
}

// Applied is what became of a fold.
type Applied struct {
	// State is the shard's, after the fold.
	State State
	// Loss is what was found lost when the shard's generation began; zero if it began with nothing
	// remembered.
	Loss Loss
	// Repeated are the indices of those of the fold's marks that are not new, in ascending order.
	// If there are any, or any Spent, SettledOverflow or Overdrawn, nothing was changed, and
	// nothing else is known.
	Repeated []int
	// Spent are the indices of those of the fold's settlements that are not new, in ascending order.
	Spent []int
	// SettledOverflow are the indices of those for which there is no room by MaxChunks, in
	// ascending order.
	SettledOverflow []int
	// Overdrawn are those of the fold's credits of which more would be returned than there is.
	Overdrawn []Overdrawn
	// Totals are, for each of the fold's keys, the totals after the fold of every bucket that is live
	// at the fold's Now, and of every further one among the key's cells. Zeros may be left out, others
	// (of buckets in the future) put in; the order is ascending. They are the caller's to keep.
	Totals [][]Cell
	// Levels are, for each of the fold's keys, the level of one whose rule drains, at the end of the bucket before
	// the first that is live at the fold's Now; all counts up to that are in it, less what was refunded of each bucket, and
	// none of them in Totals. May be nil if no key of the fold is of a rule that drains.
	Levels []window.Level
	// Overflow says of which rules there were hits of keys that the store has no room for: they are
	// in the ledger as such, and in no count; what is told of such keys is nothing.
	Overflow []Overflow
}

// Overflow is how many hits of a fold were of keys that are new, and for which there is no room.
type Overflow struct {
	// Rule is an index in the fold's rules.
	Rule       int
	Keys, Hits int64
}

// Ledger is what a store has on record for each rule, by name.
type Ledger map[string]RuleLedger

// RuleLedger is how many hits of a rule were ever reported, by what became of them. It is never
// reset while the store keeps its data.
type RuleLedger struct {
	// Counted hits were added to a bucket.
	Counted int64 `json:"counted"`
	// Late hits arrived after their bucket had left every window.
	Late int64 `json:"late"`
	// Refused hits were of a bucket too far in the future.
	Refused int64 `json:"refused"`
	// Refunded hits were given back by settlements.
	Refunded int64 `json:"refunded"`
	// Settled hits were added by settlements. They are among the counted, late and refused.
	Settled int64 `json:"settled"`
	// Overflow hits were of keys that the store had no room for.
	Overflow int64 `json:"overflow"`
}
