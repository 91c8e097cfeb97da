package torture

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/offpath-io/offpath/loadtest/torture/found"
	"github.com/offpath-io/offpath/pkg/window"
)

// violate notes a broken promise.
func (c *campaign) violate(at time.Time, what, format string, args ...any) {
	c.result.Violations = append(c.result.Violations, found.Violation{
		At: seconds(at.Sub(c.start)), What: what, Text: fmt.Sprintf(format, args...),
	})
}

// mostStandstill is the share of a run in which the machine may stand still.
const mostStandstill = 0.05

// mostUnknown is for how many ms a hit may be unknown in most half seconds of rest: what others
// cannot know breaks no limit. It goes by what reports take, on this machine too.
const mostUnknown = 50

// mostOfAKind is how many violations of one promise are told.
const mostOfAKind = 10

// judge holds what was recorded against what is promised.
func (c *campaign) judge(all []request) {
	c.result.StoodStill = c.clock.within(c.start, time.Now()).Seconds() / time.Since(c.start).Seconds()
	c.judgeAnswers(all)
	c.result.Violations = append(c.result.Violations, c.storm.unclean...)
	c.judgeConservation()
	c.judgeStrict(all)
	for _, r := range judgedRules {
		c.result.Rules = append(c.result.Rules, c.judgeRule(r, all))
	}
	if c.result.Unknown = c.unknownAtRest(); c.result.Unknown.P50 > mostUnknown && !c.o.Untimed {
		c.violate(time.Now(), "limits at rest can be judged", "hits are unknown to others for %.0f ms at rest, more than %d ms: the run does not count",
			c.result.Unknown.P50, mostUnknown)
	}
	c.judgeDrills(all)
	c.judgeLogs()
	c.judgeVisible()
	if c.result.StoodStill > mostStandstill && !c.o.Untimed {
		c.violate(time.Now(), "the machine runs", "it stood still for %.1f %% of the time: the run does not count",
			100*c.result.StoodStill)
	}
	told := map[string]int{}
	c.result.Violations = slices.DeleteFunc(c.result.Violations, func(v found.Violation) bool {
		told[v.What]++
		return told[v.What] > mostOfAKind
	})
	slices.SortStableFunc(c.result.Violations, func(a, b found.Violation) int { return cmp.Compare(a.At, b.At) })
}

// answerWithin is how long an answer of a live checker may take.
const answerWithin = 100 * time.Millisecond

func (c *campaign) judgeAnswers(all []request) {
	q := &c.result.Requests
	times := hdrhistogram.New(1, int64(time.Minute/time.Microsecond), 3)
	for i := range all {
		r := &all[i]
		q.Asked++
		if r.rls {
			q.OverRLS++
		}
		until := r.sent.Add(r.took)
		lived := c.fleet.checkers[r.checker].lived(r.sent, until)
		switch {
		case !r.answered && !r.uncharged:
			q.Uncertain++
		case r.answered && r.allowed:
			q.Allowed++
		case r.answered:
			q.Denied++
		}
		if !lived {
			q.Excused++
			continue
		}
		took := r.took - c.clock.within(r.sent, until)
		_ = times.RecordValue(int64(min(max(took, time.Microsecond), time.Minute) / time.Microsecond)) // in its bounds
		if took > answerWithin && !c.o.Untimed || !r.answered {
			q.Late++
			c.violate(r.sent, "every request is answered within 100 ms", "checker-%d took %v for %s: %s",
				r.checker, took.Round(time.Millisecond), r.stream.rule, r.trouble)
		}
	}
	ms := func(percentile float64) float64 { return float64(times.ValueAtPercentile(percentile)) / 1000 }
	q.P50, q.P99, q.Longest = ms(50), ms(99), ms(100)
}

// dropped are the hits of which a checker's metrics say that they are in no ledger.
func dropped(metrics map[string]float64) (sum int64) {
	for name, n := range metrics {
		if strings.HasPrefix(name, `offpath_hits_total{outcome="lost"`) ||
			strings.HasPrefix(name, `offpath_hits_total{outcome="overflow"`) {
			sum += int64(n)
		}
	}
	return sum
}

