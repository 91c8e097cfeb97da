package redisstore

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate/internal/wire"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/window"
)

// newcomersOf is a batch of one hit each of n keys, from the one of this number on.
func newcomersOf(shape window.Shape, now int64, sequence uint64, rule string, from, n int) *storage.Batch {
	f := &storage.Batch{
		Now: now, Marks: []storage.Mark{{Epoch: 1, Sequence: sequence}},
		Rules: []storage.Rule{{Name: rule, Shape: shape, Limit: 10}}, Ledger: []storage.Tally{{Counted: int64(n)}},
	}
	for i := range n {
		f.Keys = append(f.Keys, storage.Key{Text: fmt.Sprintf("key-%d", from+i), Cells: []storage.Cell{{Bucket: shape.Bucket(now), Count: 1}}})
	}
	return f
}

// wantTotals checks how many of a batch's keys have a total, and how often it says that keys
// overflow.
func wantTotals(t *testing.T, why string, applied storage.Applied, want, overflow int) {
	t.Helper()
	counted, keys := 0, int64(0)
	for _, totals := range applied.Totals {
		if len(totals) > 0 {
			counted++
		}
	}
	for _, o := range applied.Overflow {
		keys += o.Keys
	}
	if counted != want || keys != int64(overflow) {
		t.Errorf("%s: %d keys are counted and %d overflow, want %d and %d", why, counted, keys, want, overflow)
	}
}

