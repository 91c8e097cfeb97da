package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/offpath-io/offpath/cmd/internal/daemon"
	"github.com/offpath-io/offpath/internal/natsclient"
	"github.com/offpath-io/offpath/internal/natsconn"
	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/rulestest"
	"github.com/offpath-io/offpath/internal/testing/servers"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
	"github.com/offpath-io/offpath/pkg/aggregate/redisstore"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/events/natsbus"
)

// checker is a checker of the fleet, as a program would embed it.
type checker struct {
	*check.Checker
	stop func()
}

// drain stops the checker once all its hits have been answered: a stop by itself does not wait for
// a machine that stands still.
func (c checker) drain(t *testing.T, d *daemontest.Daemon) {
	t.Helper()
	d.Await("all hits are answered", func() bool {
		return !slices.ContainsFunc(c.Stats().Rules, func(r check.RuleStats) bool { return r.Charged != r.Answered })
	})
	c.stop()
}

// newChecker connects a checker of this name, not the same twice.
func newChecker(t *testing.T, url, namespace, name string, access natsconn.Access) checker {
	t.Helper()
	set := rulestest.Parse(t, "rules: [{name: per-user, key: [user], limit: 100/day}]")
	options, err := access.Options(nil)
	must(t, err)
	conn, err := natsclient.Open(url, name, quiet, options...)
	must(t, err)
	t.Cleanup(conn.Close)
	link, err := natsbus.NewChecker(conn, namespace, name)
	must(t, err)
	c, err := check.New(check.Options{Rules: set, Link: link})
	must(t, err)
	return checker{c, daemontest.Background(t, c.Run)}
}

func startAggregator(t *testing.T, nats *servers.NATS, redis *servers.Redis, args ...string) *daemontest.Daemon {
	t.Helper()
	return daemontest.Start(t, run, append([]string{
		"--nats", nats.URL(), "--redis", redis.URL(), "--admin", "127.0.0.1:0",
	}, args...)...)
}

func isReady(d *daemontest.Daemon) func() bool {
	return func() bool {
		status, _ := d.Get("/readyz")
		return status == 200
	}
}

// value returns a metric's value, 0 if it is not there.
func value(t *testing.T, d *daemontest.Daemon, name string) (n float64) {
	t.Helper()
	text := d.Metric(name)
	if text == "" {
		return 0
	}
	if _, err := fmt.Sscan(text, &n); err != nil || math.IsNaN(n) {
		t.Fatalf("%s is %q", name, text)
	}
	return n
}

// TestNothingIsUpYet starts an aggregator before NATS and Redis, brings them up one by one, and
// takes each away again.
func TestNothingIsUpYet(t *testing.T) {
	nats, redis := serverstest.NATS(t), serverstest.Redis(t)
	must(t, nats.Stop())
	must(t, redis.Kill())
	d := startAggregator(t, nats, redis)
	d.Await("it says what it waits for", func() bool {
		return strings.Contains(d.Stderr(), "waiting for NATS") && strings.Contains(d.Stderr(), "waiting for the store")
	})
	waits := func(what ...string) {
		t.Helper()
		d.Await(fmt.Sprintf("it waits for %v", what), func() bool {
			status, body := d.Get("/readyz")
			var s state
			if err := json.Unmarshal([]byte(body), &s); err != nil {
				t.Fatalf("%v: %s", err, body)
			}
			if s.Ready != (status == 200) {
				return false
			}
			return slices.EqualFunc(s.WaitingFor, what, strings.HasPrefix)
		})
	}
	waits("NATS", "Redis: ")
	if status, _ := d.Get("/healthz"); status != 200 {
		t.Errorf("healthz: %d", status)
	}
	equal(t, "connected", d.Metric("offpath_redis_connected")+d.Metric("offpath_nats_connected"), "00")

	must(t, redis.Restart(t.Context()))
	waits("NATS")
	must(t, nats.Restart())
	waits()
	equal(t, "connected", d.Metric("offpath_redis_connected")+d.Metric("offpath_nats_connected"), "11")

	// It works: hits arrive in the ledger.
	c := newChecker(t, nats.URL(), "offpath", "one", natsconn.Access{})
	d.Await("the checker hears of it", func() bool { return c.Stats().Shards == 1 })
	limiter, _ := c.Limiter("per-user")
	limiter.Check("kristie", 5)
	d.Await("hits are counted", func() bool { return value(t, d, `offpath_hits_total{outcome="counted",rule="per-user"}`) == 5 })

	must(t, redis.Kill())
	waits("Redis: ")
	must(t, nats.Stop())
	waits("NATS", "Redis: ")
	limiter.Check("kristie", 6)
	must(t, redis.Restart(t.Context()))
	must(t, nats.Restart())
	waits()
	c.drain(t, d)
	equal(t, "hits counted", value(t, d, `offpath_hits_total{outcome="counted",rule="per-user"}`), 11)
	store, err := redisstore.Open(redisstore.Options{URL: redis.URL(), Namespace: natsconn.DefaultNamespace})
	must(t, err)
	defer store.Close()
	ledger, err := store.Ledger(t.Context())
	if n := ledger["per-user"].Counted; err != nil || n != 11 && n != 6 { // Redis has lost five
		t.Errorf("ledger: %v, %v", ledger, err)
	}
	for _, said := range []string{"connected to NATS", "the store is back"} {
		if !strings.Contains(d.Stderr(), said) {
			t.Errorf("it never said %q:\n%s", said, d.Stderr())
		}
	}
	d.MustStop()
}