func (c *campaign) judgeConservation() {
	n := &c.result.Counts
	n.Allowed, n.Uncertain = c.result.Requests.Allowed, c.result.Requests.Uncertain
	for _, p := range c.fleet.checkers {
		for _, l := range p.lives {
			n.Held += l.held
		}
	}
	if len(c.storm.troubles) > 0 {
		return // the campaign failed, and knows not enough
	}
	const what = "every hit is counted once, or its loss explained"
	switch least, found, most := n.Bounds(); {
	case found > most:
		c.violate(time.Now(), what, "%d hits too many: %+v", found-most, *n)
	case found < least:
		c.violate(time.Now(), what, "%d hits are gone: %+v", least-found, *n)
	}
}

// judgeStrict counts what the strict rule let pass of each key: its window is longer than the run.
func (c *campaign) judgeStrict(all []request) {
	type use struct {
		allowed int
		from    time.Time
		until   time.Time
	}
	uses := map[string]*use{}
	for i := range all {
		if r := &all[i]; r.stream.rule == "exact" && r.allowed {
			u := uses[r.user]
			if u == nil {
				u = &use{from: r.sent}
				uses[r.user] = u
			}
			u.allowed++
			u.until = r.sent.Add(r.took)
		}
	}
	for user, u := range uses {
		most := exactLimit
		for _, at := range c.storm.losses {
			if at.After(u.from.Add(-exactPeriod)) && at.Before(u.until.Add(exactPeriod)) {
				most += exactLimit
			}
		}
		if u.allowed > most {
			c.violate(u.from, "a strict limit is never exceeded", "%d of %d for %s", u.allowed, most, user)
		}
		c.result.Requests.Strict += int64(u.allowed)
	}
	if len(all) > 0 && c.result.Requests.Strict == 0 {
		c.violate(c.start, "a strict limit is never exceeded", "nothing passed it")
	}
}

const (
	// certain is how long an answer may have taken whose decision has a known time.
	certain = 50 * time.Millisecond
	// batched is how long it takes, beside a round trip and the wait for it, until every checker knows
	// of a hit: 2 ms of gathering, and 4 ms between two alarms.
	batched = 6 * time.Millisecond
	// leastInterval is the shortest time between two reports of a key.
	leastInterval = 4 * time.Millisecond
)

// judgeRule counts each key's hits as the rule does, and holds them against what is documented for
// the state of the fleet.
func (c *campaign) judgeRule(rule judged, all []request) found.Rule {
	run := found.Rule{Rule: rule.name, Limit: rule.limit, Step: 0.25}
	steps := int(time.Since(c.start).Seconds()/run.Step) + 1
	run.Limits, run.Counts = make([]int64, steps), make([]int64, steps)
	run.Admitted, run.Denied = make([]int64, steps), make([]int64, steps)
	run.Worst, run.AtRest = -1, -1
	counters := map[string]map[int64]int64{}
	hits := map[string][]*request{} // whose time is known, by user
	for i := range all {
		r := &all[i]
		if r.stream.rule != rule.name || !r.answered {
			continue
		}
		step := int(r.sent.Sub(c.start).Seconds() / run.Step)
		if counters[r.user] == nil {
			counters[r.user] = map[int64]int64{}
		}
		now := r.sent.UnixNano()
		if r.allowed {
			run.Admitted[step]++
		} else {
			run.Denied[step]++
		}
		if r.allowed {
			r.dated = r.sent.Add(c.samples.ahead(c.fleet.checkers[r.checker], r.sent))
		}
		if r.allowed && r.took <= certain { // else nobody knows in which window it was
			counters[r.user][rule.shape.Bucket(now)]++
			hits[r.user] = append(hits[r.user], r)
		}
		count := countAt(rule.shape, counters[r.user], now)
		rule.limit = c.limitAt(rule, r.sent)
		run.Limits[step], run.Counts[step] = rule.limit, max(run.Counts[step], int64(count))
		if !r.allowed {
			continue
		}
		over := count/float64(rule.limit) - 1
		run.Worst = max(run.Worst, over)
		most, why := c.bound(rule, r.sent)
		if c.atRest(rule.shape, r.sent) {
			run.AtRest = max(run.AtRest, over)
			if !c.o.Untimed {
				count = known(rule.shape, hits[r.user], r, c.unknown(r.sent))
			}
		}
		if count > most {
			c.violate(r.sent, "limits hold as documented", "%s of %s: %.1f of %d, at most %.1f %s",
				rule.name, r.user, count, rule.limit, most, why)
		}
	}
	return run
}

