package console

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/offpath-io/offpath/internal/status"
	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/window"
)

func applied(rule string, revision uint64, hits int64, behind time.Duration) aggregate.ApplyInfo {
	shape := window.Shape{Length: time.Minute, Buckets: 2}
	return aggregate.ApplyInfo{Took: time.Millisecond, Batch: &storage.Batch{
		Now: noon.UnixNano(), Made: noon.Add(-behind).UnixNano(),
		Rules: []storage.Rule{
			{Name: rule, Shape: shape, Limit: int64(revision) * 10, Revision: revision},
			{Name: rule, Shape: shape, Limit: 1, Revision: revision, Kind: storage.Denied},
		},
		Ledger: []storage.Tally{{Counted: hits}, {}},
		Keys: []storage.Key{
			{Rule: 0, Text: "k", Cells: []storage.Cell{{Bucket: 1, Count: hits}, {Bucket: 2}}},
			{Rule: 0, Text: "only asked about", Cells: []storage.Cell{{Bucket: 1}}},
			{Rule: 1, Text: "denied", Cells: []storage.Cell{{Bucket: 1, Count: 7}}},
		},
	}}
}

// A tally tells of the rules, the keys and the lag of what was applied, and of nothing else.
func TestTally(t *testing.T) {
	tally := NewTally()
	tally.Observe(applied("r", 2, 5, 30*time.Millisecond))
	tally.Observe(applied("r", 1, 3, 10*time.Millisecond)) // of a checker that is late
	failed := applied("failed", 1, 100, time.Hour)
	failed.Err = errors.New("lost")
	tally.Observe(failed)
	repeated := applied("repeated", 1, 100, time.Hour)
	repeated.Repeated = 1
	tally.Observe(repeated)
	looked := applied("looked", 1, 0, 0)
	looked.Batch.Made = 0
	tally.Observe(looked)
	var a status.Aggregator
	tally.fill(&a)
	want := status.Rule{Name: "r", WindowMS: 60_000, Buckets: 2, Algorithm: "sliding_window", Limit: 20, Revision: 2, Counted: 8}
	if len(a.Rules) != 1 || a.Rules[0] != want || a.Behind != 31 {
		t.Errorf("%+v, %d ms behind", a.Rules, a.Behind)
	}
	if len(a.Used.List) != 1 || a.Used.List[0] != (status.Key{Rule: "r", Key: "k", Count: 8}) {
		t.Errorf("%+v", a.Used)
	}
	a = status.Aggregator{}
	if tally.fill(&a); a.Behind != -1 {
		t.Errorf("nothing was applied since: %d ms behind", a.Behind)
	}
}

func TestTallyIsBounded(t *testing.T) {
	tally := NewTally()
	for i := range 3 * maxRules {
		tally.Observe(applied(fmt.Sprint("rule", i), 1, 1, 0))
	}
	var a status.Aggregator
	tally.fill(&a)
	if len(tally.rules) != maxRules || len(a.Rules) != rulesTold || a.Rules[0].Name != fmt.Sprint("rule", 3*maxRules-1) {
		t.Errorf("%d rules, told of %d, first of %s", len(tally.rules), len(a.Rules), a.Rules[0].Name)
	}
}

// TestHugeCountsAreTold: costs of 10^15 are allowed, so a key may have more in a minute. Consoles
// still hear of the aggregator.
func TestHugeCountsAreTold(t *testing.T) {
	for _, folds := range []int{2, 10_000} {
		tally := NewTally()
		for range folds {
			tally.Observe(applied("r", 1, window.MaxCount, 0))
		}
		told := status.Aggregator{Part: status.Part{Name: "a"}}
		tally.fill(&told)
		data, err := json.Marshal(told)
		if err != nil {
			t.Fatal(err)
		}
		a, err := status.DecodeAggregator(data)
		if err != nil || len(a.Used.List) != 1 || a.Used.List[0].Count != status.MaxCount {
			t.Errorf("%d folds: %+v, %v", folds, a.Used, err)
		}
	}
}

