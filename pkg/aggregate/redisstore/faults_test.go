package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/offpath-io/offpath/internal/testing/storetest"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/window"
)

func TestJoinTellsTheTime(t *testing.T) {
	empty(t)
	before := time.Now().Truncate(time.Microsecond)
	fleet := mustJoin(t, open(t, Options{}), 0)
	if fleet.Time.Before(before) || fleet.Time.After(time.Now()) {
		t.Errorf("the store's time is %v after the test's", fleet.Time.Sub(before))
	}
	if fleet.Shards != 1 {
		t.Errorf("%d shards on a single Redis, want 1", fleet.Shards)
	}
}

func TestErrorsDoNotShowThePassword(t *testing.T) {
	admin := empty(t)
	noError(t, admin.Do(t.Context(), "ACL", "SETUSER", "joe", "on", ">right", "~*", "&*", "+@all").Err())
	for url, want := range map[string]string{
		"redis://:secret@127.0.0.1:1":         "127.0.0.1:1", // where nobody listens
		"redis://joe:secret@" + server.Addr(): "WRONGPASS",
	} {
		_, err := open(t, Options{URL: url}).Join(t.Context(), 1)
		if err == nil || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), want) {
			t.Errorf("Join: %v; want %q", err, want)
		}
	}
	mustJoin(t, open(t, Options{URL: "redis://joe:right@" + server.Addr()}), 1)
}

// A Redis that hangs carries out what it has when it goes on, though the worker has given up long
// ago: a batch that is sent again is a repeat, and who asks again for permits is told of them.
func TestRedisHangs(t *testing.T) {
	s, _ := newStore(t, 1)
	now := time.Now().UnixNano()
	mustApply(t, s, oneHit(now, 0, 1))
	mustLease(t, s, oneLease(now, 0, 1))
	impatient := openImpatient(t, Options{})
	joinAgain(t, impatient, 1)
	t.Cleanup(func() { _ = server.Resume() })
	repeated, granted := false, false
	// Where this process stands still, it may give up before it has sent anything: then the next
	// try.
	for n := int64(2); n <= 10 && !(repeated && granted); n++ {
		noError(t, server.Pause())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if _, err := s.Apply(ctx, oneHit(now, 0, uint64(n))); err == nil { // ends with its context
			t.Error("Apply: no error")
		}
		cancel()
		if _, err := impatient.Lease(t.Context(), oneLease(now, n-1, 1)); err == nil { // ends by itself
			t.Error("Lease: no error")
		}
		noError(t, server.Resume())
		repeated = len(mustApply(t, s, oneHit(now, 0, uint64(n))).Repeated) > 0 || repeated
		wantCounted(t, s, n)
		got := mustLease(t, s, oneLease(now, n-1, 1)).Keys[0]
		if granted = got.New == 0 || granted; got.Grants[0].Current != n {
			t.Errorf("asked again: %+v, want %d permits", got, n)
		}
	}
	if !repeated || !granted {
		t.Errorf("what came while Redis hung: the batch was carried out: %v, the lease: %v", repeated, granted)
	}
}

// A Redis that has no room refuses a batch as a whole, and one that has room again carries it out.
// A lease batch that changes nothing needs none.
func TestRedisIsOutOfMemory(t *testing.T) {
	s, admin := newStore(t, 1)
	now := time.Now().UnixNano()
	mustApply(t, s, oneHit(now, 0, 1))
	before := mustLease(t, s, oneLease(now, 0, 1))
	set(t, admin, "maxmemory", "1")
	_, err := s.Apply(t.Context(), oneHit(now, 0, 2))
	if err == nil || !strings.Contains(err.Error(), "OOM") || errors.Is(err, storage.ErrBatch) { // which is not the batch's fault
		t.Errorf("Apply: %v", err)
	}
	wantCounted(t, s, 1)
	if _, err := s.Lease(t.Context(), oneLease(now, 1, 4)); err == nil || !strings.Contains(err.Error(), "OOM") {
		t.Errorf("Lease: %v", err)
	}
	if got := mustLease(t, s, oneLease(now, 0, 4)); got.State != before.State || got.Keys[0].Held[0].Count != 1 {
		t.Errorf("without room: %+v", got)
	}
	set(t, admin, "maxmemory", "0")
	applied := mustApply(t, s, oneHit(now, 0, 2))
	if len(applied.Repeated) > 0 || applied.State.Version != 3 || applied.Totals[0][0].Count != 2 {
		t.Errorf("with room again: %+v", applied)
	}
	if got := mustLease(t, s, oneLease(now, 1, 4)); got.Keys[0].Grants[0].Current != 5 || got.State.Version != 4 {
		t.Errorf("with room again: %+v", got)
	}
}

