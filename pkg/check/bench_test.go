package check

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/offpath-io/offpath/internal/testing/alloctest"
	"github.com/offpath-io/offpath/pkg/check/internal/evaluation"
	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/rules"
)

// These measure the checker alone, without an aggregator. Beside other limiters, and with its
// reporter at work, it is measured in loadtest/peers.

func benchmark(b *testing.B, name string, f func()) {
	b.Run(name, func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			f()
		}
	})
}

// ticked lets checks read the time of a tick at noon, as while Run is at work.
func ticked(c *Checker) *Checker {
	c.host.Clock.Tick(noon)
	return c
}

func BenchmarkCheck(b *testing.B) {
	c := ticked(newChecker(b, Options{}, rule("open", 1e15, time.Minute, 1),
		rule("cut", 1e15, time.Hour, 60), rule("shut", 1, 24*time.Hour, 1)))
	open, shut := limiter(b, c, "open"), limiter(b, c, "shut")
	kristie := user("kristie")
	benchmark(b, "allowed", func() { open.Check("kristie", 1) })
	benchmark(b, "allowed, cost 2", func() { open.Check("kristie", 2) })
	benchmark(b, "60 buckets, cost 2", func() { limiter(b, c, "cut").Check("kristie", 2) })
	benchmark(b, "denied", func() { shut.Check("kristie", 1) })
	benchmark(b, "three rules by attributes, one denies", func() { c.Check(kristie, 1) })
	c = ticked(newChecker(b, Options{}, rule("open", 1e15, time.Minute, 1)))
	benchmark(b, "one rule by attributes", func() { c.Check(kristie, 1) })
	shared := rule("shared", 1e15, time.Minute, 1)
	shared.Key = nil
	c = ticked(newChecker(b, Options{}, rule("open", 1e15, time.Minute, 1), rule("cut", 1e15, time.Hour, 60), shared))
	benchmark(b, "three rules by attributes", func() { c.Check(kristie, 1) })
	c = ticked(newChecker(b, Options{}, rule("open", 1e15, time.Minute, 1), shared))
	b.Run("two rules by attributes, one shared, in parallel", func(b *testing.B) {
		var n atomic.Int64
		b.RunParallel(func(pb *testing.PB) {
			attrs := user(fmt.Sprint("u", n.Add(1)))
			for pb.Next() {
				c.Check(attrs, 1)
			}
		})
	})
}

// BenchmarkCheckStrict measures a check that has permits, with the reading of the clock that it
// needs and without.
func BenchmarkCheckStrict(b *testing.B) {
	f, l := fleetAndLimiter(b, Options{}, strictRule("r", 1e12, 24*time.Hour, 1))
	atTime(noon, l).Check("kristie", 1e9)
	atTime(noon+ms, f).Step()
	f.grants(noon+2*ms, 0, 1e12, 1e12, 0)
	check := func() {
		var d Decision
		evaluation.CheckPlain((*evaluation.Decision)(&d), &l.core, l.core.Current.Load(), noon+3*ms, "kristie", 1)
	}
	f.o.Now = nil // the system's clock
	benchmark(b, "at a time", check)
	benchmark(b, "now", func() { l.core.Group.Now(); check() })
}

// BenchmarkFlush measures what one key costs off the critical path: freezing its hits into a report
// and merging the answer.
func BenchmarkFlush(b *testing.B) {
	link := new(echo)
	c, l := checkerAndLimiter(b, Options{Link: link}, rule("r", 1e15, time.Minute, 1))
	keys := make([]string, 1000)
	for i := range keys {
		keys[i] = fmt.Sprintf("user:%06d", rand.IntN(1e6))
	}
	now := noon
	link.step(c, now)
	b.ReportAllocs()
	for b.Loop() {
		for _, key := range keys {
			atTime(now, l).Check(key, 1)
		}
		now += 50 * ms
		link.step(c, now)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(keys)), "ns/key")
}

// manyRules returns n rules, each for requests of another API; the first one has a limit of its
// own.
func manyRules(b *testing.B, n int, first, others int64) *rules.Set {
	b.Helper()
	list := make([]rules.Rule, n)
	for i := range list {
		list[i] = rule(fmt.Sprintf("rule-%d", i), others, time.Hour, 1)
		list[i].Match = []rules.Condition{{Name: "api", Value: fmt.Sprint("api", i)}}
	}
	list[0].Limit = first
	return setOf(b, list...)
}

