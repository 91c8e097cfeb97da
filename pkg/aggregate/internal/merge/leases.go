package merge

import (
	"cmp"
	"slices"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate/internal/queue"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/events"
)

// MaxLeases bounds the requests for one key in one batch: that many wants of events.MaxCount can be
// added up.
const MaxLeases = 1 << 14

// LeaseRequest is a lease request that waits for its answer.
type LeaseRequest struct {
	queue.Header
	Message *events.LeaseRequest

	places []place // by key of the message, where it is in the batch
}

// place is where a batch has a checker's request for a key.
type place struct{ key, request int }

// Leases merges lease requests and answers them, and keeps its memory for the next batch. One
// goroutine uses it at a time.
type Leases struct {
	tolerance int64 // how far in the future a bucket may start, in ns

	batch storage.LeaseBatch
	rules rules
	keys  keys

	grant  events.Grant
	waits  []uint64 // by key of the batch, in ms
	counts []int64  // memory to work with
}

// NewLeases returns a Leases that ignores returns of buckets that start more than tolerance
// nanoseconds in the future.
func NewLeases(tolerance int64) *Leases {
	return &Leases{tolerance: tolerance, rules: newRules(), keys: newKeys()}
}

// Merge merges requests of different checkers, all of one shard, at the fleet's time now, and sorts
// them: a remainder that a store cannot share out evenly goes to the first, who must not be the
// same each time. The result, and what the requests know of it, are valid until the next call.
func (b *Leases) Merge(
	shard uint32, requests []*LeaseRequest, seen storage.State, now int64,
) *storage.LeaseBatch {
	b.batch = storage.LeaseBatch{Shard: shard, Now: now, Seen: seen, Keys: b.batch.Keys[:0]}
	keys := 0
	for _, r := range requests {
		keys += r.Message.GetKeys().Keys()
	}
	b.rules.reset()
	b.keys.reset(keys)
	slices.SortFunc(requests, func(a, b *LeaseRequest) int {
		return cmp.Compare(mix(a.Epoch, now), mix(b.Epoch, now))
	})
	for _, r := range requests {
		b.add(r)
	}
	b.batch.Rules = b.rules.list
	return &b.batch
}

// mix makes another number of a checker's at each time, as SplitMix64 does.
func mix(epoch uint64, now int64) uint64 {
	h := epoch + uint64(now)*0x9e3779b97f4a7c15
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

// add adds the rules and keys of a request. Of a key that it names twice, only the first counts.
func (b *Leases) add(r *LeaseRequest) {
	m, table := r.Message, r.Message.GetKeys()
	var rules []int32
	for _, rule := range table.GetRules() {
		rules = append(rules, b.rules.add(rule, storage.Admitted))
	}
	text := string(table.GetKeyText()) // one copy, of which the batch's keys are parts
	ages, values := table.GetAge(), table.GetValue()
	r.places = r.places[:0]
	for i, length := range table.GetKeyLength() {
		rule, newest := rules[table.KeyRule[i]], table.Rules[table.KeyRule[i]].GetNewest()
		index, isNew := b.keys.find(rule, text[:length])
		if isNew {
			b.batch.Keys = append(b.batch.Keys, storage.LeaseKey{Rule: int(rule), Text: text[:length]})
		}
		text = text[length:]
		cells, key := table.KeyCells[i], &b.batch.Keys[index]
		if n := len(key.Requests); n == 0 || key.Requests[n-1].Epoch != r.Epoch {
			key.Requests = append(key.Requests, storage.LeaseRequest{
				Epoch: r.Epoch, Bucket: newest - m.Age[i],
				Known: int64(m.Known[i]), Want: int64(m.Want[i]),
				Returns: b.returns(key.Rule, newest, ages[:cells], values[:cells]),
			})
		}
		r.places = append(r.places, place{int(index), len(key.Requests) - 1})
		ages, values = ages[cells:], values[cells:]
	}
}

// returns are those of a key's returns that a store can use: of buckets that are neither gone nor
// too far in the future.
func (b *Leases) returns(rule int, newest int64, ages []int64, values []uint64) []storage.Cell {
	var cells []storage.Cell
	s := b.rules.list[rule].Shape
	last := s.Bucket(b.batch.Now + b.tolerance)
	for i, age := range ages {
		bucket := newest - age
		if !s.Gone(bucket, b.batch.Now) && bucket <= last && values[i] > 0 {
			cells = append(cells, storage.Cell{Bucket: bucket, Count: int64(values[i])})
		}
	}
	return cells
}

// overflowWait is how long until a checker may ask again for permits of a key that the store has no
// room for.
const overflowWait = 5 * time.Second

// ComputeWaits computes, for each key, how long until a permit can be free, if none is returned. It
// comes before the batch's grants.
func (b *Leases) ComputeWaits(leased *storage.Leased) {
	b.waits = b.waits[:0]
	for i := range leased.Keys {
		r := &b.batch.Rules[b.batch.Keys[i].Rule]
		b.counts = storage.LayOut(b.counts, r.Shape, leased.Keys[i].Held, leased.Now)
		// A limit of 0 was refused, so there is a wait.
		wait, _ := r.Shape.RetryAfter(b.counts, r.Limit, 1, leased.Now)
		wait = max(wait, time.Duration(storage.QuietUntil(r.Shape, leased.Keys[i].Lost)-leased.Now))
		if leased.Keys[i].Overflows { // nobody knows when there will be room
			wait = max(wait, overflowWait)
		}
		b.waits = append(b.waits, uint64((wait+time.Millisecond-1)/time.Millisecond))
	}
}

// Grant is the answer to a request. It is valid until the next call.
func (b *Leases) Grant(r *LeaseRequest, leased *storage.Leased) *events.Grant {
	g, table := &b.grant, r.Message.GetKeys()
	*g = events.Grant{
		Epoch: r.Epoch, Shard: r.Message.GetShard(), Sequence: r.Sequence,
		Generation: leased.State.Generation, Version: leased.State.Version,
		Age: g.Age[:0], Granted: g.Granted[:0], Spoken: g.Spoken[:0], WaitMs: g.WaitMs[:0],
	}
	for i, at := range r.places {
		key := &leased.Keys[at.key]
		grant := &key.Grants[at.request]
		g.Age = append(g.Age, table.Rules[table.KeyRule[i]].GetNewest()-key.Bucket)
		g.Granted = append(g.Granted, events.Count(grant.Current))
		g.Spoken = append(g.Spoken, events.Count(grant.Requested))
		g.WaitMs = append(g.WaitMs, b.waits[at.key])
	}
	return g
}
