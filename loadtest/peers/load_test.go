package peers

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A load is how hits are made.
type load struct {
	// goroutines that make them, each from a place of its own in the traffic; 0: one on each core.
	goroutines int
	// every is how far apart in time all of them together make hits; 0: as fast as decisions come.
	every time.Duration
}

// yieldEvery is how many hits a goroutine makes before it lets others run. A service's goroutines
// wait for their clients, so what works behind a limiter gets its turn; behind these, which never
// wait, it would get one in 10 ms, and its cost would be missing from the result. It costs 0.1 ns
// per hit.
const yieldEvery = 1024

// A decider decides about one hit.
type decider = func(key string) (bool, error)

// stream is one goroutine's part of a load.
type stream struct {
	hits  []string
	at    int
	every time.Duration
	due   time.Time // of the next hit, if they are paced
}

// stream returns the one of this number, of so many.
func (l load) stream(number, of int, hits []string) stream {
	s := stream{hits: hits, at: number * 7919 * 104729 % len(hits), every: l.every * time.Duration(of)}
	s.due = time.Now().Add(l.every * time.Duration(number))
	return s
}

// next returns the key of the next hit, when it is due.
func (s *stream) next() string {
	if s.every > 0 {
		s.wait()
	}
	if s.at++; s.at >= len(s.hits) {
		s.at = 0
	}
	return s.hits[s.at]
}

func (s *stream) wait() {
	time.Sleep(time.Until(s.due))
	s.due = s.due.Add(s.every)
}

// time makes b.N hits in parallel, on b's time.
func (l load) time(b *testing.B, hits []string, decide decider) (all tally) {
	procs := runtime.GOMAXPROCS(0)
	parallelism := (max(l.goroutines, procs) + procs - 1) / procs
	b.SetParallelism(parallelism)
	var number atomic.Int64
	var mu sync.Mutex
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		s := l.stream(int(number.Add(1)), parallelism*procs, hits)
		var t tally
		for pb.Next() {
			t.count(decide(s.next()))
			if t.hits%yieldEvery == 0 {
				runtime.Gosched()
			}
		}
		mu.Lock()
		defer mu.Unlock()
		all.add(t)
	})
	b.StopTimer()
	return all
}

// sample makes hits for a time, like time does, and clocks one in every so many: reading the clock
// takes as long as a decision, so most are left as they are, for their goroutines to get into each
// other's way.
func (l load) sample(hits []string, decide decider, every int, length time.Duration) (latency, tally) {
	goroutines := max(l.goroutines, runtime.GOMAXPROCS(0))
	took := make([][]int64, goroutines)
	tallies := make([]tally, goroutines)
	deadline := clock() + int64(length)
	var running sync.WaitGroup
	for i := range goroutines {
		running.Go(func() {
			s := l.stream(i, goroutines, hits)
			took[i], tallies[i] = s.sample(decide, every, deadline)
		})
	}
	running.Wait()
	var all tally
	for _, t := range tallies {
		all.add(t)
	}
	sorted := slices.Sorted(slices.Values(slices.Concat(took...)))
	return latency{quantile(sorted, 0.5), quantile(sorted, 0.99), clockCost()}, all
}

// sample makes the hits of one goroutine until the deadline, and returns how long every so many
// took.
func (s *stream) sample(decide decider, every int, deadline int64) (took []int64, t tally) {
	took = make([]int64, 0, 1<<16)
	for now := clock(); now < deadline; {
		for range every - 1 {
			t.count(decide(s.next()))
		}
		key := s.next()
		before := clock()
		ok, err := decide(key)
		now = clock()
		took = append(took, now-before)
		t.count(ok, err)
		if len(took)%(yieldEvery/every) == 0 {
			runtime.Gosched()
		}
	}
	return took, t
}
