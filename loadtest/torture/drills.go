package torture

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/offpath-io/offpath/loadtest/torture/found"
	"github.com/offpath-io/offpath/loadtest/torture/link"
)

// drill is one state that docs/reliability.md promises something of.
type drill struct {
	name   string
	length time.Duration
	// play brings the state about, and ends it after a time.
	play func(ctx context.Context, s *storm, length time.Duration) error
}

// outage is long enough for the local share, which begins after 20 s.
const outage = 30 * time.Second

// drills are played one after the other.
var drills = []drill{
	{"NATS away", outage, func(ctx context.Context, s *storm, d time.Duration) error {
		return s.without(ctx, s.fleet.nats, d)
	}},
	{"Redis away", outage, func(ctx context.Context, s *storm, d time.Duration) error {
		return s.withoutRedis(func() error { return lasting(ctx, d) })
	}},
	{"NATS and Redis away", outage, func(ctx context.Context, s *storm, d time.Duration) error {
		return s.withoutRedis(func() error { return s.without(ctx, s.fleet.nats, d) })
	}},
	{"both aggregators away", outage, func(ctx context.Context, s *storm, d time.Duration) error {
		return s.without(ctx, s.fleet.aggregators, d)
	}},
	{"one of two aggregators cut off from Redis", outage, func(ctx context.Context, s *storm, d time.Duration) error {
		end := s.put(func(w *wire) link.Faults {
			cut := w.from == s.fleet.aggregators[0].name && partKind(w.to) != "nats"
			return link.Faults{HoldTo: cut, HoldFrom: cut}
		})
		defer end()
		return lasting(ctx, d)
	}},
	{"one of four checkers cut off from NATS", outage, func(ctx context.Context, s *storm, d time.Duration) error {
		end := s.put(func(w *wire) link.Faults {
			cut := w.from == s.fleet.checkers[0].name
			return link.Faults{HoldTo: cut, HoldFrom: cut}
		})
		defer end()
		return lasting(ctx, d)
	}},
	{"Redis loses all data", 10 * time.Second, func(ctx context.Context, s *storm, d time.Duration) error {
		return errors.Join(s.hurtStore(ctx, fault{kind: Lose}, new(found.Fault)), lasting(ctx, d))
	}},
	{"a checker starts with a clock 30 s ahead", 10 * time.Second, func(ctx context.Context, s *storm, d time.Duration) error {
		ahead := func() error { return s.writeClock("checker-0", 30*time.Second) }
		return errors.Join(s.replace(ctx, s.fleet.daemon("checker-0"), Kill, 0, ahead), lasting(ctx, d))
	}},
	{"rolling restart of everything", 0, func(ctx context.Context, s *storm, _ time.Duration) error {
		for _, p := range s.fleet.parts() {
			if err := s.replace(ctx, p, Stop, 0, func() error { return nil }); err != nil {
				return err
			}
			lasts(ctx, time.Second)
		}
		return errors.Join(s.hurtStore(ctx, fault{kind: Restart}, new(found.Fault)))
	}},
	{"fleet of four halved, and doubled again", outage, func(ctx context.Context, s *storm, d time.Duration) error {
		return s.without(ctx, s.fleet.checkers[:checkers/2], d)
	}},
}

// failoverDrills are those of modes in which somebody can take over. The other states are the same
// there.
var failoverDrills = []drill{
	{"a master of Redis dies", 10 * time.Second, func(ctx context.Context, s *storm, d time.Duration) error {
		all, err := masters(ctx, s.fleet.store)
		if err != nil {
			return err
		}
		return s.killNode(ctx, fault{kind: Kill, length: d}, all[0], new(found.Fault))
	}},
	{"a planned failover", 10 * time.Second, func(ctx context.Context, s *storm, d time.Duration) error {
		return errors.Join(s.failover(ctx, fault{kind: Failover}, new(found.Fault)), lasting(ctx, d))
	}},
}

// lasting is lasts, as a step among others.
func lasting(ctx context.Context, d time.Duration) error {
	lasts(ctx, d)
	return nil
}

// withoutRedis does something while Redis stands still.
func (s *storm) withoutRedis(do func() error) error {
	var errs []error
	for _, n := range s.fleet.store.nodes() {
		errs = append(errs, n.redis.Pause())
	}
	errs = append(errs, do())
	for _, n := range s.fleet.store.nodes() {
		errs = append(errs, n.redis.Resume())
	}
	return errors.Join(errs...)
}

// without stops some parts in order, and starts them again after a time.
func (s *storm) without(ctx context.Context, parts []*part, d time.Duration) error {
	errs := make(chan error, len(parts))
	for _, p := range parts {
		go func() { errs <- s.replace(ctx, p, Stop, d, func() error { return nil }) }()
	}
	var all []error
	for range parts {
		all = append(all, <-errs)
	}
	return errors.Join(all...)
}

// drill plays all drills.
func (c *campaign) drill(ctx context.Context) {
	list := drills
	if c.o.Mode != Single {
		list = failoverDrills
	}
	for _, d := range list {
		if ctx.Err() != nil {
			return
		}
		begun := time.Now()
		fmt.Fprintf(c.o.Progress, "%6.1f s  %s\n", seconds(begun.Sub(c.start)), d.name)
		c.trouble(d.play(ctx, c.storm, d.length))
		ended := time.Now()
		c.storm.runs = append(c.storm.runs, found.Fault{
			At: seconds(begun.Sub(c.start)), For: seconds(ended.Sub(begun)), Kind: string(Drill), Target: d.name,
		})
		c.rest(ctx, ended)
		c.result.Drills = append(c.result.Drills, found.Drill{
			Name: d.name, At: seconds(begun.Sub(c.start)), For: seconds(ended.Sub(begun)),
			RestAfter: c.result.Rests[len(c.result.Rests)-1].After,
		})
	}
}

// judgeDrills says of each drill how the rule "fast" fared in it.
func (c *campaign) judgeDrills(all []request) {
	rule := judgedRules[0]
	for i := range c.result.Drills {
		d := &c.result.Drills[i]
		buckets := map[int64]int64{}
		late := requestStats{}
		for j := range all {
			r := &all[j]
			at := r.sent.Sub(c.start).Seconds()
			if at < d.At-2*rule.shape.Length.Seconds() || at > d.At+d.For {
				continue
			}
			now := r.sent.UnixNano()
			ours := r.stream.rule == rule.name && r.user == "hot"
			if ours && r.allowed {
				buckets[rule.shape.Bucket(now)]++
			}
			if at < d.At {
				continue
			}
			late.add(r, c)
			if ours && r.allowed {
				d.Passed++
				over := countAt(rule.shape, buckets, now)/float64(rule.limit) - 1
				d.Worst = max(d.Worst, over)
				if at > d.At+shareAfter.Seconds() {
					d.WorstLater = max(d.WorstLater, over)
				}
			}
		}
		d.Passed /= d.For * float64(rule.limit) / rule.shape.Length.Seconds()
		d.Unanswered, d.Longest = late.unanswered, late.longest
	}
}

// shareAfter is when checkers have gone down to their local share, and the window has no hits of
// before.
const shareAfter = 24 * time.Second

// requestStats are of the requests to live checkers.
type requestStats struct {
	unanswered int64
	longest    float64 // ms
}

func (s *requestStats) add(r *request, c *campaign) {
	until := r.sent.Add(r.took)
	if !c.fleet.checkers[r.checker].lived(r.sent, until) {
		return
	}
	if !r.answered {
		s.unanswered++
	}
	s.longest = max(s.longest, float64(r.took-c.clock.within(r.sent, until))/float64(time.Millisecond))
}
