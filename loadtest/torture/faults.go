package torture

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/offpath-io/offpath/loadtest/torture/found"
	"github.com/offpath-io/offpath/loadtest/torture/link"
)

// fault is one that has been drawn.
type fault struct {
	at     time.Duration // from the start of its round
	length time.Duration
	kind   Kind
	target int     // of those that the kind can have
	peer   int     // of a partition
	ways   int     // of a partition: 1 to, 2 from, 3 both
	degree float64 // how bad, 0 to 1
}

// Faults last as long as these, at least and at most.
const (
	shortest = 100 * time.Millisecond
	longest  = 8 * time.Second
)

// draw draws the faults of one round, about one in a second.
func draw(random *rand.Rand, of []Kind, round time.Duration) (faults []fault) {
	var urn []Kind
	for _, k := range kinds {
		if slices.Contains(of, k.kind) {
			urn = append(urn, slices.Repeat([]Kind{k.kind}, k.weight)...)
		}
	}
	at := time.Duration(0)
	for {
		at += time.Duration(random.ExpFloat64() * float64(time.Second))
		f := fault{at: at, kind: urn[random.IntN(len(urn))], target: random.IntN(1 << 20), peer: random.IntN(1 << 20),
			ways: 1 + random.IntN(3), degree: random.Float64()}
		// As many short ones as long ones, by order of magnitude.
		span := math.Log(float64(longest) / float64(shortest))
		f.length = time.Duration(float64(shortest) * math.Exp(random.Float64()*span))
		if at >= round {
			return faults
		}
		f.length = min(f.length, round-at)
		faults = append(faults, f)
	}
}

// storm plays faults on a fleet.
type storm struct {
	fleet   *fleet
	traffic *traffic
	samples *samples
	start   time.Time

	mu         sync.Mutex
	runs       []found.Fault
	active     map[int]func(*wire) link.Faults // what faults do to links
	next       int
	redisBusy  bool
	settle     time.Duration            // see settle
	ahead      map[string]time.Duration // of the machine's clock, by daemon
	storeAhead time.Duration            // of the machine's clock: Redis', for who has taken it
	storeShown time.Time                // likewise: the latest time that its clock had shown before it was set
	rotating   sync.Mutex               // of secrets
	ruling     sync.Mutex               // of the rules' file, and what follows
	limit      int                      // of changingLimits
	limits     []newLimit               // all that have been in force
	losses     []time.Time              // when the store lost data
	storeLost  int64
	again      int64             // of that: what may be reported once more
	dropped    int64             // what checkers had dropped that were replaced
	unclean    []found.Violation // daemons that did not end as they should
	troubles   []error           // what could not be done: of the campaign, not of the fleet
}

// errBusy says that another fault has the target: nothing was done.
var errBusy = errors.New("another fault has it")

// play plays one fault to its end, at the latest until ctx is done.
func (s *storm) play(ctx context.Context, f fault) {
	begun := time.Now()
	run := found.Fault{At: seconds(begun.Sub(s.start)), Kind: string(f.kind)}
	var err error
	for _, k := range kinds {
		if k.kind == f.kind {
			err = k.play(s, ctx, f, &run)
		}
	}
	if f.kind != Cut && run.For == 0 {
		run.For = seconds(time.Since(begun))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case errors.Is(err, errBusy):
	case err != nil:
		s.troubles = append(s.troubles, fmt.Errorf("%s of %s: %w", f.kind, run.Target, err))
	default:
		s.runs = append(s.runs, run)
	}
}

func (s *storm) anyone(n int) *part {
	all := s.fleet.parts()
	return all[n%len(all)]
}

// nodeShare is how many of the faults that all processes can have are those of nodes, if there are
// several: a failover is what their replicas are for, and has its own ways to fail.
const nodeShare = 0.3

// nodeOf is the node of Redis that a fault is for, or nil if it is for a part.
func (s *storm) nodeOf(f fault) *node {
	nodes, parts := s.fleet.store.nodes(), len(s.fleet.parts())
	if s.fleet.store.failovers() != nil {
		if f.degree >= nodeShare {
			return nil
		}
		return nodes[f.target%len(nodes)]
	}
	// A single Redis that is killed is no other than one that loses its data.
	if f.kind != Pause || f.target%(parts+1) < parts {
		return nil
	}
	return nodes[0]
}

