package peers

import (
	"errors"
	"flag"
	"runtime"
	"strings"
	"testing"
	"time"
)

// A subject is a limiter, made for one repeat of one row.
type subject struct {
	// decide decides about one hit of cost 1; true: it may pass. An error is no decision.
	decide func(key string) (bool, error)
	// settle, if there is one, returns when all of the hits that were admitted so far are counted.
	settle func(admitted int64) error
	// reports, if there are any, says how many were answered since the beginning.
	reports counter
	// redis, if there is one, is where the limiter counts.
	redis *redisServer
	// close, if there is one, ends what the limiter runs, and holds what it has counted against the
	// hits that were admitted.
	close func(admitted int64) error
}

// A quota is what a subject is to limit each key to. Benchmarks set it out of reach.
type quota struct {
	limit  int64
	window time.Duration
}

// A row is one line of the results.
type row struct {
	name    string
	traffic *traffic
	load    load
	make    func(testing.TB) *subject
	// showKeys shows the subject every key before anything is measured.
	showKeys bool
	// heat, if it is not 0, is how long the subject then works as hard as it can, which opens the
	// connections that it needs.
	heat time.Duration
	// clockEvery is how many decisions there are for each one that is clocked, in a pass of its
	// own.
	clockEvery int
}

// A repeat is one of the -count times that a row is measured, with a subject of its own.
type repeat struct {
	row      *row
	subject  *subject
	procs    int // GOMAXPROCS
	latency  latency
	admitted int64 // hits, ever
}

// run measures the row. Package testing calls the function with larger and larger b.N, and begins
// every repeat with 1, but sets GOMAXPROCS only after the very first call.
func (r row) run(b *testing.B) {
	var current *repeat
	b.Run(r.name, func(b *testing.B) {
		if current == nil || b.N == 1 || current.procs != runtime.GOMAXPROCS(0) {
			last := current
			current = nil
			must(b, last.end())
			current = r.begin(b)
		}
		current.measure(b)
	})
	if err := current.end(); err != nil {
		b.Errorf("%s: %v", r.name, err)
	}
}

// begin makes a subject, and finds out the distribution of its latencies.
func (r *row) begin(b *testing.B) *repeat {
	b.Helper()
	p := &repeat{row: r, subject: r.make(b), procs: runtime.GOMAXPROCS(0)}
	if err := errors.Join(p.warmUp(), p.sample()); err != nil {
		b.Fatal(errors.Join(err, p.end()))
	}
	return p
}

func (p *repeat) warmUp() error {
	var t tally
	if keys := p.row.traffic.keys; p.row.showKeys {
		if once() {
			keys = keys[:min(len(keys), 1000)]
		}
		for _, key := range keys {
			t.count(p.subject.decide(strings.Clone(key))) // a copy: the limiter keeps it
		}
	}
	if p.row.heat > 0 {
		_, u := load{goroutines: p.row.load.goroutines}.sample(p.row.traffic.hits, p.subject.decide, 1, unlessOnce(p.row.heat))
		t.add(u)
	}
	runtime.GC() // what setting up has left is nobody's to clear in the measured part
	return p.took(t)
}

// sampleFor is how long latencies are sampled. It is a time, because decisions take from 20 ns to 1
// ms.
const sampleFor = 500 * time.Millisecond

// once says that every benchmark is run only to see that it runs: its figures are for nobody.
func once() bool { return flag.Lookup("test.benchtime").Value.String() == "1x" }

// unlessOnce returns a time that makes figures good, or very little.
func unlessOnce(length time.Duration) time.Duration {
	if once() {
		return min(length, 10*time.Millisecond)
	}
	return length
}

func (p *repeat) sample() error {
	var t tally
	p.latency, t = p.row.load.sample(p.row.traffic.hits, p.subject.decide, p.row.clockEvery, unlessOnce(sampleFor))
	return p.took(t)
}

// took is told of the hits that the subject took, and waits until it has counted them.
func (p *repeat) took(t tally) error {
	p.admitted += t.admitted
	if p.subject.settle == nil {
		return t.verdict()
	}
	return errors.Join(t.verdict(), p.subject.settle(p.admitted))
}

// measure is the timed part, with nothing in it but decisions, and says all that the row has.
func (p *repeat) measure(b *testing.B) {
	var commands counter
	if p.subject.redis != nil {
		commands = p.subject.redis.commands
	}
	reportsBefore, commandsBefore := p.subject.reports.read(b), commands.read(b)
	t := p.row.load.time(b, p.row.traffic.hits, p.subject.decide)
	reports := p.subject.reports.read(b) - reportsBefore
	must(b, p.took(t))
	sent := commands.read(b) - commandsBefore

	if p.subject.reports != nil {
		b.ReportMetric(float64(reports)/b.Elapsed().Seconds(), "reports/s")
	}
	if commands != nil {
		b.ReportMetric(1000*float64(sent)/float64(b.N), "redis-cmds/1000hits")
	}
	if p.row.load.every > 0 {
		b.ReportMetric(0, "ns/op") // it would be the pace; 0 keeps it out of the results
	}
	b.ReportMetric(p.latency.p50, "p50-ns")
	b.ReportMetric(p.latency.p99, "p99-ns")
	b.ReportMetric(p.latency.clock, "clock-ns")
	b.ReportMetric(float64(t.admitted)/float64(t.hits), "allowed/op")
}

// A counter says how often something has happened. There may be none, which stays at 0.
type counter func() (int64, error)

func (c counter) read(t testing.TB) int64 {
	if c == nil {
		return 0
	}
	n, err := c()
	must(t, err)
	return n
}

// end lets the subject go, so that its memory is free for the next one. There may be none.
func (p *repeat) end() (err error) {
	if p == nil {
		return nil
	}
	if p.subject.close != nil {
		err = p.subject.close(p.admitted)
	}
	p.subject = nil
	for range 2 { // the first one may only find what has a finalizer
		runtime.GC()
	}
	return err
}
