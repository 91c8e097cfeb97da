package redisstore

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/offpath-io/offpath/internal/testing/servers"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/window"
)

// server is the Redis that all tests use, one after the other.
var server *servers.Redis

func TestMain(m *testing.M) {
	var err error
	if server, err = servers.StartRedis(context.Background(), servers.RedisOptions{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := server.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// empty removes all data from the server, and returns a client of it.
func empty(t testing.TB) *redis.Client {
	t.Helper()
	admin := redis.NewClient(&redis.Options{Addr: server.Addr(), ReadTimeout: time.Minute})
	t.Cleanup(func() { admin.Close() })
	noError(t, admin.FlushAll(t.Context()).Err())
	return admin
}

// open opens a store that waits for a server which stands still, where production would give up.
func open(t testing.TB, o Options) *Store {
	t.Helper()
	s := openImpatient(t, o)
	const long = 5 * time.Minute
	switch c := s.Client().(type) {
	case *redis.Client:
		c.Options().ReadTimeout, c.Options().WriteTimeout, c.Options().DialTimeout = long, long, long
	case *redis.ClusterClient:
		c.Options().ReadTimeout, c.Options().WriteTimeout, c.Options().DialTimeout = long, long, long
	}
	return s
}

// openImpatient opens a store with the time-outs of production, by default on the tests' server.
func openImpatient(t testing.TB, o Options) *Store {
	t.Helper()
	if o.URL == "" {
		o.URL = server.URL()
	}
	s := must(Open(o))(t)
	t.Cleanup(func() { s.Close() })
	return s
}

// newStore opens a store on the tests' server, which is empty, and joins it.
func newStore(t testing.TB, shards int) (*Store, *redis.Client) {
	t.Helper()
	return newStoreOf(t, shards, Options{})
}

func newStoreOf(t testing.TB, shards int, o Options) (*Store, *redis.Client) {
	t.Helper()
	admin, s := empty(t), open(t, o)
	mustJoin(t, s, shards)
	return s, admin
}

func mustJoin(t testing.TB, s *Store, shards int) storage.Fleet {
	t.Helper()
	return must(s.Join(t.Context(), shards))(t)
}

// joinAgain tries until it works: connections of the past fail, and a server that stands still
// does.
func joinAgain(t testing.TB, s *Store, shards int) storage.Fleet {
	t.Helper()
	var fleet storage.Fleet
	var err error
	try(func() bool { fleet, err = s.Join(t.Context(), shards); return err == nil })
	noError(t, err)
	return fleet
}

// try calls f until it succeeds, but for no longer than a minute.
func try(f func() bool) {
	for end := time.Now().Add(time.Minute); !f() && time.Now().Before(end); {
	}
}

func mustApply(t testing.TB, s *Store, batch *storage.Batch) storage.Applied {
	t.Helper()
	return must(s.Apply(t.Context(), batch))(t)
}

func mustLease(t testing.TB, s *Store, batch *storage.LeaseBatch) storage.Leased {
	t.Helper()
	return must(s.Lease(t.Context(), batch))(t)
}

func keysOf(t testing.TB, client redis.UniversalClient, pattern string) []string {
	t.Helper()
	return must(client.Keys(t.Context(), pattern).Result())(t)
}

// wantExpiry checks in how long all keys like this expire, and returns them.
func wantExpiry(t testing.TB, admin *redis.Client, why, pattern string, least, most time.Duration) []string {
	t.Helper()
	keys := keysOf(t, admin, pattern)
	for _, key := range keys {
		if ttl := admin.PTTL(t.Context(), key).Val(); ttl < least || ttl > most {
			t.Errorf("%s: %s expires in %v, want %v to %v", why, key, ttl, least, most)
		}
	}
	return keys
}

// set sets an option of the server until the test is over.
func set(t testing.TB, admin *redis.Client, option, value string) {
	t.Helper()
	before := must(admin.ConfigGet(t.Context(), option).Result())(t)[option]
	noError(t, admin.ConfigSet(t.Context(), option, value).Err())
	t.Cleanup(func() { noError(t, admin.ConfigSet(context.Background(), option, before).Err()) })
}

func wantCounted(t testing.TB, s *Store, want int64) {
	t.Helper()
	if l, err := s.Ledger(t.Context()); err != nil || l["rule"].Counted != want {
		t.Errorf("ledger %+v, %v; want %d counted", l, err, want)
	}
}

var (
	hourly = window.Shape{Length: time.Hour, Buckets: 1}
	whole  = window.Shape{Length: time.Hour, Buckets: 1, Fixed: true}
	minute = window.Shape{Length: time.Hour, Buckets: 60}
	tokens = window.Shape{Length: time.Hour, Buckets: 60, Kind: window.Token}
	drop   = window.Shape{Length: time.Hour, Buckets: 1, Kind: window.Leaky}
)

// oneHit is a batch of one new report with a hit on one key. A test takes the time once: hits on
// both sides of an hour would be in two buckets.
func oneHit(now int64, shard uint32, sequence uint64) *storage.Batch {
	return hitAt(now, shard, sequence, 0)
}

// hitAt is the same, with a hit in the bucket that is age buckets old.
func hitAt(now int64, shard uint32, sequence uint64, age int64) *storage.Batch {
	f := newcomersOf(hourly, now, sequence, "rule", 0, 1)
	f.Shard, f.Keys[0].Text = shard, "key"
	f.Keys[0].Cells[0].Bucket -= age
	return f
}

// oneLease is a lease batch in which one checker, which knows of so many permits, wants more of a
// key.
func oneLease(now int64, known, want int64) *storage.LeaseBatch {
	f := borrowers(now, "rule", 0, 1)
	f.Keys[0].Requests[0].Known, f.Keys[0].Requests[0].Want = known, want
	return f
}

// noError ends the test if there is an error.
func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// must returns the result of a call, unless it has failed: then the test ends.
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		noError(t, err)
		return v
	}
}

// newCall lays out a batch as the store would send it now.
func newCall(s *Store, batch *storage.Batch) *call {
	c := s.calls.New().(*call)
	c.shard, c.groups = s.shard(batch.Shard), s.groups.Load()
	c.build(s.namespace, s.name, batch)
	return c
}
