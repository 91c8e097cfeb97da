package endtoend

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/redis/go-redis/v9"

	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

// identifiedRules bring a caller's identity into every kind of message, and of entry in Redis.
var identifiedRules = []rules.Rule{
	{Name: "one", Key: []string{"user"}, Limit: 40, Window: window.Shape{Length: time.Hour, Buckets: 1}},
	{Name: "many", Key: []string{"user", "ip"}, Limit: 1e6, Window: window.Shape{Length: time.Hour, Buckets: 60}},
	{Name: "tokens", Key: []string{"ip"}, Limit: 600, Burst: 1000, Algorithm: rules.TokenBucket, Window: window.Shape{Length: time.Hour}},
	{Name: "strict", Key: []string{"user"}, Limit: 1000, Enforcement: rules.Strict, Window: window.Shape{Length: time.Hour, Buckets: 1}},
}

// callers are who asks: by a name, by one that is longer than a key may be, by addresses.
func callers() []identity.Attributes {
	caller := func(user, ip string) identity.Attributes {
		return identity.Attributes{{Name: "user", Value: user}, {Name: "ip", Value: ip}}
	}
	return []identity.Attributes{
		caller("kristie@example.org", "203.0.113.77"),
		caller("somebody-"+strings.Repeat("long-", 150), "2001:db8:1234:5678::9"),
	}
}

// TestNobodySeesWhoAsks: with a secret to hash keys by, nothing that goes over NATS and nothing that Redis holds tells who
// asked; without one, both do, or this test would find nothing anyhow.
func TestNobodySeesWhoAsks(t *testing.T) {
	hasher, err := identity.NewHasher([]byte("a secret of enough bytes"))
	if err != nil {
		t.Fatal(err)
	}
	raw := []string{"kristie", "example.org", "203.0.113.77", "somebody-", "long-long-", "2001:db8"}
	for _, tt := range []struct {
		name   string
		hasher *identity.Hasher
		seen   []string // in both
		unseen []string
	}{
		{"plain", nil, []string{"kristie", "203.0.113.77", "2001:db8"}, nil},
		{"hashed", hasher, []string{hasher.Hash("kristie@example.org")}, raw},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newLive(t, singleRedis(t), 0, 1, identifiedRules...)
			spy := f.spy()
			f.addPrompt(2, func(o *check.Options) { o.KeyHash = tt.hasher })
			f.welcomed()
			f.askAll()
			messages, stored := spy(), f.everythingInRedis()
			for _, kind := range []string{"live.report.", "live.lease.", "live.alarm."} {
				if !contains(messages, kind) {
					t.Errorf("no message %q went over NATS", kind)
				}
			}
			for where, all := range map[string][]string{"NATS": messages, "Redis": stored} {
				for _, text := range tt.seen {
					if !contains(all, text) {
						t.Errorf("%s: %q is in none of %d texts", where, text, len(all))
					}
				}
				for _, text := range tt.unseen {
					if contains(all, text) {
						t.Errorf("%s: %q can be seen", where, text)
					}
				}
			}
		})
	}
}

func contains(all []string, text string) bool {
	return slices.ContainsFunc(all, func(s string) bool { return strings.Contains(s, text) })
}

// spy writes down everything that goes over NATS from now on, subjects too, until the returned function is called.
func (f *live) spy() func() []string {
	f.t.Helper()
	conn := f.connect("spy")
	var mu sync.Mutex
	var all []string
	_, err := conn.Subscribe(">", func(m *nats.Msg) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, m.Subject, m.Reply, string(m.Data))
	})
	if err == nil {
		err = conn.Flush() // the server knows of it
	}
	if err != nil {
		f.t.Fatal(err)
	}
	return func() []string {
		if err := conn.Flush(); err != nil {
			f.t.Fatal(err)
		}
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
}

// askAll has all callers ask by every rule at all checkers, over a limit too, settle what they were charged, and waits
// until everything is reported, and answered.
func (f *live) askAll() {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for _, c := range f.checkers {
		for _, who := range callers() {
			_, token, err := c.AcquireToken(ctx, who, 30) // waits for permits
			if err == nil && token != "" {
				err = c.Settle(token, 5)
			}
			if err != nil {
				f.t.Fatal(err)
			}
			for range 100 { // until it is denied
				c.Check(who, 1)
			}
		}
	}
	f.until("everything is reported and settled", func() bool {
		var settled int64
		for _, c := range f.checkers {
			s := c.Stats()
			if s.Unreported() != 0 || s.SettlementsTaken != s.SettlementsAnswered {
				return false
			}
			settled += s.SettlementsTaken
		}
		return settled > 0 && f.workers[0].Stats().Alarms > 0
	})
}

// everythingInRedis are the names, fields and values of all keys.
func (f *live) everythingInRedis() (all []string) {
	f.t.Helper()
	ctx := context.Background()
	client := f.workers[0].store.Client()
	iter := client.Scan(ctx, 0, "*", 0).Iterator()
	kinds := map[string]bool{}
	for iter.Next(ctx) {
		name := iter.Val()
		kind, err := client.Type(ctx, name).Result()
		if err != nil {
			f.t.Fatal(err)
		}
		values, err := valuesOf(ctx, client, name, kind)
		if err != nil {
			f.t.Fatal(err)
		}
		kinds[strings.SplitN(strings.TrimPrefix(name, "live:{0}:"), ":", 2)[0]] = true
		all = append(append(all, name), values...)
	}
	if err := iter.Err(); err != nil {
		f.t.Fatal(err)
	}
	for _, kind := range []string{"1", "n", "h", "g", "s", "mark", "ledger"} { // see package redisstore
		if !kinds[kind] {
			f.t.Errorf("there are no entries %q in Redis, only %v", kind, kinds)
		}
	}
	return all
}

func valuesOf(ctx context.Context, client redis.UniversalClient, name, kind string) ([]string, error) {
	switch kind {
	case "hash":
		fields, err := client.HGetAll(ctx, name).Result()
		var all []string
		for field, value := range fields {
			all = append(all, field, value)
		}
		return all, err
	case "string":
		value, err := client.Get(ctx, name).Result()
		return []string{value}, err
	}
	return nil, fmt.Errorf("%q is a %s, which nobody looks into here", name, kind)
}