// A Redis that is killed and comes back empty, while somebody remembers it, starts a new
// generation, and grants nothing for a window.
func TestRedisComesBackEmpty(t *testing.T) {
	s, _ := newStore(t, 3)
	now := time.Now().UnixNano()
	counts := mustApply(t, s, oneHit(now, 2, 1)).State
	permits := mustLease(t, s, oneLease(now, 0, 10))
	noError(t, server.Restart(t.Context()))
	if got := joinAgain(t, s, 3).Shards; got != 3 {
		t.Fatalf("%d shards", got)
	}
	batch := oneHit(now, 2, 2)
	batch.Seen = counts
	if after := mustApply(t, s, batch); after.State.Generation <= counts.Generation || after.Totals[0][0].Count != 1 {
		t.Errorf("%+v after %+v", after, counts)
	}

	ask := oneLease(now, 0, 10)
	ask.Seen = permits.State
	after := mustLease(t, s, ask)
	if after.Keys[0].Lost == 0 || after.Keys[0].New != 0 || after.State.Generation <= permits.State.Generation {
		t.Errorf("%+v after %+v", after, permits)
	}
	// A counter's batch keeps it in mind, and so does the next.
	counted := oneHit(now, 0, 1)
	counted.Seen = after.State
	ask.Seen = mustApply(t, s, counted).State
	if again := mustLease(t, s, ask); again.Keys[0].Lost == 0 || again.Keys[0].New != 0 {
		t.Errorf("%+v after %+v", again, after)
	}
}

// After the marks nothing in the script may fail: whatever is wrong is found before, or passed
// over.
func TestScriptDoesNotStopHalfWay(t *testing.T) {
	s, _ := newStoreOf(t, 1, Options{Remember: -1})
	now := time.Now().UnixNano()
	mustApply(t, s, hitAt(now, 0, 1, 1))

	noError(t, s.Client().Do(t.Context(), "ACL", "SETUSER", "limited", "on", ">pw", "~*", "&*", "+@all", "-pexpireat").Err())
	limited := open(t, Options{URL: "redis://limited:pw@" + server.Addr(), Remember: -1})
	mustJoin(t, limited, 1)
	if applied, err := limited.Apply(t.Context(), hitAt(now, 0, 2, 0)); err == nil || errors.Is(err, storage.ErrBatch) {
		t.Errorf("without the right to set an expiry: %+v, %v", applied, err)
	}
	if applied := mustApply(t, s, hitAt(now, 0, 2, 0)); len(applied.Repeated) > 0 {
		t.Errorf("what was refused is not new any more: %+v", applied)
	}

	// Somebody has put something else where the previous bucket was.
	names := keysOf(t, s.Client(), fmt.Sprintf("offpath:{0}:1:*:%d:*", hourly.Bucket(now)-1))
	if len(names) != 1 {
		t.Fatal(names)
	}
	noError(t, s.Client().Set(t.Context(), names[0], "nonsense", 0).Err())
	applied := mustApply(t, s, hitAt(now, 0, 3, 0))
	if len(applied.Repeated) > 0 || len(applied.Totals[0]) != 1 || applied.Totals[0][0].Count != 2 {
		t.Errorf("%+v; want the current bucket's 2", applied)
	}
	wantCounted(t, s, 3)
}

// A server that may evict what has been counted is refused whenever a connection is made: after a
// restart or a failover it need not be the one that was looked at before.
func TestEvictionIsLookedForAtEachConnection(t *testing.T) {
	s, admin := newStore(t, 1)
	now := time.Now().UnixNano()
	mustApply(t, s, oneHit(now, 0, 1))
	set(t, admin, "maxmemory", "100mb")
	set(t, admin, "maxmemory-policy", "allkeys-lru")
	noError(t, admin.ClientKillByFilter(t.Context(), "TYPE", "normal", "SKIPME", "yes").Err())
	var err error
	try(func() bool { // the first one may fail for its connection has ended
		_, err = s.Apply(t.Context(), oneHit(now, 0, 2))
		return err == nil || strings.Contains(err.Error(), "noeviction")
	})
	if err == nil || !strings.Contains(err.Error(), "noeviction") {
		t.Errorf("Apply, connected anew: %v", err)
	}
	set(t, admin, "maxmemory-policy", "noeviction")
	mustApply(t, s, oneHit(now, 0, 2))
}

