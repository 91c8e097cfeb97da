package torture

import (
	"context"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/offpath-io/offpath/internal/testing/servers"
)

// Redis whose clock is behind has no more work than before.
func TestStoreClockCostsNothing(t *testing.T) {
	must := func(err error) {
		if t.Helper(); err != nil {
			t.Fatal(err)
		}
	}
	ctx, f := t.Context(), &fleet{dir: t.TempDir()}
	must(f.buildStoreClock(ctx))
	server, err := servers.StartRedis(ctx, f.storeOptions())
	must(err)
	t.Cleanup(func() { must(server.Stop()) })
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { must(client.Close()) })
	used := func() (sum time.Duration) {
		text, err := client.Info(ctx, "cpu").Result()
		must(err)
		for _, m := range regexp.MustCompile(`(?m)^used_cpu_(?:sys|user):([\d.]+)`).FindAllStringSubmatch(text, -1) {
			seconds, err := strconv.ParseFloat(m[1], 64)
			must(err)
			sum += time.Duration(seconds * float64(time.Second))
		}
		return sum
	}

	must(f.setStoreClock(-time.Minute))
	for range 100 { // its allocator has something to do
		must(client.Set(ctx, "a", make([]byte, 1<<20), 0).Err())
		must(client.FlushAll(ctx).Err())
	}
	now, err := client.Time(ctx).Result()
	must(err)
	if behind := time.Since(now); behind < 50*time.Second {
		t.Errorf("its clock is only %v behind", behind)
	}
	began, before := time.Now(), used()
	time.Sleep(2 * time.Second)
	if n := used() - before; before == 0 || n > time.Since(began)/4 {
		t.Errorf("at rest it took %v of CPU, after %v", n, before)
	}
}

// Redis' clock is set where all aggregators know better: they are ready, and nothing ends them until
// the offset is on record.
func TestWitnesses(t *testing.T) {
	must := func(err error) {
		if t.Helper(); err != nil {
			t.Fatal(err)
		}
	}
	ctx := t.Context()
	var status atomic.Int64 // of one of two
	var parts []*part
	for i := range aggregators {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if i == 1 {
				w.WriteHeader(int(status.Load()))
			}
		}))
		t.Cleanup(server.Close)
		parts = append(parts, &part{admin: strings.TrimPrefix(server.URL, "http://")})
	}
	server, err := servers.StartRedis(ctx, servers.RedisOptions{})
	must(err)
	t.Cleanup(func() { must(server.Stop()) })
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { must(client.Close()) })
	f := &fleet{aggregators: parts}
	f.store = &single{fleet: f, node: &node{admin: client}}
	s := &storm{fleet: f}
	free := func() bool {
		for _, p := range parts {
			if !p.take() {
				return false
			}
		}
		for _, p := range parts {
			p.release()
		}
		return true
	}

	status.Store(http.StatusServiceUnavailable)
	if s.witnesses(ctx) != nil || !free() {
		t.Error("one that is not ready knows, or one stays taken")
	}
	status.Store(http.StatusOK)
	parts[1].take()
	if s.witnesses(ctx) != nil || !parts[0].take() {
		t.Error("one that a fault has knows, or the other one stays taken")
	}
	parts[0].release()
	parts[1].release()

	release := s.witnesses(ctx)
	if release == nil || parts[0].take() || parts[1].take() {
		t.Fatal("those that are ready do not know, or are not taken")
	}
	s.storeAhead = -12 * time.Second
	released := make(chan struct{})
	go func() { release(); close(released) }()
	const soon = storePatience / 2
	within := func(d time.Duration) bool {
		select {
		case <-released:
			return true
		case <-time.After(d):
			return false
		}
	}
	if within(2 * sampleEvery) {
		t.Fatal("they are released before the offset is on record")
	}
	must(client.HSet(ctx, "offpath:config", "offset", (12*time.Second + mostOff).Nanoseconds()).Err())
	if !within(soon) || !free() {
		t.Fatal("they stay taken")
	}

	c := &campaign{storm: s}
	if c.judgeRecord(); len(c.result.Violations) > 0 {
		t.Errorf("it is on record: %+v", c.result.Violations)
	}
	s.storeAhead = time.Minute
	if c.judgeRecord(); len(c.result.Violations) != 1 {
		t.Errorf("it is not on record any more: %+v", c.result.Violations)
	}
	must(client.Del(ctx, "offpath:config").Err())
	if s.storeAhead = 0; s.onRecord(ctx) != nil {
		t.Error("none is as good as 0")
	}
	s.storeAhead = time.Minute
	over, cancel := context.WithCancel(ctx)
	release, released = s.witnesses(over), make(chan struct{})
	cancel()
	go func() { release(); close(released) }()
	if !within(soon) || !free() {
		t.Fatal("they stay taken when the storm is over")
	}
}

// Redis repeats times from when its clock is set back until it has caught up.
func TestStoreRepeats(t *testing.T) {
	s, start := &storm{}, time.Now()
	for _, set := range []struct {
		at, ahead, until time.Duration // since the start
	}{
		{10 * time.Second, time.Minute, 10 * time.Second},
		{20 * time.Second, 10 * time.Second, 70 * time.Second},
		{30 * time.Second, -10 * time.Second, 90 * time.Second},
		{40 * time.Second, 30 * time.Second, 50 * time.Second},
	} {
		s.noteStoreClock(start.Add(set.at), set.ahead)
		if !s.storeRepeats(start.Add(set.until-time.Millisecond)) && set.until > set.at || s.storeRepeats(start.Add(set.until)) {
			t.Errorf("set at %v to %v: it does not repeat until %v", set.at, set.ahead, set.until)
		}
	}
}
