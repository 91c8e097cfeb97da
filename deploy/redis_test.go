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
	admin := newClient(t, adminURL)
	open := func(t testing.TB) *redisstore.Store {
		s, err := redisstore.Open(redisstore.Options{URL: url})
		must(t, err)
		t.Cleanup(func() { s.Close() })
		const long = 5 * time.Minute // where production would give up on a server that stands still
		o := s.Client().(*redis.Client).Options()
		o.ReadTimeout, o.WriteTimeout, o.DialTimeout = long, long, long
		return s
	}
	t.Run("suite", func(t *testing.T) { storetest.Run(t, storetest.InRedis(admin, open)) })
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
