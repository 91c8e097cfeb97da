package redisstore_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/redisstore"
	"github.com/offpath-io/offpath/pkg/window"
)

// oneHit is a fold of one new report with a hit on one key.
func oneHit(shard uint32, sequence uint64) *aggregate.Fold {
	shape := window.Shape{Length: time.Hour, Buckets: 1}
	now := time.Now().UnixNano()
	return &aggregate.Fold{
		Shard:  shard,
		Now:    now,
		Marks:  []aggregate.Mark{{Epoch: 1, Sequence: sequence}},
		Rules:  []aggregate.Rule{{Name: "rule", Shape: shape, Limit: 10}},
		Ledger: []aggregate.Tally{{Counted: 1}},
		Keys:   []aggregate.Key{{Text: "key", Cells: []aggregate.Cell{{Bucket: shape.Bucket(now), Count: 1}}}},
	}
}

// within is a context for one call that has to end by then, one way or the other.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func mustApply(t *testing.T, s *redisstore.Store, fold *aggregate.Fold) aggregate.Applied {
	t.Helper()
	applied, err := s.Apply(within(t, 10*time.Second), fold)
	if err != nil {
		t.Fatal(err)
	}
	return applied
}

func mustJoin(t *testing.T, s *redisstore.Store, shards int) aggregate.Fleet {
	t.Helper()
	fleet, err := s.Join(within(t, 10*time.Second), shards)
	if err != nil {
		t.Fatal(err)
	}
	return fleet
}

func counted(t *testing.T, s *redisstore.Store) int64 {
	t.Helper()
	l, err := s.Ledger(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return l["rule"].Counted
}

func TestJoinTellsTheTime(t *testing.T) {
	s := open(t, serverstest.Redis(t).URL())
	fleet := mustJoin(t, s, 0)
	if off := time.Since(fleet.Time); off < -time.Second || off > time.Second {
		t.Errorf("the store's time is off by %v", off)
	}
	if fleet.Shards != 1 {
		t.Errorf("%d shards on a single Redis, want 1", fleet.Shards)
	}
}

func TestNobodyThere(t *testing.T) {
	r := serverstest.Redis(t)
	url := r.URL()
	if err := r.Kill(); err != nil {
		t.Fatal(err)
	}
	s := open(t, strings.Replace(url, "redis://", "redis://:secret@", 1))
	begin := time.Now()
	_, err := s.Join(t.Context(), 1)
	if err == nil || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), r.Addr()) {
		t.Errorf("Join: %v", err)
	}
	if took := time.Since(begin); took > 3*time.Second {
		t.Errorf("it took %v", took)
	}
}

func TestAWrongPasswordIsNotShown(t *testing.T) {
	r := serverstest.Redis(t)
	admin := redis.NewClient(&redis.Options{Addr: r.Addr()})
	defer admin.Close()
	if err := admin.ConfigSet(t.Context(), "requirepass", "right").Err(); err != nil {
		t.Fatal(err)
	}
	_, err := open(t, strings.Replace(r.URL(), "redis://", "redis://:secret@", 1)).Join(t.Context(), 1)
	if err == nil || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "WRONGPASS") {
		t.Errorf("Join: %v", err)
	}
	mustJoin(t, open(t, strings.Replace(r.URL(), "redis://", "redis://:right@", 1)), 1)
}

