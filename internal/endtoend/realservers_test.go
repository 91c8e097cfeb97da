package endtoend

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
)

// What holds over real servers while nothing is wrong.

func TestFleetCountsExactlyOverNATSAndRedis(t *testing.T) { countsExactly(t, singleRedis(t)) }

// pass sends hits of one key that must all pass.
func (f *live) pass(c *liveChecker, rule string, n int64) {
	f.t.Helper()
	require(f.t, f.hit(c, rule, "k", n), "%d hits of %s are denied", n, rule)
}

func countsExactly(t *testing.T, redis *backend) {
	list := append(strictly(counting("strict", 120, year)), counting("many", 1e6, year), counting("few", 100, year),
		bucket("tokens", rules.TokenBucket, 1, 100, year.Length))
	f := newLive(t, redis, 0, 2, list...)
	f.addCheckers(3, steady)
	f.welcomed()
	leaves := func(rule string, want int64) {
		t.Helper()
		f.until(fmt.Sprintf("all know of %d left of %s", want, rule), f.all(func(c *liveChecker) bool { return c.left(rule) == want }))
	}
	t.Run("every hit once", func(*testing.T) {
		var running sync.WaitGroup
		for i, c := range f.checkers {
			running.Go(func() {
				for r := rand.New(rand.NewPCG(uint64(i), 1)); r.IntN(1000) > 0; {
					f.hit(c, "many", fmt.Sprint("k", r.IntN(50)), 1+r.Int64N(3))
				}
			})
		}
		running.Wait()
		f.reported()
	})
	t.Run("one limit for all", func(t *testing.T) {
		for i, n := range []int64{40, 30, 30} {
			f.pass(f.checkers[i], "few", n)
			f.reported()
		}
		leaves("few", 0)
		for _, c := range f.checkers {
			expect(t, !f.hit(c, "few", "k", 1), "101 of 100 pass")
		}
	})
	t.Run("never more than a strict limit, and all of it", func(t *testing.T) {
		before := f.admitted.Load()
		more := f.all(func(c *liveChecker) bool { f.hit(c, "strict", "k", 1); return true })
		f.until("120 pass", func() bool { return more() && f.admitted.Load() >= before+120 })
		for range 20 {
			more()
		}
		n := f.admitted.Load() - before
		expect(t, n == 120, "%d of 120 pass", n)
	})
	t.Run("never more to callers who wait at once", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var waiting sync.WaitGroup
		var passed atomic.Int64
		for i := range 24 {
			waiting.Go(func() {
				c := f.checkers[i%3]
				l, _ := c.Limiter("strict")
				for range 5 {
					d, _ := c.Wait(ctx, check.Request{Limiter: l, Key: "waited for", Cost: 2})
					if d.Allowed {
						passed.Add(2)
						f.admitted.Add(2)
					}
				}
			})
		}
		waiting.Wait()
		n := passed.Load()
		expect(t, n > 0 && n <= 120, "%d of 120 pass", n)
		for i, c := range f.checkers {
			expect(t, c.Stats().Waiting == 0, "%d still wait at checker %d", c.Stats().Waiting, i)
		}
	})
	t.Run("a true cost makes room at all checkers, once", func(t *testing.T) {
		l, _ := f.checkers[0].Limiter("tokens")
		d := f.checkers[0].Do(check.Request{Limiter: l, Key: "k", Cost: 90, Receipt: true})
		require(t, d.Allowed, "%+v", d)
		f.admitted.Add(90)
		leaves("tokens", 10)
		f.must(f.checkers[1].Settle(d.Receipt, 20))
		leaves("tokens", 80)
		f.must(f.checkers[2].Settle(d.Receipt, 0)) // which does not know that it was
		f.pass(f.checkers[2], "tokens", 70)
		leaves("tokens", 10)
	})
	f.conserved()
}

// identifyingRules bring a caller's identity into every kind of message, and of entry in Redis.
const identifyingRules = `
  - {name: one, key: [user], limit: 40/8760h}
  - {name: many, key: [user, ip], limit: 1000000/8760h, buckets: 60}
  - {name: tokens, key: [ip], limit: 600/8760h, burst: 1000, algorithm: token_bucket}
  - {name: strict, key: [user], limit: 1000/8760h, enforcement: strict}`