// A node whose clock is set ahead, or another one with such a clock, has forgotten permits that are
// still held. It grants none of these rules until they have left the window; permits of longer
// windows are still there. The clock is set by pretending that it was behind before.
func TestNoPermitsAfterAStepOfTheNodesClock(t *testing.T) {
	const limit = 10
	for _, tt := range []struct {
		why    string
		by     time.Duration
		length time.Duration
		quiet  bool
	}{
		{"a minute ahead", time.Minute, time.Second, true},
		{"a minute ahead, in a longer window", time.Minute, time.Hour, false},
		{"a second ahead, for which there is room", time.Second, 100 * time.Millisecond, false},
		{"three seconds ahead", 3 * time.Second, 100 * time.Millisecond, true},
		{"a minute back", -time.Minute, time.Second, false},
	} {
		s, admin := newStore(t, 1)
		shape := window.Shape{Length: tt.length, Buckets: 1, Fixed: true}
		lease := func(key int, epoch uint64) storage.LeasedKey {
			now := time.Now().UnixNano()
			f := borrowers(now, "rule", key, 1)
			f.Rules[0].Shape, f.Keys[0].Requests[0] = shape, storage.LeaseRequest{Epoch: epoch, Bucket: shape.Bucket(now), Want: limit}
			return mustLease(t, s, f).Keys[0]
		}
		var before, after storage.LeasedKey
		var stepped time.Time
		for key := 0; ; key++ {
			if key == 100 {
				t.Fatal("calls take too long, and so step the clock themselves")
			}
			began := time.Now()
			before = lease(key, 1)
			ahead := must(admin.HGet(t.Context(), "offpath:{0}:meta", "ahead").Int64())(t)
			noError(t, admin.HSet(t.Context(), "offpath:{0}:meta", "ahead", ahead-tt.by.Milliseconds()).Err())
			noError(t, admin.Del(t.Context(), keysOf(t, admin, "offpath:{0}:[hg]:*")...).Err())
			stepped = time.Now()
			after = lease(key, 2)
			if time.Since(began) < 400*time.Millisecond {
				break
			}
			noError(t, admin.FlushAll(t.Context()).Err())
		}
		if before.New != limit || before.Lost != 0 {
			t.Errorf("%s: before, %+v", tt.why, before)
		}
		if tt.quiet != (after.New == 0) || tt.quiet != (after.Lost > 0) {
			t.Errorf("%s: after it, %+v", tt.why, after)
		}
		for tt.quiet && after.New == 0 && time.Since(stepped) < time.Minute {
			after = lease(0, 3)
		}
		if took := time.Since(stepped); after.New != limit || tt.quiet && took < tt.length {
			t.Errorf("%s: after %v, %+v", tt.why, took, after)
		}
	}
}

// A replica that takes over without the last batches of an aggregator has lost them, also if it has
// had more batches of others since then: the next batch of that aggregator shows it, once, even one
// that only reads. Nothing is lost if an answer was, or if only others have gone on.
func TestOthersAreCountedInPlaceOfLostBatches(t *testing.T) {
	now := time.Now().UnixNano()
	sequence := uint64(0)
	hit := func(t *testing.T, s *Store, seen storage.State) storage.State {
		sequence++
		f := oneHit(now, 0, sequence)
		f.Seen = seen
		return mustApply(t, s, f).State
	}
	for _, tt := range []struct {
		what string
		last func(t *testing.T, s *Store, seen storage.State) storage.State // what Redis loses
		lost bool
	}{
		{"a batch", hit, true},
		{"permits", func(t *testing.T, s *Store, seen storage.State) storage.State {
			f := oneLease(now, 0, 1)
			f.Seen = seen
			return mustLease(t, s, f).State
		}, true},
		{"a batch without an answer", func(t *testing.T, s *Store, seen storage.State) storage.State {
			sequence++
			c := newCall(s, oneHit(now, 0, sequence))
			c.expect(s.shard(0).chain, newID(), true, 0)
			must(s.eval(t.Context(), &c.frame, applyScript, applySource))(t)
			return seen
		}, false},
		{"a batch without an answer, which is repeated", func(t *testing.T, s *Store, seen storage.State) storage.State {
			sequence++
			c := newCall(s, oneHit(now, 0, sequence))
			c.expect(s.shard(0).chain, newID(), true, 0)
			must(s.eval(t.Context(), &c.frame, applyScript, applySource))(t)
			f := oneHit(now, 0, sequence)
			if f.Seen = seen; len(mustApply(t, s, f).Repeated) != 1 {
				t.Error("it is no repeat")
			}
			return mustApply(t, s, onlyReading(f)).State // by which it is answered
		}, true},
		{"a batch that only reads", func(t *testing.T, s *Store, seen storage.State) storage.State {
			return mustApply(t, s, &storage.Batch{Now: now, Seen: seen}).State
		}, false},
	} {
		for _, finds := range []string{"a batch", "a probe", "permits"} {
			t.Run(tt.what+", found by "+finds, func(t *testing.T) {
				one, _ := newStore(t, 1)
				other := open(t, Options{})
				mustJoin(t, other, 1)
				seen := hit(t, one, hit(t, other, storage.State{}))
				restore := storetest.Masters{UniversalClient: one.Client()}.Snapshot(t)
				before := tt.last(t, one, seen)
				restore()
				theirs := seen
				for range 3 {
					theirs = hit(t, other, theirs)
				}
				var after storage.State
				var loss storage.Loss
				switch finds {
				case "permits":
					f := oneLease(now, 0, 1)
					f.Seen = before
					got := mustLease(t, one, f)
					after, loss = got.State, got.Loss
				default:
					f := oneHit(now, 0, sequence+1)
					if f.Seen = before; finds == "a probe" {
						f = &storage.Batch{Now: now, Seen: before}
					} else {
						sequence++
					}
					got := mustApply(t, one, f)
					after, loss = got.State, got.Loss
				}
				if lost := after.Generation > before.Generation; lost != tt.lost {
					t.Fatalf("state %v after %v and %v: lost is %v", after, before, theirs, lost)
				}
				if n, _ := loss.Batches(); tt.lost && (n != 1 || !strings.Contains(loss.String(), "others were counted")) {
					t.Errorf("the loss is of %d batches, %v", n, loss)
				}
				if again := hit(t, other, hit(t, one, after)); again.Generation != after.Generation {
					t.Errorf("it is found again: %v after %v", again, after)
				}
			})
		}
	}
}

