package redisstore

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/window"
)

var (
	hourly = window.Shape{Length: time.Hour, Buckets: 1}
	whole  = window.Shape{Length: time.Hour, Buckets: 1, Fixed: true}
	minute = window.Shape{Length: time.Hour, Buckets: 60}
	tokens = window.Shape{Length: time.Hour, Buckets: 60, Kind: window.Token}
	drop   = window.Shape{Length: time.Hour, Buckets: 1, Kind: window.Leaky}
)

// foldOf is a fold of n keys for each shape, with one hit now and some before and after.
func foldOf(now int64, sequence uint64, n int, shapes ...window.Shape) *aggregate.Fold {
	f := &aggregate.Fold{Shard: 7, Now: now, Marks: []aggregate.Mark{{Epoch: 0xabc, Sequence: sequence}}}
	for i, shape := range shapes {
		f.Rules = append(f.Rules, aggregate.Rule{Name: fmt.Sprint("rule {x} ", i), Shape: shape})
		f.Ledger = append(f.Ledger, aggregate.Tally{Counted: 1, Late: 1, Refused: 1})
		for key := range n {
			cells := []aggregate.Cell{{Bucket: shape.Bucket(now), Count: 1}}
			if key%5 == 1 {
				cells = append(cells, aggregate.Cell{Bucket: shape.Bucket(now) + 1, Count: 1})
			}
			if key%5 == 2 && shape.Live() > 1 {
				cells = slices.Insert(cells, 0, aggregate.Cell{Bucket: shape.Bucket(now) - 1, Count: 1})
			}
			f.Keys = append(f.Keys, aggregate.Key{Rule: i, Text: strings.Repeat("}", key%80) + fmt.Sprint(key), Cells: cells})
		}
	}
	return f
}