// BenchmarkTallyOfMadeUpRules is a fold with as many rules as a report may have, all new.
func BenchmarkTallyOfMadeUpRules(b *testing.B) {
	tally, name := NewTally(), 0
	for b.Loop() {
		info := applied("r", 1, 1, 0)
		fold := info.Batch
		fold.Rules, fold.Ledger, fold.Keys = nil, make([]storage.Tally, events.MaxRules), nil
		for range events.MaxRules {
			name++
			fold.Rules = append(fold.Rules, storage.Rule{Name: fmt.Sprint(name), Shape: window.Shape{Length: time.Minute, Buckets: 1}})
		}
		tally.Observe(info)
	}
}

// nearFold is a fold of keys that are all near their limits.
func nearFold(keys int) aggregate.ApplyInfo {
	info := applied("r", 1, 9, 0)
	info.Batch.Keys = nil
	for i := range keys {
		info.Batch.Keys = append(info.Batch.Keys, storage.Key{Text: fmt.Sprint(i), Cells: []storage.Cell{{Bucket: 1, Count: 9}}})
		info.Near = append(info.Near, aggregate.Near{Key: i, Count: 9})
	}
	return info
}

// A fold never walks through the keys near their limits, though there is no room for its own:
// expired ones stay until the next status, which then has room.
func TestFoldsDoNotSearchNearKeys(t *testing.T) {
	tally := NewTally()
	for i := range maxNear {
		tally.near[keyID{"r", fmt.Sprint("expired", i)}] = nearKey{9, 10, time.Now().Add(-2 * nearFor)}
	}
	tally.Observe(nearFold(2 * maxNear))
	if _, ok := tally.near[keyID{"r", "expired0"}]; !ok || len(tally.near) != maxNear {
		t.Errorf("a fold has searched the keys: there are %d", len(tally.near))
	}
	tally.fill(new(status.Aggregator))
	tally.Observe(nearFold(2 * maxNear))
	if _, ok := tally.near[keyID{"r", "0"}]; !ok || len(tally.near) != maxNear {
		t.Errorf("after a status there are %d keys, not %d new ones", len(tally.near), maxNear)
	}
}

// BenchmarkTallyOfNearKeys is a fold of ten times as many keys near their limits as there is room
// for.
func BenchmarkTallyOfNearKeys(b *testing.B) {
	tally, fold := NewTally(), nearFold(10*maxNear)
	for b.Loop() {
		tally.Observe(fold)
	}
}

// A rule that is told of is the same when it is heard.
func TestRuleThereAndBack(t *testing.T) {
	for _, shape := range []window.Shape{
		{Length: time.Second, Buckets: 1}, {Length: time.Minute, Buckets: 60}, {Length: time.Hour, Buckets: 1, Fixed: true},
		{Length: time.Hour, Buckets: 100, Kind: window.Log}, {Length: time.Hour, Buckets: 60, Kind: window.Token},
		{Length: time.Hour, Buckets: 60, Kind: window.Leaky},
	} {
		r := storage.Rule{Name: "r", Shape: shape, Limit: 7, Revision: 3}
		if shape.Drains() {
			r.Burst = 9
		}
		if got, ok := ruleOf(wireOf(&r)); !ok || !reflect.DeepEqual(got, r) {
			t.Errorf("%+v became %+v", r, got)
		}
	}
	for _, bad := range []status.Rule{
		{}, {Name: "r", WindowMS: 1000, Buckets: 1, Algorithm: "magic"}, {Name: "r", WindowMS: -1, Buckets: 1, Algorithm: "fixed_window"},
		{Name: "r", WindowMS: 1 << 62, Buckets: 1, Algorithm: "fixed_window"}, {Name: "r", WindowMS: 1000, Algorithm: "sliding_window"},
	} {
		if r, ok := ruleOf(bad); ok {
			t.Errorf("%+v became %+v", bad, r)
		}
	}
}