// What a store was told of a generation is compared within that generation only, in whatever order
// answers come; and if Redis has forgotten the number, as it does after a day, nothing is lost.
func TestOwnBatches(t *testing.T) {
	var o ownBatches
	for i, step := range []struct {
		generation uint64
		batches    int64
		seen       uint64
		want       int64
	}{
		{5, 1, 5, 1}, {5, 3, 5, 3}, {5, 2, 5, 3}, {5, 3, 4, 0}, {5, 3, 6, 0},
		{7, 2, 7, 2}, {5, 9, 7, 2}, {5, 9, 5, 0}, {7, 3, 7, 3},
	} {
		o.note(step.generation, step.batches)
		if got := o.expected(storage.State{Generation: step.seen, Version: 9}); got != step.want {
			t.Errorf("step %d: %d, want %d", i, got, step.want)
		}
	}

	s, admin := newStore(t, 1)
	now := time.Now().UnixNano()
	own := func() string {
		keys := wantExpiry(t, admin, "own batches", "offpath:{0}:by:*", 23*time.Hour, markLife)
		if len(keys) != 1 {
			t.Fatalf("keys %q", keys)
		}
		return keys[0]
	}
	var seen storage.State
	for sequence := range uint64(4) {
		f := oneHit(now, 0, sequence+1)
		f.Seen = seen
		got := mustApply(t, s, f).State
		if seen.Generation != 0 && got.Generation != seen.Generation {
			t.Errorf("batch %d: %v after %v", sequence, got, seen)
		}
		seen = got
		if n := admin.Get(t.Context(), own()).Val(); n != fmt.Sprint(sequence+1) {
			t.Errorf("batch %d: Redis has %s", sequence, n)
		}
		if sequence == 2 {
			noError(t, admin.Del(t.Context(), own()).Err())
			mustApply(t, s, &storage.Batch{Now: now, Seen: seen}) // a probe
		}
	}
}

// A generation that another aggregator has begun is none of which this one was told.
func TestAGenerationOfAnotherIsNoLoss(t *testing.T) {
	one, _ := newStore(t, 1)
	other := open(t, Options{})
	mustJoin(t, other, 1)
	now, sequence := time.Now().UnixNano(), uint64(0)
	hit := func(s *Store, seen storage.State) storage.State {
		sequence++
		f := oneHit(now, 0, sequence)
		f.Seen = seen
		return mustApply(t, s, f).State
	}
	seen := hit(one, storage.State{})
	restore := storetest.Masters{UniversalClient: one.Client()}.Snapshot(t)
	seen = hit(one, hit(other, seen))
	restore()
	began := hit(other, seen)
	if began.Generation == seen.Generation {
		t.Fatal("the loss is not found")
	}
	for i := range 3 {
		if got := hit(one, began); got.Generation != began.Generation {
			t.Fatalf("batch %d: it is found again: %v after %v", i, got, began)
		}
	}
}
