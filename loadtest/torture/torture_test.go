package torture

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/offpath-io/offpath/loadtest/torture/found"
	"github.com/offpath-io/offpath/loadtest/torture/link"
)

// The seed decides the faults; each kind comes, several last at the same time, and none is longer
// than its round.
func TestDraw(t *testing.T) {
	drawn := func(seed uint64) []fault { return draw(rand.New(rand.NewPCG(seed, 1)), Kinds(), 20*time.Minute) }
	all := drawn(7)
	if !slices.Equal(all, drawn(7)) || slices.Equal(all, drawn(8)) {
		t.Error("the seed does not decide")
	}
	if n := len(all); n < 1000 || n > 1400 {
		t.Errorf("%d faults in 20 min, want about one a second", n)
	}
	kinds, overlaps := map[Kind]int{}, 0
	for i, f := range all {
		kinds[f.kind]++
		if f.length > longest || f.at+f.length > 20*time.Minute {
			t.Errorf("%+v: too long", f)
		}
		if i > 0 && all[i-1].at+all[i-1].length > f.at {
			overlaps++
		}
	}
	if len(kinds) != len(Kinds()) || overlaps < 100 {
		t.Errorf("%v, %d overlap", kinds, overlaps)
	}
	only := draw(rand.New(rand.NewPCG(7, 1)), []Kind{Cut}, time.Minute)
	if slices.ContainsFunc(only, func(f fault) bool { return f.kind != Cut }) {
		t.Errorf("%+v", only)
	}
}

// A mode plays only what it can, and the command that repeats it says which it was.
func TestModes(t *testing.T) {
	for _, m := range Modes {
		o := Options{Mode: m, Seed: 3, Duration: time.Minute, Race: m != Single}
		o.Faults = o.kinds()
		kinds := o.Faults
		if slices.Contains(kinds, Version) {
			t.Errorf("%s: there is no other version", m)
		}
		if slices.Contains(kinds, Failover) == (m == Single) || slices.Contains(kinds, Rollback) != (m == Single) {
			t.Errorf("%s: %v", m, kinds)
		}
		command := o.command()
		if strings.Contains(command, "--race=false") == o.Race {
			t.Errorf("%s: how it is built: %q", m, command)
		}
		if strings.Contains(command, "--faults") || strings.Contains(command, "--mode "+string(m)) == (m == Single) {
			t.Errorf("%s: %s", m, command)
		}
	}
	if _, err := Run(t.Context(), Options{Mode: Sentinel, Faults: []Kind{Rollback}}); err == nil {
		t.Error("a replica goes back to a snapshot")
	}
}

