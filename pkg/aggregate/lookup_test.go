package aggregate_test

import (
	"context"
	"errors"
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
				r.send(m)
				time.Sleep(10 * time.Millisecond)
				look := func(key string) aggregate.KeyState {
					t.Helper()
					s, err := r.worker.Lookup(t.Context(), rule, key)
					if err != nil {
						t.Fatal(err)
					}
					return s
				}
				s := look("k")
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
				if s := look("other"); s.Count < 5 || s.Count > 7 {
					t.Errorf("the other key: %+v", s)
				}
				r.send(report(1, 2, admitted, own{"k", 0, 3}))
				time.Sleep(10 * time.Millisecond)
				if s := look("k"); s.Count < 1.9 || s.Count > 3 {
					t.Errorf("after three more: %+v", s)
				}
			})
		})
	}
}

// A look at a key changes nothing in the store: whoever counts the shard's reports goes on as if
// nobody had looked.
func TestALookupIsNoBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		counts, looks := run(t, store), run(t, store)
		for i := range uint64(5) {
			counts.send(report(1, i+1, perMinute(time.Now().UnixNano()), own{"k", 0, 1}))
			time.Sleep(10 * time.Millisecond)
			if version := counts.refreshes.only().GetVersion(); version != i+1 {
				t.Errorf("after %d batches, and as many looks but one, version %d", i+1, version)
			}
			if s, err := looks.worker.Lookup(t.Context(), minutely, "k"); err != nil || s.Count != float64(i+1) {
				t.Errorf("%+v, %v", s, err)
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
			one.send(report(1, sequence, perMinute(at), own{"k", 0, hits}))
			time.Sleep(10 * time.Millisecond)
		}
		hit(now, 100)
		hit(now+second, 40)
		resets := make(chan error, 2)
		for _, r := range []*running{one, other} {
			go func() {
				before, after, err := r.worker.Reset(t.Context(), minutely, "k")
				if before.Count != 140 || after.Count != 0 {
					t.Errorf("%+v, then %+v", before, after)
				}
				resets <- err
			}()
		}
		for range 2 {
			if err := <-resets; err != nil {
				t.Fatal(err)
			}
		}
		wantLedger(t, "after both", store, "per-minute", storage.RuleLedger{Counted: 140, Refunded: 140})
		hit(now, 100)
		hit(now+second, 40)
		if s, err := one.worker.Lookup(t.Context(), minutely, "k"); err != nil || s.Count != 140 {
			t.Errorf("after as many more: %+v, %v", s, err)
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
			r.send(leaseRequest(1, sequence, perMinute(now), wish{key: "k", known: known, want: 100}))
			time.Sleep(10 * time.Millisecond)
			return r.grants.only().Granted[0]
		}
		granted := ask(1, 0)
		r.send(report(1, 1, perMinute(now), own{"k", 0, granted}))
		time.Sleep(10 * time.Millisecond)
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
		rule := storage.Rule{Name: "r", Shape: window.Shape{Length: time.Minute, Buckets: 1}, Limit: 10}
		store := &faulty{Store: memstore.New(), faults: faults{join: errors.New("away")}}
		r := run(t, store)
		if _, err := r.worker.Lookup(t.Context(), rule, "k"); !errors.Is(err, aggregate.ErrNotJoined) {
			t.Errorf("never reached: %v", err)
		}
		store.have(faults{})
		time.Sleep(10 * time.Second)
		store.have(faults{before: errors.New("away")})
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if _, err := r.worker.Lookup(ctx, rule, "k"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("gone: %v", err)
		}
		store.have(faults{})
		if _, err := r.worker.Lookup(t.Context(), rule, "k"); err != nil {
			t.Errorf("back: %v", err)
		}
		for _, bad := range []storage.Rule{{Shape: rule.Shape, Limit: 10}, {Name: "r", Limit: 10}} {
			if _, err := r.worker.Lookup(t.Context(), bad, "k"); !errors.Is(err, aggregate.ErrKey) {
				t.Errorf("%+v: %v", bad, err)
			}
		}
	})
}