// BenchmarkManyShards: what a message about one shard takes, and a step with nothing to do, while
// another shard is dead.
func BenchmarkManyShards(b *testing.B) {
	for _, shards := range []uint32{2, 64, 1024, 16384} {
		f := unwelcomed(b, healthOptions, rule("r", 1e9, time.Hour, 1))
		l, welcome := limiter(b, f.Checker, "r"), &events.Welcome{Shards: shards, Time: noon, Checkers: 8}
		atTime(noon, f).Step()
		f.welcomed(noon, noon, welcome)
		atTime(noon, l).Check("unanswered", 1)
		atTime(noon+100*ms, f).Step()
		now := noon + 10*second
		welcome.Time = now
		f.welcomed(now, now, welcome)
		atTime(now, f).Step()
		equal(b, f.Stats().Freshness, LocalShare, "the worst freshness")
		a := alarmOf(&l.core.Group, now, 1, "a", admitted(60))
		a.Made, a.Shard = now, (f.last().Shard+1)%shards
		payload := encode(b, a)
		b.Run(fmt.Sprintf("shards=%d/alarm", shards), func(b *testing.B) {
			for b.Loop() {
				atTime(now, f).Receive(events.KindAlarm, payload)
			}
		})
		b.Run(fmt.Sprintf("shards=%d/step", shards), func(b *testing.B) {
			for b.Loop() {
				atTime(now, f).Step()
			}
		})
	}
}

// BenchmarkSetRules measures a change of rules.
func BenchmarkSetRules(b *testing.B) {
	for _, bench := range []struct {
		name          string
		rules, keys   int
		first, others int64 // limits after the change, before it 5 and 1e9
	}{
		{"10 rules, one changes", 10, 0, 6, 1e9},
		{"10k rules, none changes", 10_000, 0, 5, 1e9},
		{"10k rules, one changes", 10_000, 0, 6, 1e9},
		{"10k rules, one changes, 1M keys", 10_000, 1e6, 6, 1e9},
		{"10k rules, all change, 1M keys", 10_000, 1e6, 6, 7},
	} {
		b.Run(bench.name, func(b *testing.B) {
			sets := [...]*rules.Set{manyRules(b, bench.rules, 5, 1e9), manyRules(b, bench.rules, bench.first, bench.others)}
			c := checkerOf(b, Options{}, sets[0])
			for i := range bench.keys {
				atTime(noon, limiter(b, c, fmt.Sprintf("rule-%d", i%bench.rules))).Check(fmt.Sprint("key", i), 1)
			}
			i := 0
			for b.Loop() {
				i++
				must(b, atTime(noon, c).SetRules(sets[i%2], uint64(i)))
			}
		})
	}
}

// BenchmarkCheckAmongRules measures a check by attributes among few rules and among many.
func BenchmarkCheckAmongRules(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		c := ticked(checkerOf(b, Options{}, manyRules(b, n, 1e9, 1e9)))
		attrs := request(fmt.Sprintf("api=api%d user=k", n-1))
		benchmark(b, fmt.Sprint(n), func() { c.Check(attrs, 1) })
	}
}