// Several faults work on a link together: the worst of each sort.
func TestFaultsAddUp(t *testing.T) {
	l, err := link.Listen("127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	one := &wire{l, "checker-0", "nats-1"}
	s := &storm{fleet: &fleet{links: []*wire{one}}, active: map[int]func(*wire) link.Faults{}}
	slow := s.put(func(*wire) link.Faults { return link.Faults{Delay: time.Second, Rate: 9} })
	hold := s.put(func(w *wire) link.Faults { return link.Faults{Delay: time.Minute, Rate: 5, HoldTo: w.to == "nats-1"} })
	for _, want := range []link.Faults{{Delay: time.Minute, Rate: 5, HoldTo: true}, {Delay: time.Second, Rate: 9}, {}} {
		if got := l.Faults(); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
		hold()
		hold, slow = slow, func() {}
	}
}

// Times in which the machine stood still count once, however often they are noticed.
func TestStandstill(t *testing.T) {
	begun, s := time.Now(), new(standstill)
	at := func(ms int) time.Time { return begun.Add(time.Duration(ms) * time.Millisecond) }
	for _, gap := range [][2]int{{100, 200}, {150, 250}, {140, 250}, {300, 400}} {
		s.add(at(gap[0]), at(gap[1]))
	}
	for _, test := range []struct{ from, until, want int }{
		{0, 1000, 250}, {120, 220, 100}, {250, 300, 0}, {350, 1000, 50},
	} {
		if got := s.within(at(test.from), at(test.until)); got != time.Duration(test.want)*time.Millisecond {
			t.Errorf("from %d to %d ms: %v, want %d ms", test.from, test.until, got, test.want)
		}
	}
	if n := len(cores()); n != runtime.NumCPU() && runtime.GOOS == "linux" || n == 0 {
		t.Errorf("%d of %d cores are watched", n, runtime.NumCPU())
	}
}

// recorded is a campaign that went well: 100 s, a round of faults until 30 s, and then rest.
func recorded() *campaign {
	c := &campaign{start: time.Now().Add(-100 * time.Second).Truncate(time.Second), clock: new(standstill)}
	c.fleet = &fleet{}
	for i := range checkers {
		p := &part{name: fmt.Sprint("checker-", i), log: new(logbook)}
		p.lives = []life{{span: span{from: c.start.Add(-time.Second)}}}
		c.fleet.checkers = append(c.fleet.checkers, p)
	}
	c.traffic, c.storm = &traffic{}, &storm{}
	c.rests = []span{{c.at(35), c.at(99)}}
	c.samples = &samples{list: map[*part][]sample{}}
	for at := 0.0; at < 100; at += 0.5 {
		for _, p := range c.fleet.checkers {
			c.samples.list[p] = append(c.samples.list[p], sample{at: c.at(at), until: c.at(at), values: map[string]float64{}, reports: []answered{
				{4 * time.Millisecond, 100 * at}, {64 * time.Millisecond, 100 * at}, {time.Minute, 100 * at},
			}})
		}
	}
	return c
}

// reportsTake has a report of a checker take long, at a time.
func (c *campaign) reportsTake(second float64, took time.Duration) {
	for _, one := range c.samples.list[c.fleet.checkers[1]] {
		for i := range one.reports {
			if r := &one.reports[i]; one.at.After(c.at(second)) && r.within >= took {
				r.n++
			}
		}
	}
}

func (c *campaign) at(s float64) time.Time {
	return c.start.Add(time.Duration(s * float64(time.Second)))
}

// asks adds n requests by a rule, evenly within a second, of which the first ones pass.
func (c *campaign) asks(rule, user string, second float64, n, allowed int) {
	for i := range n {
		c.traffic.done = append(c.traffic.done, request{
			sent: c.at(second + float64(i)/float64(n)), took: time.Millisecond, checker: i % checkers,
			stream: &stream{rule: rule}, user: user, answered: true, allowed: i < allowed,
		})
	}
	c.result.Counts.Ledger += int64(allowed)
}

// asksAtOnce adds n requests by the rule fast that pass in 10 ms, as many at each checker.
func (c *campaign) asksAtOnce(second float64, n int) {
	before := len(c.traffic.done)
	c.asks("fast", "hot", second, n, n)
	for i, r := range c.traffic.done[before:] {
		r.sent, r.took = c.at(second).Add(time.Duration(i)*10*time.Millisecond/time.Duration(n)), time.Microsecond
		c.traffic.done[before+i] = r
	}
}

// asksTwice has 150 requests by the rule fast pass at once, and then 60 at each checker.
func (c *campaign) asksTwice(first, second float64) {
	c.asksAtOnce(first, 150)
	c.asksAtOnce(second, 4*60)
}

// clockIs sets how far a checker has the fleet's time ahead of the machine's for a while.
func (c *campaign) clockIs(checker int, from, until float64, ahead time.Duration) {
	list := c.samples.list[c.fleet.checkers[checker]]
	for i := range list {
		if !list[i].at.Before(c.at(from)) && list[i].at.Before(c.at(until)) {
			list[i].ahead = ahead
		}
	}
}

// startsWith sets a checker's clock, and begins another life of it.
func (c *campaign) startsWith(checker int, clockSet, start float64) {
	p := c.fleet.checkers[checker]
	p.clockSet, p.lives[0].until = c.at(clockSet), c.at(start)
	p.lives = append(p.lives, life{span: span{from: c.at(start)}})
}

// clocksAre sets how far checkers have the fleet's time ahead of the machine's.
func (c *campaign) clocksAre(ahead time.Duration) {
	for _, list := range c.samples.list {
		for i := range list {
			list[i].ahead = ahead
		}
	}
}

// Each promise that is broken is found, and nothing else is.
func TestJudge(t *testing.T) {
	for _, tt := range []struct {
		what  string
		spoil func(*campaign)
		want  string // what the violations say; "": none
	}{
		{"all went well", func(c *campaign) {}, ""},
		{"late", func(c *campaign) { c.traffic.done[5].took = time.Second }, "checker-1 took 1s for fast"},
		{"late, as the machine stood still", func(c *campaign) {
			r := &c.traffic.done[5]
			r.took = time.Second
			c.clock.gaps = []span{{r.sent, r.sent.Add(950 * time.Millisecond)}}
		}, ""},
		{"late, as it was frozen", func(c *campaign) {
			r := &c.traffic.done[5]
			r.took = time.Second
			c.fleet.checkers[1].gaps = []span{{r.sent.Add(-time.Second), r.sent.Add(time.Second / 2)}}
		}, ""},
		{"late, but nobody times it", func(c *campaign) {
			c.o.Untimed = true
			c.traffic.done[5].took = time.Second
		}, ""},
		{"no answer", func(c *campaign) {
			c.traffic.done[199].answered, c.traffic.done[199].trouble = false, "EOF"
		}, "EOF"},
		{"no answer of one that was killed", func(c *campaign) {
			r := &c.traffic.done[0]
			r.answered, r.allowed = false, false // it was charged all the same
			c.fleet.checkers[0].lives[0].until = r.sent
		}, ""},
		{"a hit is gone", func(c *campaign) { c.result.Counts.Ledger-- }, "1 hits are gone"},
		{"a killed checker held it", func(c *campaign) {
			c.result.Counts.Ledger--
			c.fleet.checkers[0].lives[0].held = 1
		}, ""},
		{"Redis lost it", func(c *campaign) {
			c.result.Counts.Ledger--
			c.result.Counts.StoreLost = 1
		}, ""},
		{"Redis may have lost it", func(c *campaign) {
			c.result.Counts.Ledger -= 5
			c.result.Counts.AddFailovers(3, 2)
		}, ""},
		{"… but not that much", func(c *campaign) {
			c.result.Counts.Ledger -= 6
			c.result.Counts.AddFailovers(3, 2)
		}, "1 hits are gone"},
		{"Redis lost it, and it was reported again", func(c *campaign) {
			c.result.Counts.StoreLost, c.result.Counts.CountedAgain = 3, 3
		}, ""},
		{"… but nobody held that much", func(c *campaign) {
			c.result.Counts.StoreLost, c.result.Counts.CountedAgain = 3, 2
		}, "1 hits too many"},
		{"a master died before its replica had it, and it was reported again", func(c *campaign) {
			c.result.Counts.AddFailovers(3, 0)
		}, ""},
		{"a hit is counted twice", func(c *campaign) {
			c.result.Counts.Ledger++
			c.fleet.checkers[0].lives[0].held = 5
		}, "1 hits too many"},
		{"a strict limit is exceeded", func(c *campaign) { c.asks("exact", "period-9", 90, 60, 51) },
			"51 of 50 for period-9"},
		{"… after Redis lost its data", func(c *campaign) {
			c.asks("exact", "period-9", 90, 60, 51)
			c.storm.losses = []time.Time{c.at(95)}
		}, ""},
		{"exceeded at rest", func(c *campaign) { c.asks("fast", "hot", 50, 300, 220) },
			"fast of hot: 206.0 of 200, at most 205.0 known at rest"},
		{"… as reports took long", func(c *campaign) {
			c.asks("fast", "hot", 50, 300, 220)
			c.reportsTake(50.7, 60*time.Millisecond)
		}, ""},
		{"… but not for so long", func(c *campaign) {
			c.asks("fast", "hot", 50, 300, 240)
			c.reportsTake(50.7, 60*time.Millisecond)
		}, "fast of hot: 206.0 of 200"},
		{"… but not then", func(c *campaign) {
			c.asks("fast", "hot", 50, 300, 220)
			c.reportsTake(49.9, 60*time.Millisecond)
		}, "fast of hot: 206.0 of 200"},
		{"nobody knows of anything for long", func(c *campaign) {
			for at := 35.0; at < 99; at += 0.5 {
				c.reportsTake(at, 60*time.Millisecond)
			}
		}, "hits are unknown to others for 134 ms at rest, more than 50 ms: the run does not count"},
		{"… by what nobody can know", func(c *campaign) { c.asksAtOnce(50, 4*200) }, ""},
		{"… by what one knows", func(c *campaign) { c.asksAtOnce(50, 4*206) }, "fast of hot: 206.0 of 200"},
		{"… by two bursts", func(c *campaign) { c.asksTwice(50, 50.9) }, "fast of hot: 206.0 of 200"},
		{"… of which one is of the second before, as checkers have it", func(c *campaign) {
			c.asksTwice(50, 50.9)
			c.clocksAre(-30 * time.Millisecond)
		}, ""},
		{"… of two seconds", func(c *campaign) { c.asksTwice(49.98, 50.9) }, ""},
		{"… which are one, as checkers have it", func(c *campaign) {
			c.asksTwice(49.98, 50.9)
			c.clocksAre(30 * time.Millisecond)
		}, "fast of hot: 206.0 of 200"},
		{"… with others' limits", func(c *campaign) { c.asks("fast", "hot", 50, 300, 205) }, ""},
		{"exceeded before the fleet was at rest", func(c *campaign) { c.asks("fast", "hot", 34, 300, 250) }, ""},
		{"exceeded in a storm", func(c *campaign) { c.asks("fast", "hot", 10, 900, 790) }, ""},
		{"… by more than all checkers", func(c *campaign) { c.asks("fast", "hot", 10, 900, 808) },
			"fast of hot: 805.0 of 200, at most 804.0 with 4 lives"},
		{"… after Redis lost its data", func(c *campaign) {
			c.asks("fast", "hot", 10, 1100, 1005)
			c.storm.losses = []time.Time{c.at(9)}
		}, ""},
		{"… by more than that", func(c *campaign) {
			c.asks("fast", "hot", 10, 1100, 1006)
			c.storm.losses = []time.Time{c.at(9)}
		}, "fast of hot: 1006.0 of 200, at most 1005.0 with 5 lives"},
		{"… where a checker goes by another clock", func(c *campaign) {
			c.asks("fast", "hot", 10, 1300, 1206)
			c.clockIs(1, 9, 9.5, 415*time.Millisecond)
		}, ""},
		{"… by more than that", func(c *campaign) {
			c.asks("fast", "hot", 10, 1300, 1208)
			c.clockIs(1, 9, 9.5, 415*time.Millisecond)
		}, "fast of hot: 1207.0 of 200, at most 1206.0 with 6 lives"},
		{"… where it did so before", func(c *campaign) {
			c.asks("fast", "hot", 10, 900, 808)
			c.clockIs(1, 0, 7, 415*time.Millisecond)
		}, "fast of hot: 805.0 of 200, at most 804.0 with 4 lives"},
		{"… where it has started with a clock that was set long ago", func(c *campaign) {
			c.asks("fast", "hot", 10, 1500, 1407)
			c.startsWith(1, 1, 9.5)
		}, ""},
		{"… and was set right since", func(c *campaign) {
			c.asks("fast", "hot", 10, 900, 808)
			c.startsWith(1, 1, 6.9)
		}, "fast of hot: 805.0 of 200, at most 804.0 with 4 lives"},
		{"… and its clock is set later", func(c *campaign) {
			c.asks("fast", "hot", 10, 1100, 1008)
			c.startsWith(1, 20, 9)
		}, "with 5 lives"},
		{"… long after Redis lost its data", func(c *campaign) {
			c.asks("fast", "hot", 10, 900, 808)
			c.storm.losses = []time.Time{c.at(8)}
		}, "fast of hot: 805.0 of 200"},
		{"… before Redis lost its data", func(c *campaign) {
			c.asks("fast", "hot", 10, 900, 808)
			c.storm.losses = []time.Time{c.at(12)}
		}, "fast of hot: 805.0 of 200"},
		{"a data race", func(c *campaign) {
			fmt.Fprintln(c.fleet.checkers[2].log, "WARNING: DATA RACE")
		}, "checker-2: WARNING: DATA RACE"},
		{"one fault, told twice", func(c *campaign) {
			c.result.Faults = []found.Fault{{At: 99}}
			for range 3 {
				fmt.Fprintln(c.fleet.checkers[2].log, `level=WARN msg="it hurts" error=EOF`)
			}
		}, `"it hurts", more than 2 times`},
		{"a daemon that was told to end was killed in the end", func(c *campaign) {
			c.storm.unclean = append(c.storm.unclean, uncleanEnd(c.start, c.fleet.checkers[2], -1))
		}, "checker-2 ends with -1"},
		{"one that starts often says each time what it starts with", func(c *campaign) {
			p := c.fleet.checkers[2]
			for range 3 {
				p.starts = append(p.starts, time.Now())
				fmt.Fprintln(p.log, `level=WARN msg="no key" error=EOF`)
			}
		}, ""},
		{"it stood still", func(c *campaign) {
			c.clock.gaps = []span{{c.at(60), c.at(70)}}
		}, "the run does not count"},
	} {
		c := recorded()
		c.asks("fast", "hot", 40, 300, 200)
		c.asks("exact", "period-1", 40, 100, 50)
		for s := 60.0; s < 98; s += 2 {
			c.asks("fast", "hot", s, 300, 200)
		}
		tt.spoil(c)
		c.judge(c.traffic.all())
		var got []string
		for _, v := range c.result.Violations {
			got = append(got, v.Text)
		}
		all := strings.Join(got, "\n")
		if tt.want == "" && all != "" || !strings.Contains(all, tt.want) {
			t.Errorf("%s: got %q, want %q", tt.what, all, tt.want)
		}
	}
}

// A process is known in lives: nobody counts on one that is about to end.
func TestLives(t *testing.T) {
	p := &part{name: "checker-0"}
	if _, _, ok := p.current(); ok {
		t.Error("it lives before its first life")
	}
	before := time.Now()
	p.begin(nil)
	during := time.Now()
	if !p.lived(during, during) || p.lived(before, during) {
		t.Error("its life begins when it serves")
	}
	p.ends(3)
	if _, _, ok := p.current(); ok || p.lived(during, time.Now().Add(time.Second)) {
		t.Error("it outlives its end")
	}
	p.begin(nil)
	if n := p.livesIn(before, time.Now()); n != 2 {
		t.Errorf("%d lives", n)
	}
	if !p.take() || p.take() {
		t.Error("two faults have it")
	}
	p.release()
	if !p.take() {
		t.Error("it was not released")
	}
}

// What a checker has dropped is in two of its metrics, by rule.
func TestDropped(t *testing.T) {
	got := dropped(map[string]float64{
		`offpath_hits_total{outcome="lost",rule="a"}`: 3, `offpath_hits_total{outcome="overflow",rule="a"}`: 4,
		`offpath_hits_total{outcome="overflow",rule="b"}`: 5, `offpath_hits_total{outcome="counted",rule="a"}`: 100,
	})
	if got != 12 {
		t.Errorf("%d dropped, want 12", got)
	}
}

func TestLogbook(t *testing.T) {
	var l logbook
	for _, text := range []string{"one\ntw", "o\n", "\nfour"} {
		fmt.Fprint(&l, text)
	}
	var got []string
	for _, line := range l.all() {
		got = append(got, line.text)
	}
	if want := []string{"one", "two", ""}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// What was printed and answered is kept with its time, for who looks for a cause.
func TestWriteLogs(t *testing.T) {
	c, dir := recorded(), filepath.Join(t.TempDir(), "logs")
	c.asks("fast", "hot", 40, 2, 1)
	c.fleet.checkers[2].log.lines = []logLine{{c.at(41.5), "it hurts"}}
	c.fleet.checkers[2].lives[0].held = 7
	hits := hitsOf(map[string]float64{
		`offpath_hits_total{outcome="charged",rule="a"}`: 5, `offpath_hits_total{outcome="charged",rule="b"}`: 6,
		`offpath_hits_in_flight{rule="b"}`: 2, `offpath_hits_in_flight`: 2,
	})
	c.samples.list[c.fleet.checkers[0]][0].hits = hits
	n, books := &node{name: "redis-4"}, newFailovers()
	c.fleet.store = &cluster{replicated{c.fleet, []*node{n}, books}}
	for range 2 {
		books.takeLocked(n, reading{at: c.at(3), master: true, sum: 8})
	}
	if err := c.writeLogs(dir, c.traffic.all()); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"checker-2.log": "   41.500 it hurts\n", "checker-1.log": "",
		"answers.csv":    "sent,took,rule,user,checker,rls,answered,allowed,freshness,trouble\n40.000000,0.001000,fast,hot,0,",
		"hits.csv":       "asked,took,checker,charged,answered,overflow,lost,cancelled,in_flight,pending,ahead_ms\n0.000000,0.000000,checker-0,11,0,0,0,0,2,0,0\n",
		"lives.csv":      "checker,from,until,held\nchecker-0,-1.000000,",
		"ledgers.csv":    "at,node,master,synced,ledger\n3.000000,redis-4,true,false,8\n",
		"standstill.csv": "from,for\n",
	} {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || want == "" != (len(got) == 0) || !strings.HasPrefix(string(got), want) {
			t.Errorf("%s: %v\n%s", name, err, got)
		}
	}
	if err := c.writeLogs("/dev/null", nil); err == nil {
		t.Error("a file is taken for a directory")
	}
}

// A fault that no metric shows is a violation; what no fault need show is none.
func TestJudgeVisible(t *testing.T) {
	failover := func(hits int64) found.Fault {
		return found.Fault{Kind: "failover", Target: "redis-0", For: 11, Detail: "promoted after 0.2 s: " + hitsLost(hits)}
	}
	cut := found.Fault{Kind: "cut", Target: "checker-1", Detail: "1 connections"}
	rollback := found.Fault{Kind: "rollback", Target: "redis-0", Detail: hitsLost(20)}
	longRollback := rollback
	longRollback.For = 49 // the aggregator ends at 60.5 s
	another := map[string]float64{"process_start_time_seconds": 2}
	anotherWith := func(metric string, n float64) map[string]float64 {
		return map[string]float64{"process_start_time_seconds": 2, metric: n}
	}
	for _, tt := range []struct {
		what  string
		fault found.Fault
		moves map[string]float64 // of checker-1, or an aggregator; nil: it does not answer
		bad   bool
	}{
		{"a restart", found.Fault{Kind: "kill", Target: "checker-1"}, map[string]float64{"process_start_time_seconds": 2}, false},
		{"a restart that nobody sees", found.Fault{Kind: "kill", Target: "checker-1"}, map[string]float64{}, true},
		{"another one's", found.Fault{Kind: "kill", Target: "checker-2"}, map[string]float64{"process_start_time_seconds": 2}, true},
		{"frozen", found.Fault{Kind: "pause", Target: "checker-1", For: 3}, nil, false},
		{"frozen, and it answers", found.Fault{Kind: "pause", Target: "checker-1", For: 3}, map[string]float64{}, true},
		{"frozen for a moment", found.Fault{Kind: "pause", Target: "checker-1", For: 1}, map[string]float64{}, false},
		{"a server of three", found.Fault{Kind: "kill", Target: "nats-1"}, map[string]float64{}, false},
		{"its clock", found.Fault{Kind: "clock", Target: "checker-1"}, map[string]float64{}, true},
		{"frozen, and another one answers", found.Fault{Kind: "pause", Target: "checker-1", For: 3}, another, true},
		{"a cut", cut, map[string]float64{"offpath_nats_reconnects_total": 6}, false},
		{"one that is not shown", cut, map[string]float64{"offpath_nats_reconnects_total": 5}, true},
		{"one that neither the process shows nor the next one", cut, another, true},
		{"rules", found.Fault{Kind: "rules", Target: "rules", For: 2}, map[string]float64{"offpath_rules_loads_total": 1}, false},
		{"rules that only a start loads", found.Fault{Kind: "rules", Target: "rules", For: 2}, anotherWith("offpath_rules_loads_total", 1), true},
		{"secrets that only a start loads", found.Fault{Kind: "secrets", Target: "nats"}, anotherWith("offpath_files_loads_total", 3), true},
		{"those of Redis", found.Fault{Kind: "secrets", Target: "redis"}, map[string]float64{}, true},
		{"the same, while no aggregator was there", found.Fault{Kind: "secrets", Target: "redis", At: 60}, map[string]float64{}, false},
		{"one that has failed over, at a start", failover(20), anotherWith("offpath_apply_seconds", 0), true},
		{"the same, slowly", failover(20), anotherWith("offpath_apply_seconds", 1), false},
		{"a failover", failover(20), map[string]float64{"offpath_apply_seconds": 4}, true},
		{"one that is seen", failover(20), map[string]float64{"offpath_store_losses_total": 1}, false},
		{"a loss that only a checker sees", rollback, map[string]float64{"offpath_store_losses_total": 1}, true},
		{"the same, as the aggregator has stopped", longRollback, map[string]float64{"offpath_store_losses_total": 1}, false},
		{"one that nobody sees", rollback, map[string]float64{}, true},
		{"one that loses nothing", failover(0), map[string]float64{"offpath_apply_seconds": 4}, false},
	} {
		c := recorded()
		c.fleet.aggregators = []*part{{name: "aggregator-0", lives: []life{{span: span{c.at(0), c.at(60.5)}}}}}
		tt.fault.At = max(tt.fault.At, 10)
		c.result.Faults = []found.Fault{tt.fault}
		c.samples = &samples{list: map[*part][]sample{}}
		for i, p := range c.fleet.daemons() {
			after := map[string]float64{"offpath_apply_seconds": 4}
			if i == 0 && tt.fault.Kind == "failover" || p == c.fleet.checkers[1] {
				after = tt.moves
			}
			c.samples.list[p] = []sample{
				{at: c.at(9), until: c.at(9), values: map[string]float64{"offpath_nats_reconnects_total": 5, "offpath_apply_seconds": 4}},
				{at: c.at(11), until: c.at(11), values: after},
				{at: c.at(50), until: c.at(50), values: map[string]float64{}},
			}
		}
		c.judgeVisible()
		if bad := len(c.result.Violations) > 0; bad != tt.bad {
			t.Errorf("%s: %+v", tt.what, c.result.Violations)
		}
	}
}

// A cut need not be shown by a process that was not connected yet, or ended before it could know.
func TestCutsThatNobodyCanShow(t *testing.T) {
	for _, tt := range []struct {
		what    string
		cut     float64
		until   float64 // its end, after which another one starts at 20
		last    float64 // when it was asked last
		silent  bool    // then
		untimed bool
		bad     bool
	}{
		{"it lives on", 10, 15, 15, false, false, true},
		{"it is asked before it ends", 10, 10.2, 10.2, false, false, true},
		{"it is asked, and hangs", 10, 10.2, 10.2, true, false, true},
		{"it ends at once", 10, 10.05, 10.05, false, false, false},
		{"the same, untimed", 10, 10.2, 10.2, false, true, false},
		{"it is not asked any more", 10, 10.2, 9.9, false, false, false},
		{"it is about to end", 10, 9.9, 9.9, false, false, false},
		{"it has just started", 20.2, 10, 10, false, false, false},
		{"it started before", 20.6, 10, 10, false, false, true},
	} {
		c := recorded()
		c.o.Untimed = tt.untimed
		p := c.fleet.checkers[1]
		p.lives = []life{{span: span{c.at(0), c.at(tt.until)}}, {span: span{from: c.at(20)}}}
		c.samples = &samples{list: map[*part][]sample{}}
		for _, at := range []float64{9, tt.last, 21, 22} {
			start := 1.0
			if at > 20 {
				start = 2
			}
			one := sample{at: c.at(at), until: c.at(at)}
			if !tt.silent || at != tt.last {
				one.values = map[string]float64{"process_start_time_seconds": start, "offpath_nats_connected": 1}
			}
			c.samples.keep(p, one)
		}
		c.result.Faults = []found.Fault{{Kind: "cut", Target: p.name, Detail: "1 connections", At: tt.cut}}
		c.judgeVisible()
		if bad := len(c.result.Violations) > 0; bad != tt.bad {
			t.Errorf("%s: %+v", tt.what, c.result.Violations)
		}
	}
}

// A process is asked before it is ended: a checker has to answer, since its counts go with it.
func TestLastWords(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "offpath_hits_pending 3")
	}))
	defer server.Close()
	s := &storm{samples: &samples{list: map[*part][]sample{}, clockAhead: func(string) time.Duration { return 0 }}}
	for _, tt := range []struct {
		name, admin string
		pending     float64
		samples     int
		fails       bool
	}{
		{"checker-0", server.Listener.Addr().String(), 3, 1, false},
		{"checker-1", "127.0.0.1:1", 0, 1, true},
		{"aggregator-0", server.Listener.Addr().String(), 0, 1, false},
		{"aggregator-1", "127.0.0.1:1", 0, 1, false},
		{"nats-0", "", 0, 0, false},
	} {
		p := &part{name: tt.name, admin: tt.admin}
		m, err := s.lastWords(p)
		if m["offpath_hits_pending"] != tt.pending || (err != nil) != tt.fails || len(s.samples.list[p]) != tt.samples {
			t.Errorf("%s: %v, %v, and %d samples", tt.name, m, err, len(s.samples.list[p]))
		}
	}
}

