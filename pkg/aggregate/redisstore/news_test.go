package redisstore

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/window"
)

// newcomers is a fold of one hit each of n keys, from the one of this number on.
func newcomers(now int64, sequence uint64, rule string, from, n int) *aggregate.Fold {
	return newcomersOf(window.Shape{Length: time.Hour, Buckets: 64}, now, sequence, rule, from, n)
}

func newcomersOf(shape window.Shape, now int64, sequence uint64, rule string, from, n int) *aggregate.Fold {
	f := &aggregate.Fold{
		Now: now, Marks: []aggregate.Mark{{Epoch: 1, Sequence: sequence}},
		Rules: []aggregate.Rule{{Name: rule, Shape: shape, Limit: 10}}, Ledger: []aggregate.Tally{{Counted: int64(n)}},
	}
	for i := range n {
		f.Keys = append(f.Keys, aggregate.Key{Text: fmt.Sprintf("key-%d", from+i), Cells: []aggregate.Cell{{Bucket: shape.Bucket(now), Count: 1}}})
	}
	return f
}

// wantTold checks how many of a fold's keys are told a total, and how often it says that keys overflow.
func wantTold(t *testing.T, why string, applied aggregate.Applied, want, overflow int) {
	t.Helper()
	told, keys := 0, int64(0)
	for _, totals := range applied.Totals {
		told += used(int64(len(totals)))
	}
	for _, o := range applied.Overflow {
		keys += o.Keys
	}
	if told != want || keys != int64(overflow) {
		t.Errorf("%s: %d keys are counted and %d overflow, want %d and %d", why, told, keys, want, overflow)
	}
}

// A rule's new keys are bounded in a window: beyond that they are in no count, but in the ledger; known keys, and other rules' keys, are counted.
func TestNewKeysAreBounded(t *testing.T) {
	for name, shape := range map[string]window.Shape{"one": hourly, "fixed": whole, "many": minute, "tokens": tokens} {
		empty(t)
		s, now := open(t, Options{NewKeys: 100}), time.Now().Truncate(time.Hour).UnixNano()
		mustJoin(t, s, 1)
		sequence := uint64(0)
		want := func(why, rule string, at int64, from, n, counted int) {
			t.Helper()
			sequence++
			got := mustApply(t, s, newcomersOf(shape, at, sequence, rule, from, n))
			if shape.Drains() { // what is told of others is a level of nothing
				for i := range got.Levels {
					got.Levels[i] = window.Level{}
				}
			}
			wantTold(t, name+": "+why, got, counted, n-counted)
		}
		want("within the bound", "rule", now, 0, 60, 60)
		want("beyond it", "rule", now, 50, 100, 50)
		want("known ones", "rule", now, 0, 100, 100)
		want("another rule's", "other", now, 0, 100, 100)
		later := now + int64(time.Hour)
		if !shape.Fixed { // of which all keys are new in each window
			want("a window later, known ones", "rule", later, 0, 100, 100)
		}
		want("a window later, new ones", "rule", later, 100, 150, 100)
		want("a window later, known ones again", "rule", later, 100, 100, 100)
		if !shape.Fixed {
			want("those of before, first met when there is no room for others", "rule", later, 0, 100, 100)
		}
		l, err := s.Ledger(t.Context())
		if l["rule"].Overflow != 100 || err != nil {
			t.Errorf("%s: ledger %+v, %v", name, l["rule"], err)
		}
	}
}

// borrowers is a fold of leases of n keys, each of which wants a permit.
func borrowers(now int64, rule string, from, n int) *aggregate.LeaseFold {
	f := &aggregate.LeaseFold{Now: now, Rules: []aggregate.Rule{{Name: rule, Shape: hourly, Limit: 10}}}
	for i := range n {
		ask := aggregate.Ask{Epoch: 1, Bucket: hourly.Bucket(now), Want: 1}
		f.Keys = append(f.Keys, aggregate.LeaseKey{Text: fmt.Sprintf("key-%d", from+i), Asks: []aggregate.Ask{ask}})
	}
	return f
}

// Permits are held of as many new keys of a rule in a window; no other new one gets any, known ones
// and other rules' do.
func TestNewKeysWithPermitsAreBounded(t *testing.T) {
	empty(t)
	s, now := open(t, Options{NewKeys: 100}), time.Now().UnixNano()
	mustJoin(t, s, 1)
	want := func(why, rule string, from, n, granted, overflow int) {
		t.Helper()
		got := mustLease(t, s, borrowers(now, rule, from, n))
		sum, keys, overflows := 0, int64(0), int64(0)
		for _, k := range got.Keys {
			sum += int(k.Asks[0].Current)
			if k.Overflows {
				overflows++
			}
		}
		for _, o := range got.Overflow {
			keys += o.Keys
		}
		if sum != granted || keys != int64(overflow) || overflows != keys {
			t.Errorf("%s: %d permits, %d and %d keys too many, want %d and %d", why, sum, keys, overflows, granted, overflow)
		}
	}
	want("within the bound", "rule", 0, 60, 60, 0)
	want("beyond it", "rule", 50, 100, 50, 50)
	want("known ones", "rule", 0, 100, 100, 0)
	want("another rule's", "other", 0, 100, 100, 0)
}

// Callers who make up keys do not fill a Redis of 64 MB, by one rule, by several of the same keys,
// or by a strict one: it goes on counting their known keys, and other rules' new ones.
func TestMadeUpKeysDoNotFillRedis(t *testing.T) {
	for _, flooded := range [][]string{{"flood"}, {"a minute", "an hour", "a day"}, {"strict"}} {
		s, admin := newStore(t, 1)
		set(t, admin, "maxmemory", "64mb")
		t.Cleanup(func() { admin.ConfigSet(context.Background(), "maxmemory", "0") })
		now, overflow, sequence := time.Now().Truncate(time.Hour).UnixNano(), int64(0), uint64(1)
		mustApply(t, s, newcomers(now, sequence, "login", 0, 100))
		for n := range 450_000 / 2000 {
			if n%10 == 0 {
				mustJoin(t, s, 1) // as a worker does every 2 s
			}
			sequence++
			rule, from := flooded[n%len(flooded)], n/len(flooded)*2000
			applied, err := s.Apply(t.Context(), newcomers(now, sequence, rule, from, 2000))
			turned := applied.Overflow
			if err == nil && rule == "strict" {
				var leased aggregate.Leased
				leased, err = s.Lease(t.Context(), borrowers(now, rule, from, 2000))
				turned = append(turned, leased.Overflow...)
			}
			if err != nil {
				t.Fatalf("%v: after %d keys: %v", flooded, n*2000, err)
			}
			for _, o := range turned {
				overflow += o.Keys
			}
		}
		if overflow == 0 || overflow > 800_000 {
			t.Errorf("%v: %d times of 450,000 or twice that, new keys overflow", flooded, overflow)
		}
		wantTold(t, "another rule's keys", mustApply(t, s, newcomers(now, sequence+1, "login", 50, 100)), 100, 0)
		wantTold(t, "keys of before", mustApply(t, s, newcomers(now, sequence+2, flooded[0], 0, 1000)), 1000, 0)
	}
}
