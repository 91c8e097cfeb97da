package envoyquota

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	quotapb "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"

	"github.com/offpath-io/offpath/pkg/check"
)

const simStart = int64(1_800_000_000_000_000_000)

// sim is a number of Envoys in front of one daemon, in virtual time.
type sim struct {
	rule    string
	envoys  int
	daemons int // 0 is 1; each Envoy talks to one of them, and they all see one count
	refills bool
	length  time.Duration
	// load is how many requests per second an Envoy gets, as a multiple of the limit.
	load func(envoy int, at time.Duration) float64
}

// delay is each message's, and settled is when measuring begins.
const delay, settled = 2 * time.Millisecond, 20 * time.Second

// simResult is what the exact count of all admitted requests says: by how much of the limit it was exceeded at worst, what part of all requests
// was turned away although it fitted by more than max(1, 2 %) of the limit, and how much was admitted of what an exact limiter would have.
type simResult struct {
	worst, falseDenials, throughput float64
}

func (r simResult) String() string {
	return fmt.Sprintf("%+.1f %%, %.1f %%, %.1f %%", 100*r.worst, 100*r.falseDenials, 100*r.throughput)
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
	now := simStart
	checker := newCheckerAt(tb, "rules: [{name: r, key: [user], limit: "+s.rule+"}]", &now)
	rule := checker.Rules().Rules()[0]
	desks := make([]*desk, max(s.daemons, 1))
	for i := range desks {
		desks[i] = newDesk(fleetOf{checker, len(desks)}, Options{}.withDefaults())
	}
	deskOf := func(envoy int) *desk { return desks[envoy%len(desks)] }
	random := rand.New(rand.NewPCG(1, 2))
	id := &quotapb.BucketId{Bucket: map[string]string{"user": "kristie"}}
	var due []simMessage
	later := func(now int64, do func(now int64)) { due = append(due, simMessage{now + int64(delay), do}) }
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
		now = simStart + int64(at)
		for len(due) > 0 && due[0].at <= now {
			do := due[0].do
			due = due[1:]
			do(now)
		}
		for i, e := range envoys {
			rate := s.load(i, at) * float64(rule.Limit) / rule.Window.Length.Seconds() * step.Seconds()
			for range poisson(random, rate) {
				measured := at >= settled
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
				if passes {
					admitted.add(now, 1)
				}
				switch {
				case measured && passes:
					sum++
				case measured && fits:
					result.falseDenials++
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
		if at < settled {
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

// TestSimulatedEnvoys measures both errors once shares have settled, and holds docs/adapters.md to
// them.
func TestSimulatedEnvoys(t *testing.T) {
	for refills, after := range map[bool]string{false: "one second of ten.", true: "Envoys before 1.33"} {
		header, rows := table(t, after)
		if len(rows) != len(loads) || !refills && len(header) != 1+len(lengths) {
			t.Errorf("%d rows and %d columns", len(rows), len(header))
		}
		for _, row := range rows {
			for i, cell := range row[1:] {
				rule, _, _ := strings.Cut(header[1+i], ":")
				if testing.Short() && rule != "600/minute" {
					continue
				}
				s := sim{rule: rule, envoys: 4, length: lengths[rule], load: loads[row[0]], refills: refills}
				what := fmt.Sprintf("%s, %s, refills %v", rule, row[0], refills)
				s.run(t).hold(t, what, cell)
				if s.refills = true; !refills && !strings.HasSuffix(rule, "/second") && !testing.Short() {
					s.run(t).hold(t, what+", and before 1.33", cell)
				}
			}
		}
	}
}

// Two daemons know of each other only by what is counted. The bounds are at most 1.5 times the
// worst of five seeds, or half a per cent: how far the limit is exceeded, how much less is admitted
// than an exact limiter would, and how many requests are turned away although they fit.
func TestSimulatedDaemons(t *testing.T) {
	slow := hopping(1.5, 4, time.Minute)
	for _, c := range []struct {
		rule, name             string
		load                   func(int, time.Duration) float64
		over, lacking, denials float64
	}{
		{"1000/second", "even, 5", loads["even, 5"], 4, 1, 1},
		{"1000/second", "skewed, 0.7", loads["skewed, 0.7"], 1, 1, 1},
		{"1000/second", "skewed, 5", loads["skewed, 5"], 12, 1, 32},
		{"1000/second", "hopping every 60 s, 1.5", slow, 3, 17, 49},
		{"600/minute", "even, 5", loads["even, 5"], 12, 1, 1},
		{"600/minute", "skewed, 0.7", loads["skewed, 0.7"], 1, 1, 1},
		{"600/minute", "skewed, 5", loads["skewed, 5"], 13, 1, 2},
		{"600/minute", "hopping every 60 s, 1.5", slow, 5, 1, 29},
	} {
		if testing.Short() && c.rule != "600/minute" {
			continue // some 100 times as many requests
		}
		r := sim{rule: c.rule, envoys: 4, daemons: 2, length: 3 * time.Minute, load: c.load}.run(t)
		if 100*r.worst > c.over || 100*(1-r.throughput) > c.lacking || 100*r.falseDenials > c.denials {
			t.Errorf("%s, %s: %v; want at most %v %% over, %v %% lacking, %v %% denied that fit",
				c.rule, c.name, r, c.over, c.lacking, c.denials)
		}
	}
}