// What has moved is seen by what a part answered before, and later. It counts what it told before it
// fell silent, and not an answer that it was asked for before, and that may tell of both.
func TestMoved(t *testing.T) {
	c, p := recorded(), new(part)
	at := func(from, until, n float64) sample {
		one := sample{at: c.at(from), until: c.at(until)}
		if n > 0 {
			one.values = map[string]float64{started.metric: n, up.metric: 1}
		}
		return one
	}
	s := &samples{list: map[*part][]sample{}}
	for _, one := range []sample{ // two may ask at a time
		at(8, 8, 1), at(9, 9.5, 0), at(12, 12, 2), at(11, 11, 2), at(14.5, 14.6, 3), at(13, 15, 3), at(15.5, 15.5, 3),
	} {
		s.keep(p, one)
	}
	for _, tt := range []struct {
		of          signal
		from, until float64
		moved       bool
	}{
		{started, 10, 12, true}, {started, 11.5, 12.5, false}, {started, 11.5, 13, true},
		{started, 14, 20, true}, {started, 15.2, 20, false},
		{up, 8.5, 10, true}, {up, 9.2, 10, true}, {up, 9.8, 20, false},
	} {
		if s.moved(p, tt.of, c.at(tt.from), c.at(tt.until)) != tt.moved {
			t.Errorf("%s from %g to %g s: moved is not %v", tt.of.metric, tt.from, tt.until, tt.moved)
		}
	}
}