// unknown is how long some checker may not know of a hit that was answered until a time: a fast
// interval in which the slowest report can be answered, since its shard sends no other meanwhile; a
// round trip; and what is batched.
func (c *campaign) unknown(at time.Time) time.Duration {
	trip, interval := c.samples.longestReport(c.fleet.checkers, at), leastInterval
	for interval < trip {
		interval *= 2
	}
	return interval + trip + batched
}

// unknownAtRest is how long hits may be unknown while the fleet is at rest, by half seconds.
func (c *campaign) unknownAtRest() (u found.Unknown) {
	var all []float64 // ms
	for _, rest := range c.rests {
		for at := rest.from; at.Before(rest.until); at = at.Add(sampleEvery) {
			all = append(all, c.unknown(at).Seconds()*1000)
		}
	}
	if slices.Sort(all); len(all) > 0 {
		u = found.Unknown{P50: all[len(all)/2], Longest: all[len(all)-1]}
	}
	return u
}

// known is the rule's count as the checker which let a hit pass has to know it, with that hit: of
// its own earlier ones, and of those of others that were answered by so much earlier. Each counts
// at its time by its checker's clock.
func known(shape window.Shape, hits []*request, r *request, earlier time.Duration) float64 {
	now := r.dated.Add(r.took).UnixNano()
	buckets := map[int64]int64{shape.Bucket(now): 1}
	for _, h := range slices.Backward(hits) {
		if h.sent.Before(r.sent.Add(-reach(shape) - certain)) {
			break
		}
		by := r.sent
		if h.checker != r.checker {
			by = by.Add(-earlier)
		}
		if h != r && h.sent.Add(h.took).Before(by) {
			buckets[shape.Bucket(h.dated.UnixNano())]++
		}
	}
	return countAt(shape, buckets, now)
}

// limitAt is the largest limit of a rule that any checker may go by, or have gone by for the hits
// of a window.
func (c *campaign) limitAt(rule judged, at time.Time) int64 {
	if rule.name != changing || len(c.storm.limits) == 0 {
		return rule.limit
	}
	most := int64(0)
	for i, change := range c.storm.limits {
		replaced := i+1 < len(c.storm.limits) &&
			c.storm.limits[i+1].at.Before(at.Add(-2*rule.shape.Length-ruleDelay))
		if !change.at.After(at) && !replaced {
			most = max(most, int64(change.limit))
		}
	}
	return most
}

// ruleDelay is how long it may take until a checker has noticed that its file is another one, if it
// was frozen just then.
const ruleDelay = longest + time.Second

func countAt(shape window.Shape, buckets map[int64]int64, now int64) float64 {
	counts := make([]int64, shape.Live())
	newest := shape.Bucket(now)
	for i := range counts {
		counts[i] = buckets[newest-int64(i)]
	}
	return shape.Count(counts, now)
}

// atRest says whether a window has no hits but those of a fleet that has recovered.
func (c *campaign) atRest(shape window.Shape, at time.Time) bool {
	return slices.ContainsFunc(c.rests, func(s span) bool {
		return at.Before(s.until) && at.Add(-reach(shape)).After(s.from)
	})
}

// reach is how old the oldest hits may be that count in a window.
func reach(shape window.Shape) time.Duration { return shape.Length + shape.BucketSize() }

// bound is how many hits a window may have, by what docs/accuracy.md and docs/protocol.md promise.
func (c *campaign) bound(rule judged, at time.Time) (most float64, why string) {
	limit := float64(rule.limit)
	if c.atRest(rule.shape, at) && c.o.Untimed {
		return 1.5*limit + 5, "at rest, roughly"
	}
	if c.atRest(rule.shape, at) {
		// And one hit: by their clocks, some may be in other buckets than here.
		return limit*1.02 + 1, "known at rest"
	}
	// The time of a hit is that of its request here, so each may seem to have one more.
	// A checker that hears of nobody, and does not know it yet, lets pass what fits by its own
	// count.
	lives, from := 0, at.Add(-2*rule.shape.Length)
	for _, p := range c.fleet.checkers {
		lives += p.livesIn(from, at)
		// By other buckets than here, and set right in between, it finds empty windows.
		if c.clockWrong(p, from, at) {
			lives += 2
		}
	}
	// When Redis loses its data, counts begin again.
	for _, lost := range c.storm.losses {
		if lost.Before(at) && lost.After(from) {
			lives++
		}
	}
	return (limit + 1) * float64(lives), fmt.Sprintf("with %d lives of checkers and counts", lives)
}

