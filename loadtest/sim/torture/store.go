package torture

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate/memstore"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
)

// store is a memory store with a clock, that can be out of reach, hang, answer nobody, and lose its
// data. It knows of each report whether it is in the ledger now.
type store struct {
	*memstore.Store
	world   *world
	down    int64 // until when it refuses everything
	hangs   int64 // until when calls time out, and are carried out later
	cut     int64 // until when it does what it is told, and its answers are lost
	dead    map[uint32]int64
	ahead   int64         // how far its clock is ahead
	offset  time.Duration // on record
	late    []func()
	batches int
	hidden  uint64 // versions made up by passes
	reports map[reportID]*report
	log     []logged                 // the reports in the ledger, in order
	states  map[uint32]storage.State // of shards
	copies  []copied
}

// reportID names a report.
type reportID struct {
	epoch    uint64
	shard    uint32
	sequence uint64
}

// report is what is known of one.
type report struct {
	of     *life
	hits   int64
	stored bool
	lost   bool // it was stored once, and the store has lost that
	counted
}

// counted is what a report was stored into: its shard's state with it, and how often the store had
// lost data before.
type counted struct {
	state  storage.State
	losses int
}

// logged is a report, and how it was counted in this log: it may be lost, and counted otherwise.
type logged struct {
	*report
	counted counted
}

// copied is a copy of the store's data.
type copied struct {
	data   *memstore.Snapshot
	offset time.Duration
	log    []logged
	states map[uint32]storage.State
}

var errAway = errors.New("the store is away")

func newStore(w *world) *store {
	return &store{
		Store: memstore.New(), world: w, dead: make(map[uint32]int64),
		reports: make(map[reportID]*report), states: make(map[uint32]storage.State),
	}
}

func (s *store) isAway(shard uint32) bool {
	now := s.world.now
	return now < s.down || now < s.hangs || now < s.dead[shard]
}

// Join tells the store's time. The node of the first shard has the record, too.
func (s *store) Join(ctx context.Context, shards int) (storage.Fleet, error) {
	if s.isAway(0) || s.world.now < s.cut {
		return storage.Fleet{}, errAway
	}
	fleet, err := s.Store.Join(ctx, shards)
	fleet.Time = time.Unix(0, s.world.now+s.ahead)
	return fleet, err
}

// KeepOffset keeps another offset of the fleet's time.
func (s *store) KeepOffset(ctx context.Context, was, offset time.Duration) error {
	if s.isAway(0) {
		return errAway
	}
	err := s.Store.KeepOffset(ctx, was, offset)
	if s.offset == was {
		s.offset = offset
		s.world.keeps(s.ahead + int64(offset))
	}
	if s.world.now < s.cut {
		return errAway
	}
	return err
}

// Apply adds a batch.
func (s *store) Apply(ctx context.Context, batch *storage.Batch) (storage.Applied, error) {
	apply := func(b *storage.Batch) (storage.Applied, error) { return s.apply(ctx, b) }
	return call(s, batch, batch.Shard, len(batch.Marks) > 0, apply)
}

// Lease carries out a batch of lease requests.
func (s *store) Lease(ctx context.Context, batch *storage.LeaseBatch) (storage.Leased, error) {
	lease := func(b *storage.LeaseBatch) (storage.Leased, error) {
		leased, err := s.Store.Lease(ctx, b)
		if err == nil {
			s.passes(b.Shard, &leased.State, &leased.Loss)
		}
		if s.world.o.mutation == grantsNothing {
			for i := range leased.Keys {
				clear(leased.Keys[i].Grants)
			}
		}
		return leased, err
	}
	return call(s, batch, batch.Shard, true, lease)
}