// TestChecksDoNotAllocate in the common case.
func TestChecksDoNotAllocate(t *testing.T) {
	c := newChecker(t, Options{}, rule("r", 1e9, time.Minute, 1), rule("tight", 1, time.Hour, 60))
	l, tight, k := limiter(t, c, "r"), limiter(t, c, "tight"), user("k")
	atTime(noon, tight).Check("k", 1)
	clauses := ofYAML(t, Options{}, everything)
	stretch, analytics := limiter(t, clauses, "stretch"), request("user=a class=analytics tokens=3")
	blocks := newChecker(t, Options{}, rule("r", 1e9, time.Hour, 1))
	blocks.SetBlocks([]Block{{"r", "bad", time.Unix(0, noon+second)}})
	blocked, good, bad := limiter(t, blocks, "r"), user("good"), user("bad")
	hashed, byHash := checkerAndLimiter(t, Options{KeyHash: hasher(t, keySecret)}, rule("r", 1e9, time.Hour, 1))
	f, strict := fleetAndLimiter(t, Options{}, strictRule("r", 1e9, time.Hour, 1), strictRule("shut", 1, time.Hour, 1))
	strictShut := limiter(t, f.Checker, "shut")
	f.firstGrant(strict, 1e8, 0)
	atTime(noon+3*ms, strictShut).Check("k", 1)
	atTime(noon+4*ms, f).Step()
	f.grants(noon+5*ms, 0, 0, 0, time.Hour)
	for name, f := range map[string]func(){
		"by a permit":             func() { wantHit(t, strict, noon+6*ms, 1, true, "a permit") },
		"by permits":              func() { wantHit(t, strict, noon+6*ms, 2, true, "permits") },
		"without permits":         func() { wantHit(t, strictShut, noon+6*ms, 1, false, "no permit") },
		"by rule and key":         func() { atTime(noon, l).Check("k", 1) },
		"cost above 1":            func() { atTime(noon, l).Check("k", 7) },
		"denied":                  func() { atTime(noon, tight).Check("k", 1) },
		"by attributes":           func() { atTime(noon, c).Check(k, 1) },
		"a peek":                  func() { atTime(noon, c).try(Peek, k, 1) },
		"by rules with clauses":   func() { atTime(noon, clauses).Check(analytics, 1) },
		"by one of them":          func() { atTime(noon, stretch).Check("k", 1) },
		"a record":                func() { atTime(noon, clauses).try(Record, analytics, 1) },
		"a blocked key":           func() { atTime(noon, blocked).Check("bad", 1) },
		"another key":             func() { atTime(noon, blocked).Check("good", 1) },
		"a blocked key's request": func() { atTime(noon, blocks).Check(bad, 1) },
		"another request":         func() { atTime(noon, blocks).Check(good, 1) },
		"a hashed key":            func() { atTime(noon, byHash).Check("k", 1) },
		"a hashed key's request":  func() { atTime(noon, hashed).Check(k, 1) },
	} {
		alloctest.AtMost(t, 0, name, f)
	}
}

// BenchmarkFlushBesideIdleRules is of one key's hit: rules that have nothing to do cost nothing,
// however many there are.
func BenchmarkFlushBesideIdleRules(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		list := make([]rules.Rule, n)
		for i := range list {
			list[i] = rule(fmt.Sprint("r", i), 1000, time.Minute, 1)
		}
		link := new(echo)
		c := newChecker(b, Options{Link: link, HelloEvery: time.Hour}, list...)
		l, now := limiter(b, c, "r0"), noon
		link.step(c, now)
		benchmark(b, fmt.Sprint(n, " rules"), func() {
			now += 50 * ms
			atTime(now, l).Check("k", 1)
			link.step(c, now)
		})
	}
}

// BenchmarkIdleKeys is of a virtual second beside keys of a day that have done nothing for a
// minute: they cost nothing, however many there are.
func BenchmarkIdleKeys(b *testing.B) {
	for _, n := range []int{10, 100_000} {
		link := new(echo)
		c := newChecker(b, Options{Link: link, HelloEvery: time.Hour, MaxIdleKeys: -1}, rule("r", 1000, 24*time.Hour, 1))
		l, now := limiter(b, c, "r"), noon
		link.step(c, now)
		for i := range n {
			atTime(now, l).Check(fmt.Sprint("k", i), 1)
			if i%1000 == 999 {
				now += 50 * ms
				link.step(c, now)
			}
		}
		step := func() {
			now += second
			link.step(c, now)
		}
		for range 60 {
			step()
		}
		benchmark(b, fmt.Sprint(n, " keys"), step)
	}
}

// BenchmarkReturningKeys is of the first check of a key that the idle cache remembers. bytes/key is
// what such a key takes, its text included.
func BenchmarkReturningKeys(b *testing.B) {
	const n = 100_000
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	link := new(echo)
	c := newChecker(b, Options{Link: link, HelloEvery: time.Hour}, rule("r", 1000, 24*time.Hour, 1))
	openIdle(b, c, 2*n)
	l, now := limiter(b, c, "r"), noon
	link.step(c, now)
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprint("key ", i)
		atTime(now, l).Check(keys[i], 1)
		if i%1000 == 999 {
			now += 50 * ms
			link.step(c, now)
		}
	}
	for range 200 {
		now += second
		link.step(c, now)
	}
	c.host.Idle.Wait()
	s := c.Stats()
	runtime.GC()
	runtime.ReadMemStats(&after)
	i := 0
	benchmark(b, "first check", func() {
		atTime(now, l).Check(keys[i%n], 1)
		i++
	})
	b.Logf("%d live keys, %d idle ones, %d bytes per key", s.LiveKeys, s.IdleKeys, int(after.HeapAlloc-before.HeapAlloc)/n)
	runtime.KeepAlive(keys)
}
