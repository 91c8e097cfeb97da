package peers

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// networkLimiters are those that count in a Redis which several processes can share, each with a
// quota that it never reaches: one Redis does not run a million scripts in a second, and no checker
// is asked 10^12 times in a minute.
var networkLimiters = []struct {
	name string
	make func(testing.TB, quota) *subject
	far  quota
	// clockEvery is 1 where the clock is no part worth speaking of.
	clockEvery int
}{
	// With much more, a hit's share of the second would be lost in the rounding of its script's
	// times.
	{"redis_rate", newRedisRate, quota{limit: 1_000_000, window: time.Second}, 1},
	{"offpath", newFleet, quota{limit: 1_000_000_000_000, window: time.Minute}, 16},
}

// networkGoroutines is how many callers there are, as many as a busy service has requests in hand.
const networkGoroutines = 64

// networkLoads are as many hits as the limiter can decide about, and the same number for all.
var networkLoads = []struct {
	name string
	load load
}{
	{"full", load{goroutines: networkGoroutines}},
	{"10k", load{goroutines: networkGoroutines, every: time.Second / 10_000}},
}

// BenchmarkNetwork measures one decision of cost 1 by 64 goroutines whose hits are counted in a
// real Redis on this machine: go-redis/redis_rate, which asks Redis about each, and offpath, with
// its reports going over a real NATS (in this process) to one aggregator (likewise) and on to
// Redis.
//
// redis-cmds/1000hits are the commands that Redis was sent, also those in the background, from the
// first hit until the last one is counted; see redisServer.commands. offpath's grow with time and
// with keys, not with hits, so at full load they are few because its hits are many. At load=10k
// both get 10,000 hits per second in all, which is the row to compare them by; its pace being
// given, it has no ns/op.
//
// Latencies are from a pass of their own, like BenchmarkDecide's; redis_rate's and those at
// load=10k are of every hit. At full load 64 callers share the cores, so ns/op is what all of them
// get done, and p50 what one of them waits for.
func BenchmarkNetwork(b *testing.B) {
	for _, l := range networkLoads {
		for _, keys := range []string{"hot", "zipf"} {
			for _, lim := range networkLimiters {
				clockEvery := lim.clockEvery
				if l.load.every > 0 {
					clockEvery = 1
				}
				row{
					name:       "limiter=" + lim.name + "/load=" + l.name + "/keys=" + keys,
					traffic:    overNetwork.traffic(keys),
					load:       l.load,
					make:       func(t testing.TB) *subject { return lim.make(t, lim.far) },
					showKeys:   lim.name == "offpath", // redis_rate's are forgotten after a second
					heat:       250 * time.Millisecond,
					clockEvery: clockEvery,
				}.run(b)
			}
		}
	}
}

// closers are what has to be ended, in the order in which it was begun.
type closers []func() error

func (c *closers) add(f func() error) { *c = append(*c, f) }

// close ends everything, the last begun first.
func (c *closers) close() error {
	var errs []error
	for i := len(*c) - 1; i >= 0; i-- {
		errs = append(errs, (*c)[i]())
	}
	*c = nil
	return errors.Join(errs...)
}

// patience is how long anything that has to happen may take on a slow machine.
const patience = 60 * time.Second

// until waits until something holds; the error says what did not.
func until(what string, holds func() bool) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-tick.C {
		if holds() {
			return nil
		}
	}
	return fmt.Errorf("waited %v in vain: %s", patience, what)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