// A rule's new keys are bounded in a window: beyond that they are in no count, but in the ledger;
// known keys, and other rules' keys, are counted.
func TestNewKeysAreBounded(t *testing.T) {
	for name, shape := range map[string]window.Shape{"one": hourly, "fixed": whole, "many": minute, "tokens": tokens} {
		s, _ := newStoreOf(t, 1, Options{NewKeys: 100})
		now, sequence := time.Now().Truncate(time.Hour).UnixNano(), uint64(0)
		want := func(why, rule string, at int64, from, n, counted int) {
			t.Helper()
			sequence++
			got := mustApply(t, s, newcomersOf(shape, at, sequence, rule, from, n))
			if shape.Drains() { // others have an empty level
				for i := range got.Levels {
					got.Levels[i] = window.Level{}
				}
			}
			wantTotals(t, name+": "+why, got, counted, n-counted)
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

// borrowers is a batch of leases of n keys, each of which wants a permit.
func borrowers(now int64, rule string, from, n int) *storage.LeaseBatch {
	f := &storage.LeaseBatch{Now: now, Rules: []storage.Rule{{Name: rule, Shape: hourly, Limit: 10}}}
	for i := range n {
		ask := storage.LeaseRequest{Epoch: 1, Bucket: hourly.Bucket(now), Want: 1}
		f.Keys = append(f.Keys, storage.LeaseKey{Text: fmt.Sprintf("key-%d", from+i), Requests: []storage.LeaseRequest{ask}})
	}
	return f
}

// Permits are held of as many new keys of a rule in a window; no other new one gets any, known ones
// and other rules' do.
func TestNewKeysWithPermitsAreBounded(t *testing.T) {
	s, _ := newStoreOf(t, 1, Options{NewKeys: 100})
	now := time.Now().UnixNano()
	want := func(why, rule string, from, n, granted, overflow int) {
		t.Helper()
		got := mustLease(t, s, borrowers(now, rule, from, n))
		sum, keys, overflows := 0, int64(0), int64(0)
		for _, k := range got.Keys {
			sum += int(k.Grants[0].Current)
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

// A checker is told which of its keys are in no count, each time that it reports them, and of no
// others.
func TestCheckersAreToldOfOverflow(t *testing.T) {
	for name, shape := range map[string]window.Shape{"one": hourly, "fixed": whole, "many": minute, "tokens": tokens} {
		empty(t)
		now, sequence := time.Now().Truncate(time.Hour).UnixNano(), uint64(0)
		worker := newAnswering(t, open(t, Options{NewKeys: 3}))
		ask := func(want string, sequence uint64, keys ...string) {
			t.Helper()
			rule := wire.Rule(&storage.Rule{Name: "r", Shape: shape, Limit: 9, Burst: 9}, shape.Bucket(now))
			m := &events.Report{Epoch: 5, Shards: 1, Sequence: sequence, Hits: &events.Table{Rules: []*events.Rule{rule}}}
			for _, key := range keys {
				if m.Hits.AddKey(0, key); key != "only asks" {
					m.Hits.AddCell(0, 1)
				}
			}
			worker.send(now, m)
			if got := worker.step(now)[0]; !strings.HasSuffix(got, "overflow "+want) {
				t.Errorf("%s, report %d: %s, want %s", name, sequence, got, want)
			}
		}
		for _, report := range []struct {
			want string
			keys []string
		}{
			{"[]", []string{"a", "b"}}, {"[2 3]", []string{"b", "c", "d", "e", "only asks"}}, {"[0]", []string{"d", "a"}},
		} {
			sequence++
			ask(report.want, sequence, report.keys...)
			ask(report.want, sequence, report.keys...) // its answer was lost
		}
	}
}

// Callers who make up keys do not fill a Redis of 64 MB, or one of 16 MB, however a rule counts, by
// one rule, by several of the same keys, or by a strict one: it goes on counting their known keys,
// and other rules' new ones.
func TestMadeUpKeysDoNotFillRedis(t *testing.T) {
	many := window.Shape{Length: time.Hour, Buckets: 64}
	tests := []struct {
		shape   window.Shape
		memory  string
		look    int // after so many batches, as a worker does twice a second
		flooded []string
	}{
		{many, "64mb", 10, []string{"strict"}},
		{many, "64mb", 10, []string{"flood"}},
		{many, "64mb", 10, []string{"a minute", "an hour", "a day"}},
		{hourly, "16mb", 1, []string{"flood"}},
		{tokens, "16mb", 1, []string{"flood"}},
	}
	enough := int64(100_000) // keys that overflow
	if testing.Short() {
		tests, enough = tests[:1], 10_000
	}
	for _, of := range tests {
		s, admin := newStore(t, 1)
		set(t, admin, "maxmemory", of.memory)
		now, overflow, sequence := time.Now().Truncate(time.Hour).UnixNano(), int64(0), uint64(1)
		mustApply(t, s, newcomersOf(of.shape, now, sequence, "login", 0, 100))
		for n := 0; overflow < enough; n++ {
			if n%of.look == 0 {
				mustJoin(t, s, 1)
			}
			sequence++
			rule, from := of.flooded[n%len(of.flooded)], n/len(of.flooded)*2000
			applied, err := s.Apply(t.Context(), newcomersOf(of.shape, now, sequence, rule, from, 2000))
			turned := applied.Overflow
			if err == nil && rule == "strict" {
				var leased storage.Leased
				leased, err = s.Lease(t.Context(), borrowers(now, rule, from, 2000))
				turned = append(turned, leased.Overflow...)
			}
			if err != nil {
				t.Fatalf("%+v: after %d keys: %v", of, n*2000, err)
			}
			for _, o := range turned {
				overflow += o.Keys
			}
			if n > 1000 {
				t.Fatalf("%+v: %d of %d keys overflow", of, overflow, n*2000)
			}
		}
		want := func(why string, f *storage.Batch) {
			t.Helper()
			wantTotals(t, fmt.Sprintf("%v: %s", of, why), mustApply(t, s, f), len(f.Keys), 0)
		}
		want("another rule's keys", newcomersOf(of.shape, now, sequence+1, "login", 50, 100))
		want("keys of before", newcomersOf(of.shape, now, sequence+2, of.flooded[0], 0, 1000))
	}
}

// While memory is short, the rule with the most new keys gets no more, by what has not expired: not
// all batches tell how many there are.
func TestScarceRoomIsOfThisSlice(t *testing.T) {
	const length = 10
	greedy, modest := ruleInShard{0, "greedy"}, ruleInShard{0, "modest"}
	w := newKeys{each: 1000, spare: 0.5}
	w.note(greedy, 5, 10, length, 100)
	w.note(modest, 5, 10, length, 20)
	for _, tt := range []struct {
		now            int64
		greedy, modest int64
	}{{5, 0, 1000}, {15, 0, 1000}, {20, 1000, 1000}, {1000, 1000, 1000}} {
		if g, m := w.most(greedy, tt.now), w.most(modest, tt.now); g != tt.greedy || m != tt.modest {
			t.Errorf("at %d: room for %d and %d keys, want %d and %d", tt.now, g, m, tt.greedy, tt.modest)
		}
	}
}