// lasts returns after a time, or when the storm is over.
func lasts(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// end ends a process, by force or in order, and starts it again.
func (s *storm) end(ctx context.Context, f fault, run *found.Fault) error {
	if n := s.nodeOf(f); n != nil && f.kind == Kill {
		return s.killNode(ctx, f, n, run)
	}
	p := s.anyone(f.target)
	run.Target = p.name
	if !p.take() {
		return errBusy
	}
	defer p.release()
	return s.replace(ctx, p, f.kind, f.length, func() error { return nil })
}

// replace ends a process that the caller has taken, and starts it again after a time, and after
// what is to happen before.
func (s *storm) replace(
	ctx context.Context, p *part, by Kind, after time.Duration, before func() error,
) error {
	var held int64
	since := time.Now()
	m, err := s.lastWords(p)
	if err != nil {
		return err
	}
	if checker := slices.Index(s.fleet.checkers, p); checker >= 0 {
		held = int64(m["offpath_hits_pending"] + m["offpath_hits_in_flight"])
		s.mu.Lock()
		s.dropped += dropped(m)
		s.mu.Unlock()
		defer func() { // what it took in after that is known only now
			p.mu.Lock()
			defer p.mu.Unlock()
			if n := len(p.lives) - 2; n >= 0 && !p.lives[n].delivered {
				p.lives[n].held += s.traffic.allowedSince(checker, since)
			}
		}()
	}
	_, dial, _ := p.current()
	p.ends(held)
	told := p.log.len()
	if by == Kill {
		err = p.program.Kill()
	} else {
		err = p.program.StopWithin(stopPatience)
	}
	if err != nil {
		return err
	}
	switch status := p.program.ExitStatus(); {
	case by != Stop || p.admin == "" || p.log.says(told, "unreported"):
	case status == 0: // it has delivered all
		p.delivered()
	default:
		s.mu.Lock()
		s.unclean = append(s.unclean, uncleanEnd(s.start, p, status))
		s.mu.Unlock()
	}
	if dial != nil {
		dial.close()
	}
	lasts(ctx, after)
	if err := before(); err != nil {
		return err
	}
	return p.restart(context.Background())
}

// lastWords are the metrics of a process that is about to end, as a sample. A checker has to answer,
// since its counts go with it; an aggregator need not.
func (s *storm) lastWords(p *part) (map[string]float64, error) {
	switch partKind(p.name) {
	case "checker":
		return s.samples.take(context.Background(), p)
	case "aggregator":
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, _ = s.samples.take(ctx, p)
	}
	return nil, nil
}

// cut resets all connections of a part, once.
func (s *storm) cut(_ context.Context, f fault, run *found.Fault) error {
	run.Target = s.anyone(f.target).name
	if n := s.nodeOf(f); n != nil {
		run.Target = n.name
	}
	run.Detail = fmt.Sprintf("%d connections", s.fleet.cut(run.Target))
	return nil
}

func (s *storm) pause(ctx context.Context, f fault, run *found.Fault) error {
	if n := s.nodeOf(f); n != nil {
		run.Target = n.name
		if !s.takeRedis() {
			return errBusy
		}
		defer s.releaseRedis()
		if err := n.redis.Pause(); err != nil {
			return err
		}
		lasts(ctx, f.length)
		if err := n.redis.Resume(); err != nil {
			return err
		}
		return until(context.Background(), s.fleet.store.inSync)
	}
	p := s.anyone(f.target)
	run.Target = p.name
	if !p.take() {
		return errBusy
	}
	defer p.release()
	if err := p.freeze(); err != nil {
		return err
	}
	lasts(ctx, f.length)
	return p.thaw()
}

// disturb puts faults on links for a while.
func (s *storm) disturb(ctx context.Context, f fault, run *found.Fault) error {
	all := s.fleet.links
	one := all[f.target%len(all)]
	run.Target = one.from
	effect := link.Faults{HoldTo: f.ways&1 != 0, HoldFrom: f.ways&2 != 0}
	hits := func(w *wire) bool { return w.from == one.from && partKind(w.to) == partKind(one.to) }
	switch {
	case f.kind == Partition && f.degree < 0.3: // from one server: the part still reaches others
		run.Target = one.from + " and " + one.to
		if one.from == one.to {
			run.Target = "a link to " + one.to
		}
		hits = func(w *wire) bool { return w == one }
	case f.kind == Partition && one.from != one.to:
		run.Target = one.from + " and all " + partKind(one.to)
	case f.kind == Partition: // a node of Redis, from all
	default:
		effect = link.Faults{
			Delay:  time.Duration(f.degree * float64(300*time.Millisecond)),
			Jitter: time.Duration(f.degree * float64(100*time.Millisecond)),
			Loss:   0.2 * f.degree,
		}
		if f.ways == 1 {
			effect.Rate = 20_000
		}
		hits = func(w *wire) bool { return w.from == one.from }
	}
	run.Detail = describe(effect)
	end := s.put(func(w *wire) link.Faults {
		if hits(w) {
			return effect
		}
		return link.Faults{}
	})
	lasts(ctx, f.length)
	end()
	return nil
}

// describe says what a fault does to a link.
func describe(f link.Faults) string {
	var parts []string
	add := func(holds bool, format string, args ...any) {
		if holds {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	add(f.HoldTo && f.HoldFrom, "both ways")
	add(f.HoldTo && !f.HoldFrom, "nothing gets there")
	add(f.HoldFrom && !f.HoldTo, "nothing comes back")
	add(f.Delay > 0, "%v to %v late", f.Delay.Round(time.Millisecond), (f.Delay + f.Jitter).Round(time.Millisecond))
	add(f.Loss > 0, "%.0f %% repeated", 100*f.Loss)
	add(f.Rate > 0, "%d kB/s", f.Rate/1000)
	return strings.Join(parts, ", ")
}

// partKind is the kind of part that a name is of, such as nats of nats-2.
func partKind(name string) string {
	for i := range name {
		if name[i] == '-' {
			return name[:i]
		}
	}
	return name
}

// put has a fault work on all links, beside the others, until end is called.
func (s *storm) put(effect func(*wire) link.Faults) (end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	number := s.next
	s.next++
	s.active[number] = effect
	s.applyLocked()
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.active, number)
		s.applyLocked()
	}
}

// applyLocked gives each link the worst of all faults that work on it.
func (s *storm) applyLocked() {
	for _, w := range s.fleet.links {
		var worst link.Faults
		for _, effect := range s.active {
			e := effect(w)
			worst.Delay, worst.Jitter = max(worst.Delay, e.Delay), max(worst.Jitter, e.Jitter)
			worst.Loss = max(worst.Loss, e.Loss)
			if e.Rate > 0 && (worst.Rate == 0 || e.Rate < worst.Rate) {
				worst.Rate = e.Rate
			}
			worst.HoldTo, worst.HoldFrom = worst.HoldTo || e.HoldTo, worst.HoldFrom || e.HoldFrom
			worst.Refuse = worst.Refuse || e.Refuse
		}
		w.Set(worst)
	}
}

// furthest is how far a clock is set, at most.
const furthest = time.Minute

// step is by how much a clock is set.
func (f fault) step() time.Duration {
	span := math.Log(float64(furthest) / float64(shortest))
	by := time.Duration(float64(shortest) * math.Exp(f.degree*span)).Round(time.Millisecond)
	if f.ways == 1 {
		return -by
	}
	return by
}

// setClock starts a daemon again with a clock that is wrong. (Setting the machine's clock changes
// nothing in a running one: it goes by the time since its start.)
func (s *storm) setClock(ctx context.Context, f fault, run *found.Fault) error {
	run.Target = setClocks[f.target%len(setClocks)]
	p := s.fleet.daemon(run.Target)
	by := f.step()
	if !p.take() {
		return errBusy
	}
	defer p.release()
	run.Detail = fmt.Sprintf("starts with %v", by)
	return s.replace(ctx, p, Kill, f.length, func() error { return s.writeClock(p.name, by) })
}

// clockAhead is how far a daemon's clock is ahead of the machine's.
func (s *storm) clockAhead(name string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ahead[name]
}

func (s *storm) writeClock(name string, ahead time.Duration) error {
	s.mu.Lock()
	s.ahead[name] = ahead
	s.mu.Unlock()
	s.fleet.daemon(name).setClock()
	return replaceFile(s.fleet.clockFile(name), []byte(ahead.String()))
}

// changingLimits are those between which the limit of a rule changes.
var changingLimits = []int{30, 20, 40}

// newLimit is a limit since a time.
type newLimit struct {
	at    time.Time
	limit int
}

// changeRules changes a limit, or makes the file invalid for a while.
func (s *storm) changeRules(ctx context.Context, f fault, run *found.Fault) error {
	run.Target = "rules"
	if !s.ruling.TryLock() {
		return errBusy
	}
	defer s.ruling.Unlock()
	if f.degree < 0.3 {
		run.Detail = "invalid"
		if err := s.fleet.writeRules("rules: [{ name: changing, limit: many }]\n"); err != nil {
			return err
		}
		lasts(ctx, f.length)
		return s.fleet.writeRules(rulesText(changingLimits[s.limit]))
	}
	s.limit = (s.limit + 1 + f.peer%2) % len(changingLimits)
	limit := changingLimits[s.limit]
	run.Detail = fmt.Sprintf("limit %d", limit)
	s.limits = append(s.limits, newLimit{time.Now(), limit})
	return s.fleet.writeRules(rulesText(limit))
}
