package deploy_test

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/offpath-io/offpath/internal/testing/deploytest"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/redisstore"
	"github.com/offpath-io/offpath/pkg/window"
)

// TestClusterWithACL: with what README.md adds for a Cluster, and with each of that, the user of users.acl can count in one.
func TestClusterWithACL(t *testing.T) {
	added := regexp.MustCompile("A Cluster's client needs `([^`]+)` too").FindStringSubmatch(deploytest.Read(t, "README.md"))
	user := regexp.MustCompile(`(?m)^user offpath on #\S+ (.*)$`).FindStringSubmatch(deploytest.Read(t, "users.acl"))
	if added == nil || user == nil {
		t.Fatalf("%q, %q", added, user)
	}
	addrs := serverstest.RedisCluster(t).Addrs()
	count := func(extra []string, patience time.Duration) error {
		for _, addr := range addrs {
			admin := redis.NewClient(&redis.Options{Addr: addr})
			rules := append(append([]string{"reset", "on", ">secret"}, strings.Fields(user[1])...), extra...)
			if err := admin.ACLSetUser(t.Context(), "offpath", rules...).Err(); err != nil {
				t.Fatal(err)
			}
			_ = admin.Close()
		}
		store, err := redisstore.Open(redisstore.Options{URL: "redis://offpath:secret@" + strings.Join(addrs, ",")})
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		fleet, err := store.Join(ctx, 0)
		for shard := 0; shard < fleet.Shards && err == nil; shard++ {
			_, err = store.Apply(ctx, &aggregate.Fold{Shard: uint32(shard), Now: time.Now().UnixNano(), Rules: []aggregate.Rule{{
				Name: "r", Shape: window.Shape{Length: time.Minute, Buckets: 1},
			}}})
		}
		if err == nil {
			_, err = store.Ledger(ctx)
		}
		return err
	}
	extra := strings.Fields(added[1])
	if err := count(extra, time.Minute); err != nil {
		t.Error(err)
	}
	for i, one := range extra {
		without := append(append([]string{}, extra[:i]...), extra[i+1:]...)
		if err := count(without, 5*time.Second); err == nil {
			t.Errorf("%s is not needed", one)
		}
	}
}
