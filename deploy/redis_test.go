package deploy_test

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/offpath-io/offpath/internal/testing/deploytest"
	"github.com/offpath-io/offpath/internal/testing/storetest"
	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/redisstore"
)

// TestStoreWithACL: all that the store can do, it does as the user of users.acl, on a Redis with redis.conf; and it makes use of
// each command that it is allowed.
func TestStoreWithACL(t *testing.T) {
	url, adminURL := deploytest.Redis(t)
	options, err := redis.ParseURL(adminURL)
	if err != nil {
		t.Fatal(err)
	}
	admin := administrator{redis.NewClient(options)}
	defer admin.Close()
	if !t.Run("suite", func(t *testing.T) { storetest.Run(t, admin.harness(url)) }) {
		t.Error("denied: ", admin.denied(t))
	}
	if denied := admin.denied(t); len(denied) > 0 {
		t.Errorf("the store has tried what it may not: %v", denied)
	}
	used, allowed := admin.used(t), allowedCommands(t)
	if missing := slices.DeleteFunc(slices.Clone(allowed), func(c string) bool { return used[c] }); len(missing) > 0 {
		t.Errorf("allowed, and never used: %v", missing)
	}
	for _, own := range administrators {
		if slices.Contains(allowed, own) {
			t.Errorf("%s is allowed, and this test cannot tell who has used it", own)
		}
	}
}

// TestACLDenies what would do harm.
func TestACLDenies(t *testing.T) {
	url, _ := deploytest.Redis(t)
	options, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	user := redis.NewClient(options)
	defer user.Close()
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
	options.Username, options.Password = "", ""
	nobody := redis.NewClient(options)
	defer nobody.Close()
	if err := nobody.Ping(t.Context()).Err(); err == nil || !strings.HasPrefix(err.Error(), "NOAUTH") {
		t.Errorf("without a password: %v", err)
	}
}

func allowedCommands(t *testing.T) (all []string) {
	t.Helper()
	for _, rule := range regexp.MustCompile(`\s\+(\S+)`).FindAllStringSubmatch(deploytest.Read(t, "users.acl"), -1) {
		all = append(all, rule[1])
	}
	if len(all) == 0 {
		t.Fatal("users.acl allows nothing")
	}
	return all
}

// administrators are the commands that the tests' own user gives, none of which the store's may need.
var administrators = []string{"flushall", "keys", "dump", "pttl", "restore", "acl"}

type administrator struct{ *redis.Client }

func (a administrator) harness(url string) func(testing.TB) storetest.Harness {
	return func(t testing.TB) storetest.Harness {
		a.lose(t)
		open := func() *redisstore.Store {
			s, err := redisstore.Open(redisstore.Options{URL: url})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() })
			return s
		}
		store := open()
		return storetest.Harness{
			Store: store,
			Other: open(),
			Now:   time.Now().UnixNano(),
			Clock: func() int64 { return time.Now().UnixNano() },
			Ledger: func(t testing.TB) aggregate.Ledger {
				l, err := store.Ledger(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				return l
			},
			Lose:     a.lose,
			Snapshot: a.snapshot,
			Expiries: a.expiries,
		}
	}
}

func (a administrator) lose(t testing.TB) {
	t.Helper()
	if err := a.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
}

// each tells of each key when it expires, in Unix ms, 0 for never.
func (a administrator) each(t testing.TB, tell func(key string, expires int64)) {
	t.Helper()
	keys, err := a.Keys(t.Context(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		left, err := a.PTTL(t.Context(), key).Result()
		if err != nil {
			t.Fatal(err)
		}
		expires := int64(0)
		if left > 0 {
			expires = time.Now().Add(left).UnixMilli()
		}
		tell(key, expires)
	}
}

func (a administrator) snapshot(t testing.TB) func() {
	t.Helper()
	type saved struct {
		data    string
		expires int64
	}
	all := make(map[string]saved)
	a.each(t, func(key string, expires int64) {
		data, err := a.Dump(t.Context(), key).Result()
		if err != nil {
			t.Fatal(err)
		}
		all[key] = saved{data, expires}
	})
	return func() {
		a.lose(t)
		for key, v := range all {
			if err := a.Do(t.Context(), "RESTORE", key, v.expires, v.data, "ABSTTL").Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func (a administrator) expiries(t testing.TB) (all []int64) {
	t.Helper()
	a.each(t, func(key string, expires int64) {
		if !strings.HasSuffix(key, ":config") && !strings.HasSuffix(key, "}:meta") && !strings.HasSuffix(key, "}:ledger") {
			all = append(all, expires*int64(time.Millisecond))
		}
	})
	return all
}

// denied is what the ACL has denied, also within scripts that go on.
func (a administrator) denied(t *testing.T) []string {
	t.Helper()
	log, err := a.ACLLog(t.Context(), 100).Result()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]bool{}
	for _, entry := range log {
		all[entry.Object] = true
	}
	return slices.Sorted(maps.Keys(all))
}

// used is which commands the server has carried out. It may be asked once, since it is a command too.
func (a administrator) used(t *testing.T) map[string]bool {
	t.Helper()
	stats, err := a.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]bool)
	for _, line := range regexp.MustCompile(`cmdstat_(\w+):calls=[1-9]`).FindAllStringSubmatch(stats, -1) {
		all[line[1]] = true
	}
	return all
}
