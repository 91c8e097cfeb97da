package peers

import (
	"runtime/debug"
	"slices"
	"testing"
	"time"

	"github.com/offpath-io/offpath/loadtest/httpload"
)

const (
	// inFlight is how many requests are under way at once.
	inFlight = 64
	// burst is how many requests each throughput is taken from.
	burst = 10_000
	// halfFor is how long half of that load lasts, after warming for a while. It is short, and
	// there are several in a round, so that what else the machine does spoils few of them.
	halfFor, warming, halves = 250 * time.Millisecond, 100 * time.Millisecond, 4
)

// APIs are asked by the load that each understands.
var apis = []struct {
	name string
	load func(address string) httpload.Options
}{
	{"http", func(address string) httpload.Options {
		return httpload.Options{URL: "http://" + address + "/v1/check", Attributes: map[string]string{"user": "user-{key}", "api": "createURL"}}
	}},
	{"rls", func(address string) httpload.Options {
		return httpload.Options{GRPC: address, Domain: "shop", Descriptor: []httpload.Entry{{Key: "user", Value: "user-{key}"}, {Key: "api", Value: "createURL"}}}
	}},
}

// BenchmarkAPIs measures an API, with a checker and its reporter behind it, beside a bare server
// that decodes the same message and answers a constant. Both are processes of their own, asked by
// the same client over a real socket, in turn: as many rounds as -benchtime says, 5x for medians of
// 5 (of the p99 four are taken in each round).
//
//	offpath-req/s, bare-req/s   with 64 requests under way, as fast as answers come
//	req/s-ratio                 offpath's to the bare server's
//	offpath-p99-µs, bare-p99-µs of a request since it was due, at half of the bare server's req/s
//	p99-ratio                   offpath's to the bare server's
//	cpu-ratio                   of the processor time that each server took for all of this
func BenchmarkAPIs(b *testing.B) {
	for _, d := range apis {
		b.Run("api="+d.name, func(b *testing.B) {
			bare, ours := newSide(b, d.name+"/bare", d.load), newSide(b, d.name+"/offpath", d.load)
			defer debug.SetGCPercent(debug.SetGCPercent(1000)) // the client's collections are in neither's time
			for range b.N {
				round(b, bare, ours)
			}
			bareTook, oursTook := bare.child.stop(b), ours.child.stop(b)
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(median(bare.rates), "bare-req/s")
			b.ReportMetric(median(ours.rates), "offpath-req/s")
			b.ReportMetric(median(ours.rates)/median(bare.rates), "req/s-ratio")
			b.ReportMetric(median(bare.p99s), "bare-p99-µs")
			b.ReportMetric(median(ours.p99s), "offpath-p99-µs")
			b.ReportMetric(median(ours.p99s)/median(bare.p99s), "p99-ratio")
			b.ReportMetric(float64(oursTook)/float64(bareTook), "cpu-ratio")
		})
	}
}

// round measures each side in turn.
func round(b *testing.B, bare, ours *side) {
	bare.full(b)
	ours.full(b)
	rate := median(bare.rates) / 2
	for range halves {
		bare.half(b, rate)
		ours.half(b, rate)
	}
}

// A side is one of the two servers, and what was measured of it.
type side struct {
	child *child
	load  httpload.Options
	rates []float64 // per second
	p99s  []float64 // in µs
}

// newSide starts a server and warms it up.
func newSide(b *testing.B, server string, load func(address string) httpload.Options) *side {
	b.Helper()
	c := start(b, server)
	s := &side{child: c, load: load(c.address)}
	s.load.Connections, s.load.Keys, s.load.Seed = inFlight, 1000, 1
	return s
}

// full asks as fast as answers come: all requests are due at once.
func (s *side) full(b *testing.B) {
	const rate = 1e9
	s.rates = append(s.rates, s.ask(b, rate, 0, burst*time.Second/rate).Achieved)
}

// half asks at a rate.
func (s *side) half(b *testing.B, rate float64) {
	p99 := s.ask(b, rate, warming, halfFor).Latency.P99
	s.p99s = append(s.p99s, float64(p99)/float64(time.Microsecond))
}

func (s *side) ask(b *testing.B, rate float64, warming, length time.Duration) httpload.Result {
	b.Helper()
	o := s.load
	o.Rate, o.Warmup, o.Duration, o.Timeout = rate, unlessOnce(warming), unlessOnce(length), patience
	r, err := httpload.Run(b.Context(), o, nil)
	must(b, err)
	if r.OK200 != r.Sent {
		b.Fatalf("not every request was allowed: %s %+v", r.FirstError, r)
	}
	return r
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// The bare servers answer what the APIs do, and as much.
func TestBareServersAnswerAlike(t *testing.T) {
	for _, d := range apis {
		for _, kind := range []string{"/bare", "/offpath"} {
			c := start(t, d.name+kind)
			o := d.load(c.address)
			o.Rate, o.Duration, o.Keys, o.Timeout = 1000, 100*time.Millisecond, 10, patience
			r, err := httpload.Run(t.Context(), o, nil)
			if err != nil || r.OK200 != 100 {
				t.Errorf("%s%s: %+v, %v", d.name, kind, r, err)
			}
			c.stop(t)
		}
	}
}