// TestAnotherNumberOfShards is refused; none in particular takes what is on record.
func TestAnotherNumberOfShards(t *testing.T) {
	nats, redis := serverstest.NATS(t), serverstest.Redis(t)
	first := startAggregator(t, nats, redis, "--shards", "3")
	first.Await("it is ready", isReady(first))
	status, _, stderr := daemontest.Run(t, run, nil,
		"--nats", nats.URL(), "--redis", redis.URL(), "--admin", "127.0.0.1:0", "--shards", "4")
	if status != 1 || !strings.Contains(stderr, storage.ErrShards.Error()) || !strings.Contains(stderr, "4 asked for, 3 recorded") {
		t.Errorf("status %d, stderr %q", status, stderr)
	}
	unsure := startAggregator(t, nats, redis)
	unsure.Await("it is ready", isReady(unsure))
	equal(t, "shards", unsure.Metric("offpath_shards"), "3")
}

// TestNotReadyOnceItLeaves, although it could work.
func TestNotReadyOnceItLeaves(t *testing.T) {
	conn := serverstest.Connect(t, serverstest.NATS(t).URL())
	worker := newTestWorker(t)
	worker.Step(t.Context(), time.Now().UnixNano())
	leaving := daemon.NewLeaving(0)
	ask := (&process{worker: worker, conn: conn, leaving: leaving}).readiness
	if ready, detail := ask(); !ready {
		t.Fatalf("before: %+v", detail)
	}
	told, stop := context.WithCancel(t.Context())
	stop()
	must(t, leaving.Part(quiet).Run(told))
	if ready, detail := ask(); ready || !detail.(state).Leaving {
		t.Errorf("after: %v, %+v", ready, detail)
	}
}

// TestClosedForGood: an aggregator whose connection the library gives up for good ends, so that it
// is started again with another one: it would count nothing for ever.
func TestClosedForGood(t *testing.T) {
	nats := serverstest.NATS(t)
	d := startAggregator(t, nats, serverstest.Redis(t))
	d.Await("it is ready", isReady(d))
	closed := func() bool {
		return strings.Contains(d.Stderr(), "closed for good, after: nats: Maximum Payload Violation")
	}
	connects := func() int { return strings.Count(d.Stderr(), "connected to NATS") }
	// The server's complaint can be lost: it resets the connection as well, and if the library meets
	// that first, it connects again, and then knows the new bound.
	for range 10 {
		before := connects()
		must(t, nats.Reload(func(o *server.Options) { o.MaxPayload = 1 })) // what it tells next is longer
		d.Await("it gives up, or connects again", func() bool { return closed() || connects() > before })
		if closed() {
			break
		}
		before = connects()
		must(t, nats.Restart()) // with the old bound
		d.Await("it connects again", func() bool { return connects() > before })
	}
	if status := d.Wait(); status != 1 || !closed() {
		t.Errorf("status %d, stderr:\n%s", status, d.Stderr())
	}
}