// call makes a call as the store is now. What hangs fails, and is carried out when nobody waits for
// it any more. (The caller does not wait either: a Step of an aggregator takes no time.)
func call[T, B any](
	s *store, batch *B, shard uint32, writes bool, do func(*B) (T, error),
) (answer T, err error) {
	if s.world.now < s.hangs && writes {
		later := copyOf(batch)
		s.late = append(s.late, func() { _, _ = do(later) })
	}
	if s.isAway(shard) {
		return answer, errAway
	}
	done, err := do(batch)
	if s.world.now < s.cut {
		return answer, errAway
	}
	return done, err
}

// finish carries out what came while the store hung: each some time within the next half a second.
func (s *store) finish() {
	for _, do := range s.late {
		s.world.at(s.world.now+s.world.rand.Int64N(second/2), do)
	}
	s.late = nil
}

// copyOf copies a batch, whose memory its caller uses again.
func copyOf[B any](batch *B) *B {
	var data bytes.Buffer
	c := new(B)
	if err := gob.NewEncoder(&data).Encode(batch); err != nil {
		panic(err)
	}
	if err := gob.NewDecoder(&data).Decode(c); err != nil {
		panic(err)
	}
	return c
}

// apply adds a batch, and notes the reports in it.
func (s *store) apply(ctx context.Context, batch *storage.Batch) (storage.Applied, error) {
	applied, err := s.Store.Apply(ctx, s.planted(ctx, batch))
	if err != nil || !applied.IsNew() {
		return applied, err
	}
	state := s.passes(batch.Shard, &applied.State, &applied.Loss)
	for _, m := range batch.Marks {
		r := s.reports[reportID{m.Epoch, batch.Shard, m.Sequence}]
		switch {
		case r == nil:
			s.world.violate("conservation", "report %d of epoch %d is counted, and nobody has sent it",
				m.Sequence, m.Epoch)
			continue
		case r.stored:
			s.world.violate("conservation", "report %d of %s with %d hits is counted twice",
				m.Sequence, r.of.name, r.hits)
		}
		r.stored, r.counted = true, counted{state, len(s.world.noticedAt)}
		s.log = append(s.log, logged{r, r.counted})
	}
	return applied, err
}

// planted is a batch with the defect that a test has planted, if it has one here.
func (s *store) planted(ctx context.Context, batch *storage.Batch) *storage.Batch {
	s.batches++
	often := s.batches%20 == 0 && len(batch.Marks) > 0
	switch m := s.world.o.mutation; {
	case m == forgetsMarks:
		batch = copyOf(batch)
		batch.Marks = nil
	case m == countsTwice && often:
		twice := copyOf(batch)
		twice.Marks = nil
		_, _ = s.Store.Apply(ctx, twice)
	case m == losesSilently && often:
		batch = copyOf(batch)
		for i := range batch.Keys {
			batch.Keys[i].Cells = nil
		}
		clear(batch.Ledger)
	}
	return batch
}

// passes notes a shard's state, and returns it. For hidesLosses the caller sees that of a store that
// has never lost anything.
func (s *store) passes(shard uint32, state *storage.State, loss *storage.Loss) storage.State {
	is := *state
	s.states[shard] = is
	if s.world.o.mutation == hidesLosses {
		s.hidden++
		*state, *loss = storage.State{Generation: 1, Version: s.hidden}, storage.Loss{}
	}
	return is
}

// copy remembers the store as it is, for goBack.
func (s *store) copy() {
	s.copies = append(s.copies, copied{s.Snapshot(), s.offset, slices.Clone(s.log), maps.Clone(s.states)})
	if len(s.copies) > 3 {
		s.copies = s.copies[1:]
	}
}

// goBack lets the store come back as it was, or empty.
func (s *store) goBack(to copied) {
	s.world.noticedAt = append(s.world.noticedAt, s.world.noticed())
	if to.data == nil {
		s.Lose()
	} else {
		s.Restore(to.data)
	}
	for _, r := range s.log {
		r.stored, r.lost = false, true
	}
	for _, r := range to.log {
		r.stored, r.report.counted = true, r.counted
	}
	s.log, s.offset = slices.Clone(to.log), to.offset
	clear(s.states)
	maps.Copy(s.states, to.states)
}
