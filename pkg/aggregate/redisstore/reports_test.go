package redisstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/memstore"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/events"
)

// FuzzReports has two workers, one on this store and one on the one in memory, answer the same
// reports: of every algorithm, with admitted, denied and refunded rows, late, current and future
// buckets, late counts, settlements and repeats. All are answered, and alike, and both ledgers are
// the same in the end.
func FuzzReports(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		store, _ := newStore(t, 1)
		memory := memstore.New()
		ours, theirs := newAnswering(t, store), newAnswering(t, memory)
		random := rand.New(rand.NewPCG(seed, 0))
		now, sequence := time.Now().UnixNano(), uint64(0)
		for range 8 {
			now += random.Int64N(int64(40 * time.Second))
			sequence++
			for epoch := range 1 + random.Uint64N(4) {
				m := randomReport(random, now)
				m.Epoch, m.Sequence = epoch+1, sequence-random.Uint64N(min(sequence, 2))
				ours.send(now, m)
				theirs.send(now, m)
			}
			a, b := ours.step(now), theirs.step(now)
			if !slices.Equal(a, b) {
				t.Fatalf("seed %d: Redis answers\n%q\nmemory\n%q", seed, a, b)
			}
		}
		a, b := must(store.Ledger(t.Context()))(t), must(memory.Ledger(t.Context()))(t)
		if !reflect.DeepEqual(a, b) {
			t.Errorf("seed %d: ledgers %v and %v", seed, a, b)
		}
	})
}

// answering is a worker, and what it answers.
type answering struct {
	t       testing.TB
	worker  *aggregate.Worker
	sent    int
	answers []string
}

func newAnswering(t testing.TB, store storage.Store) *answering {
	w := must(aggregate.New(aggregate.Options{Store: timeless{store}, Bus: nowhere{}, Timeout: 5 * time.Minute}))(t)
	return &answering{t: t, worker: w}
}

func (a *answering) send(now int64, m *events.Report) {
	if a.worker.Stats().Shards == 0 {
		a.worker.Step(a.t.Context(), now)
	}
	a.sent++
	a.worker.Receive(now, events.KindReport, encode(a.t, m), func(data []byte) error {
		m, err := events.DecodeRefresh(data)
		if err != nil || m.GetError() != "" {
			a.t.Errorf("answered by %v, %v", m, err)
		}
		a.answers = append(a.answers, fmt.Sprint(m.GetEpoch(), m.GetSequence(), m.GetRepeated(),
			m.GetKeyCells(), m.GetAge(), m.GetTotal(), m.GetLevelAge(), m.GetLevel(), " overflow ", m.GetOverflow()))
		return nil
	})
}

func (a *answering) step(now int64) []string {
	a.worker.Step(a.t.Context(), now+int64(10*time.Millisecond))
	if len(a.answers) != a.sent || a.worker.Ready() != nil {
		a.t.Fatalf("%d of %d answered; ready: %v", len(a.answers), a.sent, a.worker.Ready())
	}
	answers := a.answers
	a.answers, a.sent = nil, 0
	return answers
}

// timeless is a store without a clock, so that the fleet's time is what the test says.
type timeless struct{ storage.Store }

func (s timeless) Join(ctx context.Context, shards int) (storage.Fleet, error) {
	fleet, err := s.Store.Join(ctx, shards)
	fleet.Time = time.Time{}
	return fleet, err
}

// nowhere discards alarms.
type nowhere struct{}

func (nowhere) Serve(ctx context.Context, _ func(events.Kind, []byte, func([]byte) error)) error {
	<-ctx.Done()
	return nil
}

func (nowhere) Alarm(uint32, []byte) error  { return nil }
func (nowhere) Attend([]bool, []bool) error { return nil }
func (nowhere) Tell([]byte) error           { return nil }

// randomReport has up to six rows of rules, some of them without keys.
func randomReport(random *rand.Rand, now int64) *events.Report {
	m := &events.Report{Shards: 1, Made: now, Hits: &events.Table{}}
	for i := range 1 + random.IntN(6) {
		r := randomRule(random, now)
		r.Denied = random.IntN(4) == 0
		r.Refunded = !r.Denied && random.IntN(4) == 0
		m.Hits.Rules = append(m.Hits.Rules, r)
		if random.IntN(3) == 0 {
			m.Late = append(m.Late, make([]uint64, i+1-len(m.Late))...)
			m.Late[i] = random.Uint64N(20)
		}
		for range random.IntN(3) {
			m.Hits.AddKey(uint32(i), fmt.Sprint("key ", random.IntN(3)))
			for range random.IntN(3) {
				m.Hits.AddCell(randomAge(random, r), random.Uint64N(50))
			}
		}
	}
	for range random.IntN(3) {
		r := randomRule(random, now)
		cost := 1 + random.Uint64N(9)
		r.Newest -= max(randomAge(random, r), 0)
		m.Settlements = append(m.Settlements, &events.Settlement{
			Epoch: 9, Number: 1 + random.Uint64N(10), Made: now, Hits: random.Int64N(int64(2*cost)) - int64(cost),
			Charge: &events.Charge{Rule: r, Key: []byte(fmt.Sprint("key ", random.IntN(3))), Cost: cost},
		})
	}
	return m
}

func randomRule(random *rand.Rand, now int64) *events.Rule {
	algorithm := events.Algorithm(random.IntN(len(events.Algorithm_name)))
	r := &events.Rule{
		Name: algorithm.String(), Revision: 1, WindowMs: 60_000, Buckets: 12, Algorithm: algorithm, Limit: 100, Burst: 30,
	}
	if algorithm == events.Algorithm_FIXED_WINDOW || random.IntN(3) == 0 {
		r.Buckets = 1
	}
	r.Newest = now / (int64(r.GetWindowMs()) * int64(time.Millisecond) / int64(r.GetBuckets()))
	return r
}

// randomAge is how old a bucket is: live, late or too far in the future.
func randomAge(random *rand.Rand, r *events.Rule) int64 {
	return random.Int64N(2*int64(r.GetBuckets())+5) - 3
}

// A script that fails is the batch's fault.
func TestAScriptThatFails(t *testing.T) {
	for name, value := range map[string]string{"meta": "no hash", "mark:1": "no number"} {
		s, admin := newStore(t, 1)
		noError(t, admin.Set(t.Context(), prefix(s.namespace, 0)+name, value, 0).Err())
		if _, err := s.Apply(t.Context(), hitAt(time.Now().UnixNano(), 0, 1, 0)); !errors.Is(err, storage.ErrBatch) {
			t.Errorf("%s: %v", value, err)
		}
	}
}
