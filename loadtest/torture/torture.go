// Package torture plays faults on a fleet of real processes, and looks whether offpath keeps what
// it promises: every request is answered, every hit is counted once or its loss is explained,
// limits hold as documented, and all is well again within seconds.
//
// The processes are three nats-servers in a cluster, Redis, aggregators and checkers, all private
// and on loopback, with a [link.Link] between any two of them. Redis is a single one, one with a
// replica and Sentinels, or a Cluster with replicas; whatever a replica did not get to know is
// accounted for. Faults come in rounds: about one a second for a while, several at once, then none
// until the fleet has come to rest.
package torture

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/offpath-io/offpath/loadtest/torture/found"
	"github.com/offpath-io/offpath/loadtest/torture/link"
)

// Options are those of a campaign.
type Options struct {
	// Duration is how long to go on; the last round is played to its end. Default 1 min.
	Duration time.Duration
	// Mode is how Redis runs; default Single.
	Mode Mode
	// Seed draws the faults.
	Seed uint64
	// Faults are the kinds of faults to draw; default all of the mode.
	Faults []Kind
	// Previous is a commit or tag, whose daemons one checker and one aggregator change to, and
	// back; "": none.
	Previous string
	// Drills plays those instead, one after the other: each is a state that something is promised
	// of.
	Drills bool
	// Race builds the daemons with the race detector.
	Race bool
	// Untimed judges neither how long anything takes nor how closely limits hold at rest: for a
	// machine that others use. What is counted is judged all the same.
	Untimed bool
	// Logs is a directory for what the processes print, and for every answer; "": they are not kept.
	Logs string
	// Progress gets a line for each fault and each round; nil: nobody does.
	Progress io.Writer
}

const (
	// stormLasts is how long faults come in a round. Then the fleet has restWithin to recover, and
	// what it admits in restLasts after that is judged as that of a fleet at rest.
	stormLasts = 20 * time.Second
	restWithin = 5 * time.Second
	restLasts  = 6 * time.Second
	// warmUp is from the start of the traffic to the first fault.
	warmUp = 8 * time.Second
)

// campaign is one run.
type campaign struct {
	o       Options
	fleet   *fleet
	traffic *traffic
	storm   *storm
	clock   *standstill
	start   time.Time
	result  found.Result
	rests   []span          // times of rest, in which limits hold closely
	usage   map[*part]usage // at the beginning
	samples *samples
}

// Run runs a campaign. If ctx is done before its end, the result is of what had been until then. An
// error says that the campaign itself failed; what the fleet did wrong is in the result.
func Run(ctx context.Context, o Options) (result found.Result, err error) {
	o.Duration = cmp.Or(o.Duration, time.Minute)
	o.Mode = cmp.Or(o.Mode, Single)
	if len(o.Faults) == 0 {
		o.Faults = o.kinds()
	}
	for _, k := range o.Faults {
		if !slices.Contains(o.kinds(), k) {
			return found.Result{}, fmt.Errorf("torture: no %s in mode %s, or without another version", k, o.Mode)
		}
	}
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	fmt.Fprintln(o.Progress, "building and starting the fleet")
	f, err := startFleet(ctx, o)
	defer func() { err = errors.Join(err, f.end()) }()
	if err != nil {
		return found.Result{}, err
	}
	c := &campaign{o: o, fleet: f, start: time.Now(), samples: &samples{list: map[*part][]sample{}}}
	c.result = found.Result{Mode: string(o.Mode), Seed: o.Seed, Command: o.command()}
	c.traffic = &traffic{checkers: f.checkers, start: c.start}
	c.storm = &storm{
		fleet: f, traffic: c.traffic, samples: c.samples, start: c.start, active: map[int]func(*wire) link.Faults{},
		limits: []newLimit{{c.start, changingLimits[0]}}, settle: settle, ahead: map[string]time.Duration{},
	}
	if o.Untimed {
		c.storm.settle = settleSlowly
	}
	return c.run(ctx)
}

// command repeats a campaign's faults.
func (o Options) command() string {
	s := fmt.Sprintf("go run ./loadtest torture --seed %d --minutes %g", o.Seed, o.Duration.Minutes())
	if o.Drills {
		s = "go run ./loadtest torture --drills"
	}
	if o.Mode != Single {
		s += " --mode " + string(o.Mode)
	}
	if o.Untimed {
		s += " --untimed"
	}
	if !o.Race {
		s += " --race=false"
	}
	if o.Previous != "" {
		s += " --previous " + o.Previous
	}
	if len(o.Faults) < len(o.kinds()) {
		s += " --faults "
		for i, k := range o.Faults {
			if i > 0 {
				s += ","
			}
			s += string(k)
		}
	}
	return s
}

