package envoyquota

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	quotapb "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"

	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/rules"
)

const simStart = int64(1_800_000_000_000_000_000)

// sim is a number of Envoys in front of one daemon, in virtual time.
type sim struct {
	rule    string
	envoys  int
	daemons int // 0 is 1; each Envoy talks to one of them, and they all see one count
	refills bool
	length  time.Duration
	delay   time.Duration // of each message
	// load is how many requests per second an Envoy gets, as a multiple of the limit.
	load func(envoy int, at time.Duration) float64
	// from is when measuring begins.
	from time.Duration
}

// simResult is what the exact count of all admitted requests says: by how much of the limit it was exceeded at worst, what part of all requests
// was turned away although it fitted by more than max(1, 2 %) of the limit, and how much was admitted of what an exact limiter would have.
type simResult struct {
	worst, falseDenials, throughput float64
}

func (r simResult) String() string {
	return fmt.Sprintf("%+.1f %% | %.1f %% | %.1f %%", 100*r.worst, 100*r.falseDenials, 100*r.throughput)
}

// fleetOf is one of so many checkers of a fleet that knows of every hit at once.
type fleetOf struct {
	*check.Checker
	checkers int
}

func (f fleetOf) Stats() check.Stats { return check.Stats{Checkers: f.checkers} }

type simMessage struct {
	at int64
	do func(now int64)
}

func (s sim) run(tb testing.TB) (result simResult) {
	set, err := rules.Parse([]byte("rules: [{name: r, key: [user], limit: " + s.rule + "}]"))
	if err != nil {
		tb.Fatal(err)
	}
	checker, err := check.New(check.Options{Rules: set})
	if err != nil {
		tb.Fatal(err)
	}
	rule := set.Rules()[0]
	desks := make([]*desk, max(s.daemons, 1))
	for i := range desks {
		desks[i] = newDesk(fleetOf{checker, len(desks)}, Options{}.withDefaults())
	}
	deskOf := func(envoy int) *desk { return desks[envoy%len(desks)] }
	random := rand.New(rand.NewPCG(1, 2))
	id := &quotapb.BucketId{Bucket: map[string]string{"user": "kristie"}}
	var due []simMessage
	later := func(now int64, do func(now int64)) { due = append(due, simMessage{now + int64(s.delay), do}) }
	envoys, clients := make([]*simEnvoy, s.envoys), make([]*client, s.envoys)
	for i := range envoys {
		envoys[i] = newSimEnvoy(s.refills)
		clients[i], _ = deskOf(i).join("")
	}
	reach := func(now int64, i int) {
		if list := deskOf(i).actions(now, clients[i], 1000); len(list) > 0 {
			later(now, func(now int64) { envoys[i].obey(now, list) })
		}
	}
	report := func(now int64, i int, only *quotapb.BucketId) {
		m := envoys[i].report(now, only)
		later(now, func(now int64) {
			if err := deskOf(i).report(now, clients[i], bytesOf(tb, m)); err != nil {
				tb.Fatal(err)
			}
			for j := range clients {
				reach(now, j)
			}
		})
	}
	admitted, exact := tally{shape: rule.Window}, tally{shape: rule.Window}
	sum, exactly, asked := 0, 0, 0
	const step = time.Millisecond
	for at := time.Duration(0); at < s.length; at += step {
		now := simStart + int64(at)
		for len(due) > 0 && due[0].at <= now {
			do := due[0].do
			due = due[1:]
			do(now)
		}
		for i, e := range envoys {
			rate := s.load(i, at) * float64(rule.Limit) / rule.Window.Length.Seconds() * step.Seconds()
			for range poisson(random, rate) {
				measured := at >= s.from
				if measured {
					asked++
				}
				exact.turn(now)
				if exact.shape.Remaining(exact.counts, rule.Limit, now) >= 1 {
					exact.add(now, 1)
					if measured {
						exactly++
					}
				}
				admitted.turn(now)
				fits := admitted.shape.Count(admitted.counts, now)+1 <= float64(rule.Limit)-max(1, 0.02*float64(rule.Limit))
				passes, first := e.request(now, id)
				switch {
				case passes:
					admitted.add(now, 1)
					if measured {
						sum++
					}
				default:
					if fits && measured {
						result.falseDenials++
					}
				}
				if first {
					report(now, i, id)
				}
			}
			if (at+time.Duration(i)*1234*time.Millisecond)%(5*time.Second) == 0 && len(e.buckets) > 0 {
				report(now, i, nil)
			}
		}
		if at%tick == 0 {
			for i, c := range clients {
				deskOf(i).look(now, c)
				reach(now, i)
			}
		}
		admitted.turn(now)
		if at < s.from {
			continue
		}
		result.worst = max(result.worst, admitted.shape.Count(admitted.counts, now)/float64(rule.Limit)-1)
	}
	result.falseDenials /= float64(max(asked, 1))
	result.throughput = float64(sum) / float64(max(exactly, 1))
	return result
}