// Every key that the script makes was declared, and all keys of a shard are in one slot of a cluster.
func TestKeysAreDeclared(t *testing.T) {
	r := serverstest.Redis(t)
	admin := redis.NewClient(&redis.Options{Addr: r.Addr()})
	defer admin.Close()
	s, err := Open(Options{URL: r.URL(), Namespace: "some.name-space"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Join(t.Context(), 8); err != nil {
		t.Fatal(err)
	}
	fold := foldOf(time.Now().UnixNano(), 1, 200, hourly, whole, minute, tokens, drop)
	c := &call{recall: amnesia, groups: s.groups.Load()}
	c.build(s.namespace, fold)
	if _, err := s.Apply(t.Context(), fold); err != nil {
		t.Fatal(err)
	}
	made, err := admin.Keys(t.Context(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	if len(made) < 400 {
		t.Errorf("only %d keys", len(made))
	}
	for _, key := range made {
		if key != "some.name-space:config" && !slices.Contains(c.keys, key) {
			t.Errorf("key %q is not declared", key)
		}
	}
	slot := admin.ClusterKeySlot(t.Context(), "7").Val()
	for _, key := range c.keys {
		if !strings.HasPrefix(key, "some.name-space:{7}:") || admin.ClusterKeySlot(t.Context(), key).Val() != slot {
			t.Errorf("key %q is in another slot", key)
		}
	}
}

// leaseFoldOf is a lease fold of n keys for each shape, for each of which two checkers ask.
func leaseFoldOf(now int64, n int, shapes ...window.Shape) *aggregate.LeaseFold {
	f := &aggregate.LeaseFold{Shard: 7, Now: now}
	for i, shape := range shapes {
		f.Rules = append(f.Rules, aggregate.Rule{Name: fmt.Sprint("rule {x} ", i), Shape: shape, Limit: 100})
		for key := range n {
			f.Keys = append(f.Keys, aggregate.LeaseKey{Rule: i, Text: strings.Repeat("}", key%80) + fmt.Sprint(key), Asks: []aggregate.Ask{
				{Epoch: 0xabc, Bucket: shape.Bucket(now), Want: 2},
				{Epoch: 1<<64 - 1, Bucket: shape.Bucket(now), Want: 3},
			}})
		}
	}
	return f
}

// The same for leases.
func TestKeysOfLeasesAreDeclared(t *testing.T) {
	r := serverstest.Redis(t)
	admin := redis.NewClient(&redis.Options{Addr: r.Addr()})
	defer admin.Close()
	s, err := Open(Options{URL: r.URL(), Namespace: "some.name-space"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	fold := leaseFoldOf(time.Now().UnixNano(), 100, hourly, whole, minute)
	var c leaseCall
	c.build(s.namespace, fold)
	if _, err := s.Lease(t.Context(), fold); err != nil {
		t.Fatal(err)
	}
	made, err := admin.Keys(t.Context(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	if want := 1 + 300*3; len(made) != want || len(c.keys) != want {
		t.Errorf("%d keys made, %d declared, want %d", len(made), len(c.keys), want)
	}
	slot := admin.ClusterKeySlot(t.Context(), "7").Val()
	for _, key := range made {
		if !slices.Contains(c.keys, key) {
			t.Errorf("key %q is not declared", key)
		}
		if !strings.HasPrefix(key, "some.name-space:{7}:") || admin.ClusterKeySlot(t.Context(), key).Val() != slot {
			t.Errorf("key %q is in another slot", key)
		}
	}
}

// What has expired is dropped from a key's list while the key is in use, and nothing of a checker that is
// gone stays.
func TestLeasesDoNotGrow(t *testing.T) {
	r := serverstest.Redis(t)
	admin := redis.NewClient(&redis.Options{Addr: r.Addr()})
	defer admin.Close()
	s, err := Open(Options{URL: r.URL()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	shape := window.Shape{Length: time.Second, Buckets: 2}
	begin := time.Now().Add(-time.Hour).UnixNano() // of which nothing expires by the server's clock
	for i := range 200 {
		now := begin + int64(i)*int64(shape.BucketSize())
		fold := &aggregate.LeaseFold{Now: now, Rules: []aggregate.Rule{{Name: "rule", Shape: shape, Limit: 10}}}
		ask := aggregate.Ask{Epoch: 1, Bucket: shape.Bucket(now), Want: 3}
		fold.Keys = []aggregate.LeaseKey{{Text: "key", Asks: []aggregate.Ask{ask}}}
		leased, err := s.Lease(t.Context(), fold)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(leased.Keys[0].Held); n > 7 {
			t.Fatalf("%d buckets after %d, of which 3 are live and 4 more kept", n, i)
		}
	}
	for _, key := range admin.Keys(t.Context(), "*:[hg]:*").Val() {
		if n := admin.StrLen(t.Context(), key).Val(); n > 100 {
			t.Errorf("%s has %d bytes", key, n)
		}
		if ttl := admin.PTTL(t.Context(), key).Val(); ttl <= 0 || ttl > 4*time.Second {
			t.Errorf("%s lives %v", key, ttl)
		}
	}
}

// Groups stay packed, also with keys of every length.
func TestGroupsStayPacked(t *testing.T) {
	r := serverstest.Redis(t)
	admin := redis.NewClient(&redis.Options{Addr: r.Addr()})
	defer admin.Close()
	s, err := Open(Options{URL: r.URL()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Join(t.Context(), 8); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Apply(t.Context(), foldOf(time.Now().UnixNano(), 1, 500, hourly)); err != nil {
		t.Fatal(err)
	}
	groups, err := admin.Keys(t.Context(), "offpath:{7}:1:*").Result()
	if err != nil || len(groups) < 100 {
		t.Fatalf("%d groups, %v", len(groups), err)
	}
	for _, key := range groups {
		if got := admin.ObjectEncoding(t.Context(), key).Val(); got != "listpack" {
			t.Errorf("%s is a %s", key, got)
		}
	}
}

// The previous bucket is read once, and again when somebody has added to it.
func TestRecall(t *testing.T) {
	r := serverstest.Redis(t)
	open := func() *Store {
		s, err := Open(Options{URL: r.URL()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		if _, err := s.Join(t.Context(), 8); err != nil {
			t.Fatal(err)
		}
		return s
	}
	s, other := open(), open()
	now := time.Now().UnixNano()
	sequence := uint64(0)
	// fold adds one hit to the key in the bucket that is age old, and asks for its totals.
	fold := func(age int64) *aggregate.Fold {
		sequence++
		return &aggregate.Fold{
			Shard: 7, Now: now,
			Marks:  []aggregate.Mark{{Epoch: 1, Sequence: sequence}},
			Rules:  []aggregate.Rule{{Name: "rule", Shape: hourly}},
			Ledger: make([]aggregate.Tally, 1),
			Keys:   []aggregate.Key{{Text: "key", Cells: []aggregate.Cell{{Bucket: hourly.Bucket(now) - age, Count: 1}}}},
		}
	}
	reads := func(s *Store, f *aggregate.Fold) int { // hashes of counts that it takes
		c := &call{recall: s.recall, groups: s.groups.Load()}
		c.build(s.namespace, f)
		n := 0
		for _, key := range c.keys {
			if strings.Contains(key, ":1:") {
				n++
			}
		}
		return n
	}
	for i, step := range []struct {
		why   string
		store *Store
		age   int64
		reads int
		want  string
	}{
		{"the previous bucket gets a hit, and is known by that", s, 1, 2, "[1 0]"},
		{"it need not be read", s, 0, 1, "[1 1]"},
		{"nor again", s, 0, 1, "[1 2]"},
		{"another worker reads it once", other, 0, 2, "[1 3]"},
		{"and remembers it too", other, 0, 1, "[1 4]"},
		{"a late hit changes it", other, 1, 2, "[2 4]"},
		{"which the first cannot know when it asks, but does when it answers", s, 0, 1, "[2 5]"},
		{"so that it reads again", s, 0, 2, "[2 6]"},
		{"once", s, 0, 1, "[2 7]"},
		{"its own late hit changes it as well", s, 1, 2, "[3 7]"},
		{"and is known", s, 0, 1, "[3 8]"},
	} {
		f := fold(step.age)
		if got := reads(step.store, f); got != step.reads {
			t.Errorf("%d %s: %d hashes, want %d", i, step.why, got, step.reads)
		}
		applied, err := step.store.Apply(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		var totals [2]int64
		for _, c := range applied.Totals[0] {
			totals[c.Bucket-hourly.Bucket(now)+1] = c.Count
		}
		if got := fmt.Sprint(totals); got != step.want {
			t.Errorf("%d %s: totals %s, want %s", i, step.why, got, step.want)
		}
	}
	// A fold that only reads, ahead of the others, does not tell the store so; what it reads is not kept.
	size := int64(hourly.BucketSize())
	now += size
	ahead := onlyReading(fold(0))
	if _, err := s.Apply(t.Context(), ahead); err != nil {
		t.Fatal(err)
	}
	now -= size
	if _, err := s.Apply(t.Context(), fold(0)); err != nil {
		t.Fatal(err)
	}
	now += size
	applied, err := s.Apply(t.Context(), fold(0))
	if err != nil || len(applied.Totals[0]) != 2 || applied.Totals[0][0].Count != 9 {
		t.Errorf("after a look ahead: %v, %v", applied.Totals, err)
	}

	// All data is lost, and the count of late folds with it.
	if err := s.client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	applied, err = s.Apply(t.Context(), fold(0))
	if err != nil || len(applied.Totals[0]) != 1 || applied.Totals[0][0].Count != 1 {
		t.Errorf("after a loss: %v, %v", applied.Totals, err)
	}
}

func TestRecallForgetsTheOldest(t *testing.T) {
	r := newRecall(8)
	var hashes []uint64
	var totals []int64
	for i := range 20 {
		hashes = append(hashes, r.hash(fmt.Sprint(i)))
		totals = append(totals, int64(i))
	}
	column := r.column(watched{1, "rule"}, lateness{1, 2}, 3)
	all := func(int) bool { return false }
	r.put(column, hashes, totals, all)
	found := make([]int64, 20)
	if !r.find(column, hashes, found) {
		t.Fatal("nothing is found")
	}
	n := 0
	for i, total := range found {
		if total != unknown {
			n++
			if total != int64(i) {
				t.Errorf("key %d: total %d", i, total)
			}
		}
	}
	if n == 0 || n > 8 || found[19] != 19 {
		t.Errorf("%d of 8 are found, the newest as %d", n, found[19])
	}
	for _, c := range []uint64{
		r.column(watched{2, "rule"}, lateness{1, 2}, 3), r.column(watched{1, "other"}, lateness{1, 2}, 3),
		r.column(watched{1, "rule"}, lateness{1, 3}, 3), r.column(watched{1, "rule"}, lateness{2, 2}, 3),
		r.column(watched{1, "rule"}, lateness{1, 2}, 4),
	} {
		if r.find(c, hashes, found) {
			t.Error("found in another column")
		}
	}
}

// A key of many buckets sheds those that have expired.
func TestBucketsAreShed(t *testing.T) {
	r := serverstest.Redis(t)
	s, err := Open(Options{URL: r.URL()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Join(t.Context(), 8); err != nil {
		t.Fatal(err)
	}
	now := time.Now().UnixNano()
	most := int64(0)
	for i := range uint64(300) {
		if _, err := s.Apply(t.Context(), foldOf(now, i+1, 1, minute)); err != nil {
			t.Fatal(err)
		}
		keys, err := s.client.Keys(t.Context(), "offpath:{7}:n:*").Result()
		if err != nil || len(keys) != 1 {
			t.Fatal(keys, err)
		}
		most = max(most, s.client.HLen(t.Context(), keys[0]).Val())
		now += int64(time.Minute)
	}
	if got := int64(mostBuckets(minute)); most != got {
		t.Errorf("up to %d buckets in a hash, want %d", most, got)
	}
}

// A key that drains sheds what was refunded with what was counted, also if nothing was.
func TestRefundsAreShed(t *testing.T) {
	r := serverstest.Redis(t)
	s, err := Open(Options{URL: r.URL()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Join(t.Context(), 8); err != nil {
		t.Fatal(err)
	}
	now, most := time.Now().UnixNano(), map[string]int64{}
	for i := range uint64(700) {
		f := foldOf(now, i+1, 2, tokens)
		f.Rules[0].Limit, f.Rules[0].Burst = 1, 1
		back := f.Rules[0]
		back.Kind = aggregate.Refunded
		f.Rules, f.Ledger = append(f.Rules, back), append(f.Ledger, aggregate.Tally{})
		f.Keys[1].Cells = nil // what it was charged never came
		for _, key := range f.Keys[:2] {
			cells := []aggregate.Cell{{Bucket: tokens.Bucket(now), Count: 1}}
			f.Keys = append(f.Keys, aggregate.Key{Rule: 1, Text: key.Text, Cells: cells})
		}
		if _, err := s.Apply(t.Context(), f); err != nil {
			t.Fatal(err)
		}
		keys, err := s.client.Keys(t.Context(), "offpath:{7}:n:*").Result()
		if err != nil || len(keys) != 2 {
			t.Fatal(keys, err)
		}
		for _, key := range keys {
			most[key] = max(most[key], s.client.HLen(t.Context(), key).Val())
		}
		now += int64(time.Minute)
	}
	for key, fields := range most {
		if bound := int64(2*mostBuckets(tokens)) + 5; fields > bound { // the level, and what comes before it is looked
			t.Errorf("up to %d fields in %q, want %d at most", fields, key, bound)
		}
	}
}

// A node whose clock differs from the fleet's keeps what it has for as long as any other would.
func TestExpiryIsIndependentOfTheNodesClock(t *testing.T) {
	r := serverstest.Redis(t)
	s, err := Open(Options{URL: r.URL()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Join(t.Context(), 8); err != nil {
		t.Fatal(err)
	}
	for i, off := range []time.Duration{-100 * 24 * time.Hour, 100 * 24 * time.Hour} {
		if err := s.client.FlushDB(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		now := time.Now().Add(off).UnixNano()
		if _, err := s.Apply(t.Context(), foldOf(now, uint64(i)+1, 5, hourly, minute)); err != nil {
			t.Fatal(err)
		}
		for _, pattern := range []string{"offpath:{7}:1:*", "offpath:{7}:n:*", "offpath:{7}:r:*"} {
			keys, err := s.client.Keys(t.Context(), pattern).Result()
			if err != nil || len(keys) == 0 {
				t.Fatal(keys, err)
			}
			for _, key := range keys {
				if left := s.client.PTTL(t.Context(), key).Val(); left < 30*time.Minute || left > 5*time.Hour {
					t.Errorf("%s: %v left, with a clock %v off", key, left, off)
				}
			}
		}
	}
}

// A short key may be the very bytes that stand for a long one; what is remembered of them differs.
func TestRecallTellsLongKeysFromShortOnes(t *testing.T) {
	s, err := Open(Options{URL: serverstest.Redis(t).URL()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if _, err := s.Join(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("L", maxField+6)
	short, _ := fieldOf(long)
	now := time.Now().UnixNano()
	for i, add := range [][2]int64{{100, 1}, {1, 1}, {1, 1}} { // to the bucket before, then to this one
		bucket := hourly.Bucket(now) - 1 + int64(min(i, 1))
		applied, err := s.Apply(t.Context(), &aggregate.Fold{
			Now:    now,
			Marks:  []aggregate.Mark{{Epoch: 1, Sequence: uint64(i + 1)}},
			Rules:  []aggregate.Rule{{Name: "rule", Shape: hourly}},
			Ledger: make([]aggregate.Tally, 1),
			Keys: []aggregate.Key{
				{Text: long, Cells: []aggregate.Cell{{Bucket: bucket, Count: add[0]}}},
				{Text: short, Cells: []aggregate.Cell{{Bucket: bucket, Count: add[1]}}},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := applied.Totals[0][0].Count; got != 100 {
			t.Errorf("fold %d: the long key's previous total is %d, want 100", i, got)
		}
		if got := applied.Totals[1][0].Count; got != 1 {
			t.Errorf("fold %d: the short key's previous total is %d, want 1", i, got)
		}
	}
}

// After the marks nothing in the script may fail: whatever is wrong is found before, or passed over.
func TestTheScriptDoesNotStopHalfWay(t *testing.T) {
	r := serverstest.Redis(t)
	admin := redis.NewClient(&redis.Options{Addr: r.Addr()})
	t.Cleanup(func() { admin.Close() })
	open := func(url string) *Store {
		s, err := Open(Options{URL: url, Recall: -1})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		if _, err := s.Join(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		return s
	}
	now := time.Now().UnixNano()
	fold := func(sequence uint64, age int64) *aggregate.Fold {
		return &aggregate.Fold{
			Now:    now,
			Marks:  []aggregate.Mark{{Epoch: 1, Sequence: sequence}},
			Rules:  []aggregate.Rule{{Name: "rule", Shape: hourly}},
			Ledger: []aggregate.Tally{{Counted: 1}},
			Keys:   []aggregate.Key{{Text: "key", Cells: []aggregate.Cell{{Bucket: hourly.Bucket(now) - age, Count: 1}}}},
		}
	}
	s := open(r.URL())
	if _, err := s.Apply(t.Context(), fold(1, 1)); err != nil {
		t.Fatal(err)
	}

	if err := admin.Do(t.Context(), "ACL", "SETUSER", "limited", "on", ">pw", "~*", "&*", "+@all", "-pexpireat").Err(); err != nil {
		t.Fatal(err)
	}
	limited := open("redis://limited:pw@" + r.Addr())
	if applied, err := limited.Apply(t.Context(), fold(2, 0)); err == nil {
		t.Errorf("applied without the right to set an expiry: %+v", applied)
	}
	if applied, err := s.Apply(t.Context(), fold(2, 0)); err != nil || len(applied.Repeated) > 0 {
		t.Errorf("what was refused is not new any more: %+v, %v", applied, err)
	}

	// Somebody has put something else where the previous bucket was.
	names, err := admin.Keys(t.Context(), fmt.Sprintf("offpath:{0}:1:*:%d:*", hourly.Bucket(now)-1)).Result()
	if err != nil || len(names) != 1 {
		t.Fatal(names, err)
	}
	if err := admin.Set(t.Context(), names[0], "nonsense", 0).Err(); err != nil {
		t.Fatal(err)
	}
	applied, err := s.Apply(t.Context(), fold(3, 0))
	if err != nil || len(applied.Repeated) > 0 || len(applied.Totals[0]) != 1 || applied.Totals[0][0].Count != 2 {
		t.Errorf("%+v, %v; want the current bucket's 2", applied, err)
	}
	if ledger, err := s.Ledger(t.Context()); err != nil || ledger["rule"].Counted != 3 {
		t.Errorf("ledger %+v, %v; want 3 counted", ledger, err)
	}
}