func TestTheScriptIsLoadedAgain(t *testing.T) {
	r := serverstest.Redis(t)
	s := open(t, r.URL())
	mustJoin(t, s, 1)
	mustApply(t, s, oneHit(0, 1))
	admin := redis.NewClient(&redis.Options{Addr: r.Addr()})
	defer admin.Close()
	if err := admin.ScriptFlush(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	mustApply(t, s, oneHit(0, 2))
	if got := counted(t, s); got != 2 {
		t.Errorf("counted %d", got)
	}
}

// A Redis that hangs has the fold when it goes on, though the worker has given up long ago; sent
// again, it is a repeat.
func TestHanging(t *testing.T) {
	r := serverstest.Redis(t)
	s := open(t, r.URL())
	mustJoin(t, s, 1)
	mustApply(t, s, oneHit(0, 1))
	if err := r.Pause(); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if _, err := s.Apply(within(t, 300*time.Millisecond), oneHit(0, 2)); err == nil {
		t.Error("Apply: no error")
	}
	if took := time.Since(begin); took > time.Second {
		t.Errorf("Apply took %v though its context ended after 300 ms", took)
	}
	if _, err := s.Join(t.Context(), 1); err == nil || time.Since(begin) > 6*time.Second {
		t.Errorf("Join: %v, after %v", err, time.Since(begin))
	}
	if err := r.Resume(); err != nil {
		t.Fatal(err)
	}
	if got := mustApply(t, s, oneHit(0, 2)).Repeated; !slices.Equal(got, []int{0}) {
		t.Errorf("repeated: %v", got)
	}
	if got := counted(t, s); got != 2 {
		t.Errorf("counted %d", got)
	}
}

// A Redis that has no room refuses a fold as a whole.
func TestOutOfMemory(t *testing.T) {
	r := serverstest.Redis(t)
	s := open(t, r.URL())
	mustJoin(t, s, 1)
	mustApply(t, s, oneHit(0, 1))
	admin := redis.NewClient(&redis.Options{Addr: r.Addr()})
	defer admin.Close()
	if err := admin.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Apply(t.Context(), oneHit(0, 2)); err == nil || !strings.Contains(err.Error(), "OOM") {
		t.Errorf("Apply: %v", err)
	}
	if got := counted(t, s); got != 1 {
		t.Errorf("counted %d", got)
	}
	if err := admin.ConfigSet(t.Context(), "maxmemory", "0").Err(); err != nil {
		t.Fatal(err)
	}
	applied := mustApply(t, s, oneHit(0, 2))
	if len(applied.Repeated) > 0 || applied.State.Version != 2 || applied.Totals[0][0].Count != 2 {
		t.Errorf("with room again: %+v", applied)
	}
}

// oneLease is a lease fold in which one checker, which knows of so many permits, wants more of a key.
func oneLease(now time.Time, known, want int64) *aggregate.LeaseFold {
	shape := window.Shape{Length: time.Hour, Buckets: 1}
	return &aggregate.LeaseFold{
		Now:   now.UnixNano(),
		Rules: []aggregate.Rule{{Name: "rule", Shape: shape, Limit: 10}},
		Keys: []aggregate.LeaseKey{{Text: "key", Asks: []aggregate.Ask{
			{Epoch: 1, Bucket: shape.Bucket(now.UnixNano()), Known: known, Want: want},
		}}},
	}
}

func mustLease(t *testing.T, s *redisstore.Store, fold *aggregate.LeaseFold) aggregate.Leased {
	t.Helper()
	leased, err := s.Lease(within(t, 10*time.Second), fold)
	if err != nil {
		t.Fatal(err)
	}
	return leased
}

// Permits are of the bucket by the earlier of two clocks: what has melted has done so by both.
func TestPermitsByTheEarlierClock(t *testing.T) {
	s := open(t, serverstest.Redis(t).URL())
	before := time.Now().Truncate(time.Millisecond)
	for _, ahead := range []time.Duration{0, 5 * time.Hour, -5 * time.Hour} {
		fold := oneLease(before.Add(ahead), 0, 1)
		got := mustLease(t, s, fold)
		latest := min(time.Now().UnixNano(), fold.Now)
		if got.Now > latest || got.Now < min(before.UnixNano(), fold.Now) || got.Keys[0].Bucket != fold.Rules[0].Shape.Bucket(got.Now) {
			t.Errorf("%v ahead: %+v", ahead, got)
		}
	}
}

// A Redis that hangs has the permits granted when it goes on, though the worker has given up long ago; who
// asks again is told of them, and gets no others.
func TestHangingLease(t *testing.T) {
	r := serverstest.Redis(t)
	s := open(t, r.URL())
	now := time.Now()
	mustLease(t, s, oneLease(now, 0, 1))
	if err := r.Pause(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Lease(within(t, 300*time.Millisecond), oneLease(now, 1, 4)); err == nil {
		t.Error("Lease: no error")
	}
	if err := r.Resume(); err != nil {
		t.Fatal(err)
	}
	if got := mustLease(t, s, oneLease(now, 1, 4)).Keys[0]; got.Asks[0].Current != 5 || got.New != 0 {
		t.Errorf("asked again: %+v", got)
	}
}

// A Redis that has no room refuses a lease fold as a whole, and one that has room again grants it. A
// fold that changes nothing needs none.
func TestLeaseOutOfMemory(t *testing.T) {
	r := serverstest.Redis(t)
	s := open(t, r.URL())
	admin := redis.NewClient(&redis.Options{Addr: r.Addr()})
	defer admin.Close()
	now := time.Now()
	before := mustLease(t, s, oneLease(now, 0, 1))
	if err := admin.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Lease(t.Context(), oneLease(now, 1, 4)); err == nil || !strings.Contains(err.Error(), "OOM") {
		t.Errorf("Lease: %v", err)
	}
	if got := mustLease(t, s, oneLease(now, 0, 4)); got.State != before.State || got.Keys[0].Held[0].Count != 1 {
		t.Errorf("without room: %+v", got)
	}
	if err := admin.ConfigSet(t.Context(), "maxmemory", "0").Err(); err != nil {
		t.Fatal(err)
	}
	if got := mustLease(t, s, oneLease(now, 1, 4)); got.Keys[0].Asks[0].Current != 5 || got.State.Version != 2 {
		t.Errorf("with room again: %+v", got)
	}
}

// A Redis that is killed and comes back empty, while somebody remembers it, grants nothing for a window.
func TestLeaseAfterARestart(t *testing.T) {
	r := serverstest.Redis(t)
	s := open(t, r.URL())
	now := time.Now()
	before := mustLease(t, s, oneLease(now, 0, 10))
	if err := r.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	fold := oneLease(now, 0, 10)
	fold.Seen = before.State
	var after aggregate.Leased
	for range 3 { // connections of the past fail first
		var err error
		if after, err = s.Lease(within(t, 10*time.Second), fold); err == nil {
			break
		}
	}
	if after.Lost < before.Now || after.Keys[0].New != 0 || after.State.Generation <= before.State.Generation {
		t.Errorf("%+v after %+v", after, before)
	}
	// A counter's fold keeps it in mind, and so does the next.
	mustJoin(t, s, 1)
	counted := oneHit(0, 1)
	counted.Seen = after.State
	fold.Seen = mustApply(t, s, counted).State
	if again := mustLease(t, s, fold); again.Lost != after.Lost || again.Keys[0].New != 0 {
		t.Errorf("%+v after %+v", again, after)
	}
}

func TestRestartWithoutData(t *testing.T) {
	r := serverstest.Redis(t)
	s := open(t, r.URL())
	mustJoin(t, s, 3)
	before := mustApply(t, s, oneHit(2, 1)).State
	if err := r.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	var fleet aggregate.Fleet
	for range 3 { // connections of the past fail first
		var err error
		if fleet, err = s.Join(t.Context(), 3); err == nil {
			break
		}
	}
	if fleet.Shards != 3 {
		t.Fatalf("%+v", fleet)
	}
	fold := oneHit(2, 2)
	fold.Seen = before
	if after := mustApply(t, s, fold); after.State.Generation <= before.Generation || after.Totals[0][0].Count != 1 {
		t.Errorf("%+v after %+v", after, before)
	}
}

// A dead node of a cluster holds up its own shards only, also when it hangs.
func TestClusterWithADeadNode(t *testing.T) {
	cluster := serverstest.RedisCluster(t)
	s := open(t, "redis://"+strings.Join(cluster.Addrs(), ","))
	shards := mustJoin(t, s, 0).Shards
	if shards != 12 {
		t.Fatalf("%d shards on 3 masters, want 12", shards)
	}
	for shard := range shards {
		mustApply(t, s, oneHit(uint32(shard), 1))
	}
	if err := cluster.Node(1).Pause(); err != nil {
		t.Fatal(err)
	}
	alive := 0
	for shard := range shards {
		begin := time.Now()
		_, err := s.Apply(within(t, 500*time.Millisecond), oneHit(uint32(shard), 2))
		if err == nil {
			alive++
		} else if !errors.Is(err, context.DeadlineExceeded) && !strings.Contains(err.Error(), "timeout") {
			t.Errorf("shard %d: %v", shard, err)
		}
		if took := time.Since(begin); err == nil && took > 400*time.Millisecond {
			t.Errorf("shard %d took %v", shard, took)
		}
	}
	if alive == 0 || alive == shards {
		t.Errorf("%d of %d shards alive", alive, shards)
	}
	if err := cluster.Node(1).Resume(); err != nil {
		t.Fatal(err)
	}
	for shard := range shards {
		applied, err := s.Apply(within(t, 10*time.Second), oneHit(uint32(shard), 2))
		if err != nil || len(applied.Repeated) != 1 && applied.Totals[0][0].Count != 2 {
			t.Errorf("shard %d: %+v, %v", shard, applied, err)
		}
	}
	if got := counted(t, s); got != int64(2*shards) {
		t.Errorf("counted %d, want %d", got, 2*shards)
	}
}

func TestASingleAddressOfACluster(t *testing.T) {
	_, err := open(t, "redis://"+serverstest.RedisCluster(t).Addrs()[0]).Join(t.Context(), 0)
	if err == nil || !strings.Contains(err.Error(), "several of its addresses") {
		t.Errorf("Join: %v", err)
	}
}