func (c *campaign) run(ctx context.Context) (found.Result, error) {
	driving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	watching, watched := context.WithCancel(context.WithoutCancel(ctx))
	defer watched()
	c.clock = watchClock(watching)
	c.samples.clockAhead = c.storm.clockAhead
	c.samples.watch(watching, c.fleet.daemons())
	books := c.fleet.store.readings()
	books.allowed = c.traffic.allowedBetween
	reading, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end() // not before the last ledger
	books.watch(reading, c.fleet.store.nodes())
	var drivers sync.WaitGroup
	for i, s := range streams {
		drivers.Go(func() { c.traffic.drive(driving, s, c.o.Seed<<8+uint64(i)) })
	}
	lasts(ctx, warmUp)
	c.usage = c.usages()
	random := rand.New(rand.NewPCG(c.o.Seed, 0x746f7274757265))
	if c.o.Drills {
		c.drill(ctx)
	}
	for !c.o.Drills && ctx.Err() == nil && time.Since(c.start) < c.o.Duration {
		c.round(ctx, random)
	}
	c.result.Interrupted = ctx.Err() != nil
	stop()
	drivers.Wait()
	c.traffic.wait.Wait()
	c.settle()
	watched()
	c.end()
	c.result.Seconds = seconds(time.Since(c.start))
	c.result.Faults = c.storm.runs
	all := c.traffic.all()
	c.judge(all)
	if c.o.Logs != "" {
		c.trouble(c.writeLogs(c.o.Logs, all))
	}
	return c.result, errors.Join(c.storm.troubles...)
}

// round plays the faults of one round, and lets the fleet come to rest.
func (c *campaign) round(ctx context.Context, random *rand.Rand) {
	c.result.Rounds++
	c.trouble(c.storm.save(context.WithoutCancel(ctx)))
	begun := time.Now()
	faults := draw(random, c.o.Faults, stormLasts)
	fmt.Fprintf(c.o.Progress, "%6.1f s  round %d: %d faults\n",
		seconds(time.Since(c.start)), c.result.Rounds, len(faults))
	over, cancel := context.WithDeadline(ctx, begun.Add(stormLasts))
	defer cancel()
	var playing sync.WaitGroup
	for _, f := range faults {
		lasts(over, f.at-time.Since(begun))
		if over.Err() != nil {
			break
		}
		playing.Go(func() { c.storm.play(over, f) })
	}
	lasts(over, stormLasts)
	playing.Wait()
	// A failover takes as long as it is set to take: Sentinels wait a second before they miss a
	// master, and ten before they believe that one that is back will not step down by itself. So a
	// fault is over when its node has been replaced, and is in sync again.
	c.trouble(until(context.WithoutCancel(ctx), c.fleet.store.whole))
	ended := time.Now()
	c.rest(ctx, ended)
}

func (c *campaign) trouble(err error) {
	if err != nil {
		c.storm.mu.Lock()
		defer c.storm.mu.Unlock()
		c.storm.troubles = append(c.storm.troubles, err)
	}
}

