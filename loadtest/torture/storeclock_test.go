package torture

import (
	"regexp"
	"strconv"
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