// clockWrong says whether a checker goes by a wrong clock in a time, by its metrics, or has started
// with one and was set right between two of them.
func (c *campaign) clockWrong(p *part, from, until time.Time) bool {
	return p.startedWrongIn(from.Add(-2*sampleEvery), until) || c.samples.clockWrong(p, from, until)
}

// usage is what a process needs.
type usage struct{ goroutines, files, memory float64 }

func (c *campaign) usages() map[*part]usage {
	all := map[*part]usage{}
	for _, p := range c.fleet.daemons() {
		m, err := p.metrics(context.Background())
		c.trouble(err)
		all[p] = usageOf(m)
	}
	return all
}

// usageOf is what a process needs by its metrics, but for the three subscriptions that it has to
// each shard that it owns, which are a goroutine each: with others it owns others.
func usageOf(m map[string]float64) usage {
	return usage{
		m["go_goroutines"] - 3*m["offpath_owned_shards"], m["process_open_fds"],
		m["process_resident_memory_bytes"],
	}
}

// settled says whether no process needs more than at the beginning.
func (c *campaign) settled() bool {
	for p, a := range c.usages() {
		if c.usage[p].less(a) {
			return false
		}
	}
	return true
}

// less says whether another usage is clearly more.
func (u usage) less(a usage) bool {
	return a.goroutines > u.goroutines+20 || a.files > u.files+20 || a.memory > 2*u.memory+64<<20
}

// compareUsage holds what processes need at the end against the beginning.
func (c *campaign) compareUsage(after map[*part]usage) {
	const what = "memory, goroutines and files are back to where they were"
	for p, a := range after {
		b := c.usage[p]
		if b.less(a) {
			c.violate(time.Now(), what, "%s: %g goroutines of %g, %g files of %g, %.0f MB of %.0f",
				p.name, a.goroutines, b.goroutines, a.files, b.files, a.memory/1e6, b.memory/1e6)
		}
	}
}

// Log lines: what they say, without their figures, and of which shard.
var (
	logMessage = regexp.MustCompile(`level=(WARN|ERROR) msg=("(?:[^"\\]|\\.)*"|\S+)`)
	logShard   = regexp.MustCompile(` shard=\d+`)
)

// faultsNear counts the faults in the minute before a time, and those that were not over by then,
// that a part can have noticed: those of checkers concern nobody else, those of rules only
// checkers.
func (c *campaign) faultsNear(p *part, at time.Time) (n int) {
	now := at.Sub(c.start).Seconds()
	for _, f := range c.result.Faults {
		others := partKind(f.Target) == "checker" && !strings.HasPrefix(f.Target, p.name) ||
			f.Kind == string(Rules) && partKind(p.name) != "checker"
		if f.At <= now && f.At+f.For > now-60 && !others {
			n++
		}
	}
	return n
}

// judgeLogs looks for crashes, and for what is told over and over.
func (c *campaign) judgeLogs() {
	for _, p := range c.fleet.parts() {
		told := map[string]int{}
		for _, line := range p.log.all() {
			if isCrash(line.text) {
				c.violate(line.at, "no crash, no data race", "%s: %s", p.name, line.text)
			}
			if m := logMessage.FindStringSubmatch(line.text); m != nil {
				if line.at.Before(c.start.Add(warmUp)) || p.startedBefore(line.at) {
					continue // what it starts with
				}
				minute := int(line.at.Sub(c.start) / time.Minute)
				id := fmt.Sprint(minute, " ", m[2], logShard.FindString(line.text))
				most := 1 + c.faultsNear(p, line.at)
				if told[id]++; told[id] > most {
					told[id] = math.MinInt // once is enough
					c.violate(line.at, "each fault is told once a minute", "%s: %s, more than %d times", p.name, m[2], most)
				}
			}
		}
	}
}