// The table of docs/reliability.md has all kinds, and all metrics in which they are seen.
func TestSightsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/reliability.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, look := range sights {
		for _, kind := range look.kinds {
			rows := regexp.MustCompile(`(?m)^\| (\w+, )*`+string(kind)+`[ ,].*$`).FindAllString(string(text), -1)
			all := strings.Join(rows, "\n")
			if strings.Contains(all, "as for a pause of Redis") {
				for _, of := range onStore {
					all += of.metric
				}
			}
			for _, of := range look.any {
				if !strings.Contains(all, of.metric) {
					t.Errorf("%s: no row has %s", kind, of.metric)
				}
			}
		}
	}
}

// The longest report around a time is of the last bucket that grew, whatever samples are missing.
func TestLongestReport(t *testing.T) {
	c, checker := recorded(), new(part)
	c.samples.list[checker] = []sample{{at: c.at(0)}}
	for i, page := range []string{
		`{"0.004"} 0 {"0.064"} 0 {"+Inf"} 0`, `{"0.004"} 9 {"0.064"} 9 {"+Inf"} 9`, ``,
		`{"0.004"} 20 {"0.064"} 21 {"+Inf"} 21`, `{"0.004"} 30 {"0.064"} 31 {"+Inf"} 31`,
		`{"0.004"} 30 {"0.064"} 31 {"+Inf"} 32`,
	} {
		one := sample{at: c.at(float64(i + 1))}
		if page != "" {
			m := map[string]float64{"offpath_report_seconds_count": 5, "offpath_report_seconds_sum": 5}
			fields := strings.Fields(page)
			for of := range slices.Chunk(fields, 2) {
				n, err := strconv.ParseFloat(of[1], 64)
				if err != nil {
					t.Fatal(err)
				}
				m["offpath_report_seconds_bucket{le="+of[0][1:]] = n
			}
			one.values, one.reports = m, reportsOf(m)
		}
		c.samples.list[checker] = append(c.samples.list[checker], one)
	}
	c.samples.list[checker][4].until = c.at(4.3) // what was answered by then may be in it
	for at, want := range map[float64]time.Duration{
		0.5: 0, 1.5: 4 * time.Millisecond, 1.95: 64 * time.Millisecond, 3: 64 * time.Millisecond,
		4.35: 64 * time.Millisecond, 4.5: 4 * time.Millisecond, 5.5: time.Minute, 9: 0,
	} {
		if got := c.samples.longestReport([]*part{checker}, c.at(at)); got != want {
			t.Errorf("at %v s: %v, want %v", at, got, want)
		}
	}
}

// An aggregator that owns other shards than before needs other goroutines; one that needs more for
// as many shards does not let go of something.
func TestUsage(t *testing.T) {
	before := usageOf(map[string]float64{"go_goroutines": 140, "offpath_owned_shards": 2})
	for _, tt := range []struct {
		goroutines, owned float64
		more              bool
	}{{140, 2, false}, {170, 12, false}, {161, 2, true}, {170, 5, true}} {
		after := usageOf(map[string]float64{"go_goroutines": tt.goroutines, "offpath_owned_shards": tt.owned})
		if before.less(after) != tt.more {
			t.Errorf("%+v: %+v after %+v", tt, after, before)
		}
	}
}