// rest waits until the fleet is at rest after the end of all faults, and notes when it was.
func (c *campaign) rest(ctx context.Context, ended time.Time) {
	r := found.Rest{At: seconds(ended.Sub(c.start)), After: -1}
	var wrong error
	for {
		if wrong = c.ready(); wrong == nil {
			r.After = seconds(time.Since(ended))
			break
		}
		// What the machine slept through is not the fleet's time.
		if time.Since(ended)-c.clock.within(ended, time.Now()) > c.patience(restWithin) || ctx.Err() != nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if r.After < 0 && ctx.Err() == nil {
		c.violate(time.Now(), fmt.Sprintf("ready and fresh within %v", c.patience(restWithin)), "%v", wrong)
	}
	c.result.Rests = append(c.result.Rests, r)
	fmt.Fprintf(c.o.Progress, "%6.1f s  at rest after %.1f s\n", seconds(time.Since(c.start)), r.After)
	from := later(time.Now(), ended.Add(restWithin/2)) // what it admits soon after is that of a fleet at rest
	lasts(ctx, time.Until(ended.Add(restWithin)))
	lasts(ctx, restLasts)
	c.rests = append(c.rests, span{from, time.Now()})
	if ctx.Err() == nil && !c.o.Untimed {
		c.judgeSize()
		c.judgeRecord()
	}
}

// judgeSize looks whether all know how many checkers there are: a killed one counts for 11 s more.
func (c *campaign) judgeSize() {
	for _, p := range c.fleet.checkers {
		m, err := p.metrics(context.Background())
		c.trouble(err)
		if n := m["offpath_fleet_checkers"]; err == nil && n != checkers {
			c.violate(time.Now(), "all know the size of the fleet after 11 s", "%s says %g", p.name, n)
		}
	}
}

// judgeRecord looks whether Redis has the fleet's time on record, whatever was done to it.
func (c *campaign) judgeRecord() {
	if err := c.storm.onRecord(context.Background()); err != nil {
		c.violate(time.Now(), "the fleet's time is on record after 11 s", "%v", err)
	}
}

// patience is how long to wait for what should take so long at most.
func (c *campaign) patience(d time.Duration) time.Duration {
	if c.o.Untimed {
		return time.Minute
	}
	return d
}

// mostOff is how far a checker's clock may be off at rest.
const mostOff = 50 * time.Millisecond

// ready returns what is not yet as it should be at rest.
func (c *campaign) ready() error {
	ctx := context.Background()
	for _, p := range c.fleet.daemons() {
		if text, err := p.get(ctx, "/readyz"); err != nil {
			return fmt.Errorf("%s: /readyz: %w %s", p.name, err, text)
		}
	}
	for _, p := range c.fleet.checkers {
		m, err := p.metrics(ctx)
		if err != nil {
			return err
		}
		off := m["offpath_clock_offset_seconds"] + c.storm.clockAhead(p.name).Seconds()
		switch {
		case m[`offpath_freshness{state="fresh"}`] != 1:
			return fmt.Errorf("%s is not fresh", p.name)
		case max(off, -off) > mostOff.Seconds():
			return fmt.Errorf("the clock of %s is off by %.3f s", p.name, off)
		case m["offpath_rules_refused"] != 0:
			return fmt.Errorf("%s refuses its rules", p.name)
		}
	}
	return nil
}

// settleWithin is how long hits may be on their way after the last request: keys far below their
// limit wait for a second.
const settleWithin = 5 * time.Second

// closing is how long a server may take to notice that its clients are gone.
const closing = 2 * time.Second

// settle waits until no hit is on its way any more, and takes the last counts.
func (c *campaign) settle() {
	ctx, ended := context.Background(), time.Now()
	for {
		pending, gone := 0.0, c.storm.dropped
		for _, p := range c.fleet.checkers {
			m, err := p.metrics(ctx)
			if err != nil {
				c.trouble(err)
				return
			}
			pending += m["offpath_hits_pending"] + m["offpath_hits_in_flight"]
			gone += dropped(m)
		}
		late := time.Since(ended)-c.clock.within(ended, time.Now()) > c.patience(settleWithin)
		if pending == 0 || late {
			c.result.Counts.Dropped = gone
			if pending > 0 {
				c.violate(time.Now(), "no hit is on its way 5 s after the last request", "%g are", pending)
			}
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	var err error
	c.trouble(until(ctx, c.fleet.store.whole)) // each group has one master, whose ledger it is
	c.result.Counts.Ledger, err = c.fleet.store.ledger(ctx)
	c.trouble(err)
	c.result.Counts.StoreLost, c.result.Counts.CountedAgain = c.storm.storeLost, c.storm.again
	if books := c.fleet.store.failovers(); books != nil {
		c.result.Counts.AddFailovers(books.lost(c.result.Counts.Ledger))
		c.storm.losses = append(c.storm.losses, books.losses()...)
		c.result.Masters = books.runs(c.start)
	}
	for _, p := range c.fleet.checkers {
		if _, dial, ok := p.current(); ok {
			dial.close()
		}
	}
	time.Sleep(closing)
	for end := time.Now().Add(time.Minute); c.o.Untimed && time.Now().Before(end) && !c.settled(); {
		time.Sleep(closing)
	}
	c.compareUsage(c.usages())
}

// end has all daemons end in order: checkers first, so that their last hits are counted.
func (c *campaign) end() {
	for _, p := range slices.Concat(c.fleet.checkers, c.fleet.aggregators) {
		p.ends(0)
		c.trouble(p.program.StopWithin(stopPatience))
		if status := p.program.ExitStatus(); status != 0 {
			c.result.Violations = append(c.result.Violations, uncleanEnd(c.start, p, status))
		}
	}
}

// uncleanEnd is what a daemon is accused of that was told to end, and has not done so in order.
func uncleanEnd(start time.Time, p *part, status int) found.Violation {
	text := fmt.Sprintf("%s ends with %d", p.name, status)
	lines := p.log.all()
	for _, line := range lines[max(len(lines)-10, 0):] {
		text += "\n" + line.text
	}
	return found.Violation{
		At: seconds(time.Since(start)), What: "daemons that have delivered all end with status 0", Text: text,
	}
}

func seconds(d time.Duration) float64 { return d.Round(time.Millisecond).Seconds() }