// poisson is a number with this small mean.
func poisson(r *rand.Rand, mean float64) (n int) {
	limit, product := math.Exp(-mean), r.Float64()
	for n = 0; product > limit; n++ {
		product *= r.Float64()
	}
	return n
}

// TestSimulatedEnvoys measures both errors once shares have settled. With -v it prints the table of docs/doors.md.
func TestSimulatedEnvoys(t *testing.T) {
	for _, c := range []struct {
		rule   string
		length time.Duration
		rows   []simRow
	}{
		{
			"100/second", time.Minute,
			simRows([8]float64{0.5, 10.5, 5.5, 0.5, 10.5, 10.5, 20.5, 0.5}, [8]float64{1.5, 0.5, 0.5, 2, 12, 7, 30, 30}, [8]float64{1.5, 5.5, 0.5, 2, 51, 69, 63, 95}),
		},
		{
			"1000/second", time.Minute,
			simRows([8]float64{0.5, 2.5, 1, 0.5, 20.5, 8.5, 25.5, 0.5}, [8]float64{0.5, 0.5, 0.5, 0.5, 5, 1.5, 25, 27}, [8]float64{0.5, 0.5, 0.5, 0.5, 39, 30, 52, 95}),
		},
		{
			"300/10s", 2 * time.Minute,
			simRows([8]float64{0.5, 12.5, 16.5, 0.5, 0.5, 12.5, 10.5, 0.5}, [8]float64{0.5, 0.5, 0.5, 4, 18, 3.5, 20, 26}, [8]float64{0.5, 2, 0.5, 4, 55, 15, 52, 51}),
		},
		{
			"600/minute", 4 * time.Minute,
			simRows([8]float64{0.5, 8.5, 8.5, 0.5, 5.5, 7.5, 5.5, 0.5}, [8]float64{0.5, 0.5, 0.5, 0.5, 3, 0.5, 0.5, 2}, [8]float64{0.5, 2, 0.5, 0.5, 27, 7.5, 29, 3}),
		},
		{
			"5000/10m", 15 * time.Minute,
			simRows([8]float64{0.5, 1, 1.5, 0.5, 1, 1, 1, 0.5}, [8]float64{0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5}, [8]float64{0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 2, 0.5}),
		},
	} {
		if testing.Short() && c.rule != "600/minute" {
			continue
		}
		for _, row := range c.rows {
			s := sim{rule: c.rule, envoys: 4, length: c.length, delay: 2 * time.Millisecond, load: row.load, from: 20 * time.Second}
			r := s.run(t)
			old := r
			if s.refills = true; !testing.Short() {
				old = s.run(t)
			}
			t.Logf("| %s | %s | %v | %v |", c.rule, row.name, r, old)
			for _, r := range []simResult{r, old} {
				row.hold(t, c.rule, r)
			}
		}
	}
}

// Two daemons know of each other only by what is counted.
func TestSimulatedDaemons(t *testing.T) {
	loads := map[string]func(int, time.Duration) float64{
		"even, 5x": even(5, 4), "skewed, 0.7x": skewed(0.7, 0.85, 0.05, 0.05, 0.05),
		"skewed, 5x": skewed(5, 0.85, 0.05, 0.05, 0.05), "hopping every 60 s, 1.5x": hopping(1.5, 4, time.Minute),
	}
	for _, c := range []struct {
		rule, load             string
		over, lacking, denials float64
	}{
		{"1000/second", "even, 5x", 4, 1, 1},
		{"1000/second", "skewed, 0.7x", 1, 1, 1},
		{"1000/second", "skewed, 5x", 12, 1, 32},
		{"1000/second", "hopping every 60 s, 1.5x", 3, 17, 49},
		{"600/minute", "even, 5x", 12, 1, 1},
		{"600/minute", "skewed, 0.7x", 1, 1, 1},
		{"600/minute", "skewed, 5x", 13, 1, 2},
		{"600/minute", "hopping every 60 s, 1.5x", 5, 1, 29},
	} {
		if testing.Short() && c.rule != "600/minute" {
			continue // some 100 times as many requests
		}
		s := sim{rule: c.rule, envoys: 4, daemons: 2, length: 3 * time.Minute, delay: 2 * time.Millisecond, load: loads[c.load], from: 20 * time.Second}
		r := s.run(t)
		t.Logf("| %s | %s | %v |", c.rule, c.load, r)
		simRow{c.load, nil, c.over, c.lacking, c.denials}.hold(t, c.rule, r)
	}
}
