package deploy_test

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/offpath-io/offpath/internal/testing/deploytest"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
	"github.com/offpath-io/offpath/internal/testing/storetest"
	"github.com/offpath-io/offpath/pkg/aggregate/redisstore"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/window"
)

// TestACLAllowsWhatScriptsCall, and no more than that and what the store's Go code sends.
func TestACLAllowsWhatScriptsCall(t *testing.T) {
	needed := map[string]bool{"info": true, "eval": true, "evalsha": true, "hgetall": true}
	scripts, err := filepath.Glob("../pkg/aggregate/redisstore/*.lua")
	if err != nil || len(scripts) != 4 {
		t.Fatalf("%v, %v", scripts, err)
	}
	for _, script := range scripts {
		calls := regexp.MustCompile(`(?:call|try)[(, ]+'([A-Z]+)'`)
		for _, call := range calls.FindAllStringSubmatch(deploytest.Read(t, script), -1) {
			needed[strings.ToLower(call[1])] = true
		}
	}
	allowed := make(map[string]bool)
	for _, rule := range regexp.MustCompile(`\s\+(\S+)`).FindAllStringSubmatch(deploytest.Read(t, "users.acl"), -1) {
		allowed[rule[1]] = true
	}
	if !maps.Equal(allowed, needed) {
		t.Errorf("allowed: %q\nneeded:  %q", slices.Sorted(maps.Keys(allowed)), slices.Sorted(maps.Keys(needed)))
	}
}

// TestStoreWithACL: the user of users.acl passes the store's whole contract, on a Redis with
// redis.conf. Its log of denials also has those within scripts that go on.
func TestStoreWithACL(t *testing.T) {
	if testing.Short() {
		t.Skip("long: runs in make test-all")
	}
	url, adminURL := deploytest.Redis(t)
	admin := administrator{newClient(t, adminURL)}
	t.Run("suite", func(t *testing.T) { storetest.Run(t, admin.harness(url)) })
	log, err := admin.ACLLog(t.Context(), 100).Result()
	if err != nil || len(log) > 0 {
		t.Errorf("denied: %v, %v", log, err)
	}
}

// TestACLDenies what would do harm.
func TestACLDenies(t *testing.T) {
	url, _ := deploytest.Redis(t)
	user := newClient(t, url)
	for _, command := range []string{
		"FLUSHALL", "FLUSHDB", "KEYS *", "SCAN 0", "CONFIG GET *", "ACL LIST", "SHUTDOWN", "MONITOR", "CLIENT LIST", "SAVE",
		"DEL offpath:config", "GET other:config", "SET other:x 1", "PUBLISH offpath:x 1", "SUBSCRIBE x", "FUNCTION LIST", "SCRIPT FLUSH",
	} {
		var words []any
		for word := range strings.FieldsSeq(command) {
			words = append(words, word)
		}
		if err := user.Do(t.Context(), words...).Err(); err == nil || !strings.HasPrefix(err.Error(), "NOPERM") {
			t.Errorf("%s: %v", command, err)
		}
	}
	nobody := newClient(t, "redis://"+user.Options().Addr)
	if err := nobody.Ping(t.Context()).Err(); err == nil || !strings.HasPrefix(err.Error(), "NOAUTH") {
		t.Errorf("without a password: %v", err)
	}
}

// TestClusterWithACL: with what README.md adds for a Cluster, and not without any of it, the user
// of users.acl can count in one.
func TestClusterWithACL(t *testing.T) {
	added := regexp.MustCompile("A Cluster's client needs `([^`]+)` too").FindStringSubmatch(deploytest.Read(t, "README.md"))
	user := regexp.MustCompile(`(?m)^user offpath on #\S+ (.*)$`).FindStringSubmatch(deploytest.Read(t, "users.acl"))
	if added == nil || user == nil {
		t.Fatalf("%q, %q", added, user)
	}
	addrs := serverstest.RedisCluster(t).Addrs()
	count := func(extra []string) error {
		for _, addr := range addrs {
			rules := slices.Concat([]string{"reset", "on", ">secret"}, strings.Fields(user[1]), extra)
			must(t, newClient(t, "redis://"+addr).ACLSetUser(t.Context(), "offpath", rules...).Err())
		}
		store, err := redisstore.Open(redisstore.Options{URL: "redis://offpath:secret@" + strings.Join(addrs, ",")})
		must(t, err)
		defer store.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		fleet, err := store.Join(ctx, 0)
		for shard := 0; shard < fleet.Shards && err == nil; shard++ {
			_, err = store.Apply(ctx, &storage.Batch{Shard: uint32(shard), Now: time.Now().UnixNano(), Rules: []storage.Rule{{
				Name: "r", Shape: window.Shape{Length: time.Minute, Buckets: 1},
			}}})
		}
		_, unread := store.Ledger(ctx)
		return errors.Join(err, unread)
	}
	extra := strings.Fields(added[1])
	if err := count(extra); err != nil {
		t.Error(err)
	}
	for i, one := range extra {
		if err := count(slices.Delete(slices.Clone(extra), i, i+1)); err == nil || !strings.Contains(err.Error(), "NOPERM") {
			t.Errorf("without %s: %v, want a NOPERM", one, err)
		}
	}
}

func newClient(t testing.TB, url string) *redis.Client {
	t.Helper()
	options, err := redis.ParseURL(url)
	must(t, err)
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// administrator does to the store what the contract's tests need.
type administrator struct{ *redis.Client }

func (a administrator) harness(url string) func(testing.TB) storetest.Harness {
	return func(t testing.TB) storetest.Harness {
		a.lose(t)
		open := func() *redisstore.Store {
			s, err := redisstore.Open(redisstore.Options{URL: url})
			must(t, err)
			t.Cleanup(func() { s.Close() })
			return s
		}
		store := open()
		ledger := func(t testing.TB) storage.Ledger {
			l, err := store.Ledger(t.Context())
			must(t, err)
			return l
		}
		return storetest.Harness{
			Store: store, Other: open(), Now: time.Now().UnixNano(), Clock: func() int64 { return time.Now().UnixNano() },
			Ledger: ledger, Lose: a.lose, Snapshot: a.snapshot, Expiries: a.expiries,
		}
	}
}

func (a administrator) lose(t testing.TB) {
	t.Helper()
	must(t, a.FlushAll(t.Context()).Err())
}

// keys are all of them, each with when it expires, below 0 for never.
func (a administrator) keys(t testing.TB) map[string]time.Duration {
	t.Helper()
	all := make(map[string]time.Duration)
	keys, err := a.Keys(t.Context(), "*").Result()
	for _, key := range keys {
		if err == nil {
			all[key], err = a.PExpireTime(t.Context(), key).Result()
		}
	}
	must(t, err)
	return all
}

func (a administrator) snapshot(t testing.TB) (restore func()) {
	t.Helper()
	expiries, data := a.keys(t), make(map[string]string)
	for key := range expiries {
		text, err := a.Dump(t.Context(), key).Result()
		must(t, err)
		data[key] = text
	}
	return func() {
		a.lose(t)
		for key, text := range data {
			must(t, a.Do(t.Context(), "RESTORE", key, max(expiries[key].Milliseconds(), 0), text, "ABSTTL").Err())
		}
	}
}

func (a administrator) expiries(t testing.TB) (all []int64) {
	t.Helper()
	for key, expiry := range a.keys(t) {
		isCount := func(end string) bool { return !strings.HasSuffix(key, end) }
		if isCount(":config") && isCount("}:meta") && isCount("}:ledger") && !strings.Contains(key, "}:new:") {
			all = append(all, max(int64(expiry), 0))
		}
	}
	return all
}
