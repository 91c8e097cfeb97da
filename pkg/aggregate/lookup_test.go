package aggregate_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/internal/wire"
	"github.com/offpath-io/offpath/pkg/aggregate/memstore"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/window"
)

// Look says what checkers have reported, and Reset gives all of it back; of that key only.
func TestLookupAndReset(t *testing.T) {
	for name, shape := range map[string]window.Shape{
		"sliding":       {Length: time.Minute, Buckets: 1},
		"in 60 buckets": {Length: time.Minute, Buckets: 60},
		"fixed":         {Length: time.Minute, Buckets: 1, Fixed: true},
		"log":           {Length: time.Minute, Buckets: 100, Kind: window.Log},
		"token bucket":  {Length: time.Minute, Buckets: 60, Kind: window.Token},
		"leaky bucket":  {Length: time.Minute, Buckets: 60, Kind: window.Leaky},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := run(t, memstore.New())
				time.Sleep(30 * time.Second) // into the middle of a minute
				rule := storage.Rule{Name: "r", Shape: shape, Limit: 120, Burst: 100, Revision: 1}
				if shape.Drains() {
					rule.Limit = 1 // per minute, so that nothing to speak of drains meanwhile
				}
				now := time.Now().UnixNano()
				admitted := wire.Rule(&rule, shape.Bucket(now))
				denied := wire.Rule(&rule, shape.Bucket(now))
				denied.Denied = true
				m := report(1, 1, admitted, own{"k", 0, 100}, own{"other", 0, 7})
				addHits(m, denied, own{"k", 0, 5})
				r.exchange(m)
				s := r.look(rule, "k")
				room := int64(20)
				if shape.Drains() {
					room = 0
				}
				if s.Count < 98 || s.Count > 100 || s.Remaining < room || s.Remaining > room+1 || s.Denied != 5 || s.FreeAfter <= 0 ||
					(s.RetryAfter > 0) != (s.Remaining == 0) {
					t.Errorf("before: %+v", s)
				}
				before, after, err := r.worker.Reset(t.Context(), rule, "k")
				if err != nil {
					t.Fatal(err)
				}
				if before.Count < 98 || after.Count != 0 || after.Remaining != after.Limit || after.RetryAfter != 0 || after.FreeAfter != 0 {
					t.Errorf("reset: %+v, then %+v", before, after)
				}
				if again, _, err := r.worker.Reset(t.Context(), rule, "k"); err != nil || again.Count != 0 {
					t.Errorf("reset again: %+v, %v", again, err)
				}
				if s := r.look(rule, "other"); s.Count < 5 || s.Count > 7 {
					t.Errorf("the other key: %+v", s)
				}
				r.exchange(report(1, 2, admitted, own{"k", 0, 3}))
				if s := r.look(rule, "k"); s.Count < 1.9 || s.Count > 3 {
					t.Errorf("after three more: %+v", s)
				}
			})
		})
	}
}

func (r *running) look(rule storage.Rule, key string) aggregate.KeyState {
	r.t.Helper()
	s, err := r.worker.Lookup(r.t.Context(), rule, key)
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// A look at a key changes nothing in the store: whoever counts the shard's reports goes on as if
// nobody had looked.
func TestALookupIsNoBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		counts, looks := run(t, store), run(t, store)
		for i := range uint64(5) {
			counts.exchange(report(1, i+1, perMinute(time.Now().UnixNano()), own{"k", 0, 1}))
			if version := counts.refreshes.only().GetVersion(); version != i+1 {
				t.Errorf("after %d batches, and as many looks but one, version %d", i+1, version)
			}
			if s := looks.look(minutely, "k"); s.Count != float64(i+1) {
				t.Errorf("%+v", s)
			}
		}
	})
}

// minutely is the rule of perMinute.
var minutely = storage.Rule{
	Name: "per-minute", Shape: window.Shape{Length: time.Minute, Buckets: 60}, Limit: 100, Revision: 1,
}

// Two aggregators may be asked to reset a key at once, by two people or by one who asks again. What
// both gave back would be given twice: as many hits of the same bucket would pass for nothing
// afterwards.
func TestResetsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		one, other := run(t, store), run(t, store)
		now := time.Now().UnixNano()
		// The second hit is ahead of the aggregators' clock: what is given back has to be of its
		// own bucket.
		sequence := uint64(0)
		hit := func(at int64, hits uint64) {
			sequence++
			one.exchange(report(1, sequence, perMinute(at), own{"k", 0, hits}))
		}
		hit(now, 100)
		hit(now+second, 40)
		var resets sync.WaitGroup
		for _, r := range []*running{one, other} {
			resets.Go(func() {
				before, after, err := r.worker.Reset(t.Context(), minutely, "k")
				if err != nil || before.Count != 140 || after.Count != 0 {
					t.Errorf("%+v, then %+v, %v", before, after, err)
				}
			})
		}
		resets.Wait()
		wantLedger(t, "after both", store, "per-minute", storage.RuleLedger{Counted: 140, Refunded: 140})
		hit(now, 100)
		hit(now+second, 40)
		if s := one.look(minutely, "k"); s.Count != 140 {
			t.Errorf("after as many more: %+v", s)
		}
	})
}

// Permits that are held come back, so a key under strict enforcement has room again.
func TestResetOfPermits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, memstore.New())
		now := time.Now().UnixNano()
		ask := func(sequence, known uint64) uint64 {
			t.Helper()
			r.exchange(leaseRequest(1, sequence, perMinute(now), wish{key: "k", known: known, want: 100}))
			return r.grants.only().Granted[0]
		}
		granted := ask(1, 0)
		r.exchange(report(1, 1, perMinute(now), own{"k", 0, granted}))
		if again := ask(2, granted); again != granted {
			t.Fatalf("%d granted, then %d: there was room left", granted, again)
		}
		if _, _, err := r.worker.Reset(t.Context(), minutely, "k"); err != nil {
			t.Fatal(err)
		}
		if again := ask(3, granted); again < granted+50 {
			t.Errorf("%d granted, and after the reset %d in all", granted, again)
		}
	})
}

func TestLookupWithoutAStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rule, away := minutely, errors.New("away")
		store := &faulty{Store: memstore.New(), faults: faults{join: away}}
		r := run(t, store)
		if _, err := r.worker.Lookup(t.Context(), rule, "k"); !errors.Is(err, aggregate.ErrNotJoined) {
			t.Errorf("never reached: %v", err)
		}
		store.have(faults{})
		time.Sleep(10 * time.Second)
		store.have(faults{before: away})
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if _, err := r.worker.Lookup(ctx, rule, "k"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("gone: %v", err)
		}
		store.have(faults{})
		r.look(rule, "k") // it is back
		for _, bad := range []storage.Rule{{Shape: rule.Shape, Limit: 10}, {Name: "r", Limit: 10}} {
			if _, err := r.worker.Lookup(t.Context(), bad, "k"); !errors.Is(err, aggregate.ErrKey) {
				t.Errorf("%+v: %v", bad, err)
			}
		}
	})
}