// TestHashedKeysTellNobodyWhoAsks: with a secret to hash keys by, nothing that goes over NATS and
// nothing that Redis holds tells who asked; without one both do, or this test would find nothing
// anyhow.
func TestHashedKeysTellNobodyWhoAsks(t *testing.T) {
	hasher, err := identity.NewHasher([]byte("a secret of enough bytes"))
	must(t, err)
	redis := singleRedis(t)
	for _, tt := range []struct {
		name         string
		hasher       *identity.Hasher
		seen, unseen []string
	}{
		{"plain", nil, []string{"kristie", "203.0.113.77", "2001:db8"}, nil},
		{"hashed", hasher, []string{hasher.Hash("kristie@example.org")},
			[]string{"kristie", "example.org", "203.0.113.77", "somebody-", "long-long-", "2001:db8"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newLive(t, redis, 0, 1, parse(t, identifyingRules)...)
			messages := f.listen()
			f.addCheckers(2, steady, func(o *check.Options) { o.KeyHash = tt.hasher })
			f.welcomed()
			f.askAndSettle("user=kristie@example.org ip=203.0.113.77",
				"user=somebody-"+strings.Repeat("long-", 150)+" ip=2001:db8:1234:5678::9") // longer than a key may be
			for where, all := range map[string]string{"NATS": messages(), "Redis": f.everythingInRedis()} {
				for _, text := range tt.seen {
					expect(t, strings.Contains(all, text), "%s: %q is not in %d bytes", where, text, len(all))
				}
				for _, text := range tt.unseen {
					expect(t, !strings.Contains(all, text), "%s: %q can be seen", where, text)
				}
			}
		})
	}
}

// listen writes down everything that goes over NATS from now on, subjects too. The function that it
// returns wants some of every kind of message.
func (f *live) listen() func() string {
	f.t.Helper()
	conn := f.connect("listener")
	var mu sync.Mutex
	var all strings.Builder
	_, err := conn.Subscribe(">", func(m *nats.Msg) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintln(&all, m.Subject, m.Reply, string(m.Data))
	})
	f.must(err)
	f.must(conn.Flush()) // the server knows of it
	return func() (seen string) {
		for _, kind := range []string{".report.", ".lease.", ".alarm."} {
			f.until("a message went over NATS: "+kind, func() bool {
				mu.Lock()
				defer mu.Unlock()
				seen = all.String()
				return strings.Contains(seen, f.namespace+kind)
			})
		}
		return seen
	}
}

// askAndSettle has all callers ask by every rule at all checkers, over a limit too, and settle what
// they were charged, and delivers it all.
func (f *live) askAndSettle(callers ...string) {
	f.t.Helper()
	for _, c := range f.checkers {
		for _, caller := range callers {
			d, err := c.Wait(f.t.Context(), check.Request{Attributes: attributes(caller), Cost: 30, Receipt: true})
			f.must(err)
			if d.Receipt != "" {
				f.must(c.Settle(d.Receipt, 5))
			}
			for range 100 { // until it is denied
				c.Check(attributes(caller), 1)
			}
		}
	}
	f.until("somebody is near a limit", func() bool { return f.workers[0].Stats().Alarms > 0 })
	f.stopCheckers()
}

// everythingInRedis are the names, fields and values of all entries of the fleet, of which there
// must be some of every kind.
func (f *live) everythingInRedis() string {
	f.t.Helper()
	ctx, client := f.t.Context(), f.workers[0].store.Client()
	names, err := client.Keys(ctx, f.namespace+":*").Result()
	f.must(err)
	var all strings.Builder
	for _, name := range names {
		value, err := client.Get(ctx, name).Result()
		var fields map[string]string
		if err != nil {
			fields, err = client.HGetAll(ctx, name).Result()
			f.must(err) // it is neither
		}
		fmt.Fprintln(&all, name, value, fields)
	}
	for _, kind := range []string{"1", "n", "h", "g", "s", "mark", "ledger"} { // see package redisstore
		expect(f.t, strings.Contains(all.String(), f.namespace+":{0}:"+kind),
			"there are no entries %q in Redis, only %q", kind, names)
	}
	return all.String()
}
