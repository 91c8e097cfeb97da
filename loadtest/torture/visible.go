package torture

import (
	"cmp"
	"context"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/offpath-io/offpath/loadtest/torture/found"
)

// signal is something of a process' metrics that a fault can move.
type signal struct {
	metric string // as docs/reliability.md names it
	value  func(m map[string]float64) float64
	counts bool // it is a counter, which begins again with each process
}

func of(series string) signal {
	metric, _, _ := strings.Cut(series, "{")
	return signal{metric, func(m map[string]float64) float64 { return m[series] }, strings.HasSuffix(metric, "_total")}
}

// What faults move.
var (
	started   = of("process_start_time_seconds")
	connected = of("offpath_nats_connected")
	again     = of("offpath_nats_reconnects_total")
	fresh     = of(`offpath_freshness{state="fresh"}`)
	silent    = signal{metric: "offpath_refresh_age_seconds", value: func(m map[string]float64) float64 {
		return min(float64(int64(m["offpath_refresh_age_seconds"])), 1) // a second or not
	}}
	repeated = of(`offpath_reports_total{outcome="repeated"}`)
	unsent   = of(`offpath_reports_total{outcome="unsent"}`)
	heard    = of("offpath_live_aggregators")
	owned    = of("offpath_owned_shards")
	redisUp  = of("offpath_redis_connected")
	unapply  = of("offpath_apply_errors_total")
	unlease  = of("offpath_lease_errors_total")
	overflow = of("offpath_overflow_keys_total")
	losses   = of("offpath_store_losses_total")
	offset   = signal{metric: "offpath_store_clock_offset_seconds", value: func(m map[string]float64) float64 {
		return float64(int64(m["offpath_store_clock_offset_seconds"] * 20)) // it creeps
	}}
	slowly = signal{"offpath_apply_seconds", func(m map[string]float64) float64 {
		return m["offpath_apply_seconds_count"] - m[`offpath_apply_seconds_bucket{le="0.128"}`]
	}, true}
	loads = of("offpath_rules_loads_total")
	files = of("offpath_files_loads_total")
	// up is Prometheus' own: whether a process answered at all.
	up = signal{metric: "up", value: func(map[string]float64) float64 { return 1 }}
)

const everybody = "everybody"

// sight says in which metrics a fault is seen.
type sight struct {
	kinds []Kind
	what  *regexp.Regexp // of target and detail
	least time.Duration  // a shorter one need not be seen
	whose string         // the kind of parts that show it, or everybody; "" for the target itself
	any   []signal       // at least one of them moves
}

var (
	daemon   = regexp.MustCompile(`^(checker|aggregator)-`)
	promoted = regexp.MustCompile("promoted after")
	lost     = regexp.MustCompile(`\b[1-9]\d* hits lost`) // see hitsLost
	always   = regexp.MustCompile("")
	onStore  = []signal{redisUp, unapply, unlease, slowly}
	replaced = append(onStore[:4:4], losses)
)

// sights are those of all faults that are to be seen. A fault of a nats-server or of a Sentinel
// alone, and a connection lost to Redis, may be without any effect: the others go on. So may a
// planned failover that loses no hits: clients are sent on, or had none to write.
var sights = []sight{
	{[]Kind{Kill, Stop, Version, Clock}, daemon, 0, "", []signal{started}},
	{[]Kind{Pause}, daemon, 2 * time.Second, "", []signal{up}},
	{[]Kind{Pause}, regexp.MustCompile("^redis:"), 4 * time.Second, "aggregator", onStore},
	{[]Kind{Partition}, regexp.MustCompile(`^checker-\d and all nats`), 3 * time.Second, "",
		[]signal{silent, fresh, repeated, unsent, connected}},
	{[]Kind{Partition}, regexp.MustCompile(`^aggregator-\d and all nats`), 3 * time.Second, "aggregator",
		[]signal{heard, owned, connected}},
	{[]Kind{Partition}, regexp.MustCompile(`^aggregator-\d and all redis`), 4 * time.Second, "aggregator", onStore},
	{[]Kind{Cut}, regexp.MustCompile(`^(checker|aggregator)-\d: [1-9]`), 0, "", []signal{again, connected}},
	{[]Kind{Lose, Rollback}, lost, 0, "aggregator", []signal{losses}},
	{[]Kind{Full}, always, time.Second, "aggregator", []signal{overflow, unapply, unlease}},
	{[]Kind{Disk, ReadOnly}, always, time.Second, "aggregator", []signal{unapply, unlease}},
	{[]Kind{Failover}, lost, time.Second, "aggregator", replaced},
	{[]Kind{Kill}, promoted, 0, "aggregator", replaced},
	{[]Kind{StoreClock}, regexp.MustCompile(`by -?(\d+m)?[\d.]+s$`), 0, "aggregator", []signal{offset}},
	{[]Kind{Rules}, always, time.Second, "checker", []signal{loads}},
	{[]Kind{Secrets}, regexp.MustCompile("^redis:"), 0, "aggregator", []signal{files}},
	{[]Kind{Secrets}, regexp.MustCompile("^(nats|checkers)"), 0, everybody, []signal{files}},
}

// seenWithin is how long after a fault it is to be in the metrics; sampleEvery is how often they
// are read.
const seenWithin, sampleEvery = 10 * time.Second, 500 * time.Millisecond

// lookEvery is how often an aggregator looks at Redis.
const lookEvery = 2 * time.Second

// sample is what a process' metrics were at one time.
type sample struct {
	at      time.Time          // when it was asked for
	until   time.Time          // when it was answered
	values  map[string]float64 // of signals, by metric; nil: no answer
	reports []answered         // by how long it took
	hits    []float64          // by hitStates
	ahead   time.Duration      // of the machine's clock: the fleet's time as a checker has it
}

// answered is how many reports were answered within a time.
type answered struct {
	within time.Duration
	n      float64
}

// samples are those of all parts.
type samples struct {
	clockAhead func(part string) time.Duration // as in storm

	mu   sync.Mutex
	list map[*part][]sample
}

// watch reads the metrics of parts until ctx is done.
func (s *samples) watch(ctx context.Context, parts []*part) {
	for _, p := range parts {
		go func() {
			for ctx.Err() == nil {
				within, cancel := context.WithTimeout(ctx, time.Second)
				_, _ = s.take(within, p) // one that does not answer is a sample, too
				cancel()
				lasts(ctx, sampleEvery)
			}
		}()
	}
}

// take reads a part's metrics, and keeps a sample of them.
func (s *samples) take(ctx context.Context, p *part) (map[string]float64, error) {
	one := sample{at: time.Now()}
	m, err := p.metrics(ctx)
	if err == nil {
		one.values = map[string]float64{}
		for _, look := range sights {
			for _, signal := range look.any {
				one.values[signal.metric] += signal.value(m)
			}
		}
		one.reports, one.hits = reportsOf(m), hitsOf(m)
		one.ahead = s.clockAhead(p.name) + time.Duration(m["offpath_clock_offset_seconds"]*float64(time.Second))
	}
	one.until = time.Now()
	s.keep(p, one)
	return m, err
}

// keep adds a sample to those of a part, in the order of their questions.
func (s *samples) keep(p *part, one sample) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.list[p]
	place, _ := slices.BinarySearchFunc(all, one.at, func(a sample, t time.Time) int { return a.at.Compare(t) })
	s.list[p] = slices.Insert(all, place, one)
}

// hitStates are where a checker says that its hits are: what begins the series of each.
var hitStates = []string{
	`offpath_hits_total{outcome="charged"`, `offpath_hits_total{outcome="answered"`,
	`offpath_hits_total{outcome="overflow"`, `offpath_hits_total{outcome="lost"`,
	`offpath_hits_total{outcome="cancelled"`,
	`offpath_hits_in_flight{`, `offpath_hits_pending{`,
}

func hitsOf(m map[string]float64) []float64 {
	sums := make([]float64, len(hitStates))
	for series, n := range m {
		for i, state := range hitStates {
			if strings.HasPrefix(series, state) {
				sums[i] += n
			}
		}
	}
	return sums
}

// reportsOf are the buckets of a checker's offpath_report_seconds.
func reportsOf(m map[string]float64) (all []answered) {
	for series, n := range m {
		_, bound, is := strings.Cut(series, `offpath_report_seconds_bucket{le="`)
		if seconds, err := strconv.ParseFloat(strings.TrimSuffix(bound, `"}`), 64); is && err == nil {
			within := min(seconds, time.Minute.Seconds()) // one has no bound
			all = append(all, answered{time.Duration(within * float64(time.Second)), n})
		}
	}
	slices.SortFunc(all, func(a, b answered) int { return cmp.Compare(a.within, b.within) })
	return all
}

// longestReport is how long a report of these checkers may have taken that was under way at a time,
// which is long after their start: the bound of the last bucket that grew around then.
func (s *samples) longestReport(checkers []*part, at time.Time) (most time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range checkers {
		var before []answered // at the last answer before
		for _, one := range s.around(p, at.Add(-underWay), at.Add(underWay)) {
			if one.values == nil {
				continue
			}
			if len(before) != len(one.reports) { // another version's
				before = nil
			}
			for i := len(one.reports) - 1; i >= 0 && before != nil; i-- {
				if i == 0 || one.reports[i-1].n-before[i-1].n < one.reports[i].n-before[i].n {
					most = max(most, one.reports[i].within)
					break
				}
			}
			before = one.reports
		}
	}
	return most
}

// ahead is how far the fleet's time was ahead of the machine's, as a checker had it at a time.
func (s *samples) ahead(p *part, at time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.list[p]
	last, _ := slices.BinarySearchFunc(all, at, func(a sample, t time.Time) int { return a.at.Compare(t) })
	for _, one := range slices.Backward(all[:last]) {
		if one.values != nil {
			return one.ahead
		}
	}
	return 0
}

// clockWrong says whether a checker's metrics had its clock off, from the last before a time to the
// first after another.
func (s *samples) clockWrong(p *part, from, until time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.around(p, from, until), func(one sample) bool { return one.ahead.Abs() > mostOff })
}

// underWay is how long a report, or the notice of a lost connection, may be on its way, if nothing
// goes wrong.
const underWay = 100 * time.Millisecond

// around are the samples from the last answer before a time to the first one after another.
func (s *samples) around(p *part, from, until time.Time) []sample {
	all := s.list[p]
	at := func(a sample, t time.Time) int { return a.at.Compare(t) }
	first, _ := slices.BinarySearchFunc(all, from, at)
	for first > 0 {
		if first--; all[first].values != nil && all[first].until.Before(from) {
			break
		}
	}
	last, _ := slices.BinarySearchFunc(all, until, at)
	for last < len(all) {
		if last++; all[last-1].values != nil {
			break
		}
	}
	return all[first:last]
}

// moved says whether a signal of a part changed in a time. One that did not answer changed only
// whether it is up; what changed meanwhile is seen at its next answer. Another process counts anew.
func (s *samples) moved(p *part, of signal, from, until time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	var before map[string]float64 // at the last answer before
	for _, one := range s.around(p, from, until) {
		switch {
		case one.at.After(until):
			return false
		case one.values == nil && of.metric == up.metric && !one.until.Before(from):
			return true
		case one.values == nil:
			continue
		}
		was, is := before[of.metric], one.values[of.metric]
		if of.counts && one.values[started.metric] != before[started.metric] {
			was = 0
			if of.metric == loads.metric || of.metric == files.metric {
				was = is // a start loads, too
			}
		}
		if before != nil && is != was {
			return true
		}
		before = one.values
	}
	return false
}

// couldShow says whether a process of the part could show that its connections were cut at a time:
// it had served for a while, and was asked when it must have noticed, or has not ended since.
func (s *samples) couldShow(p *part, cut time.Time, notice time.Duration) bool {
	l, ok := p.lifeAt(cut)
	if !ok || l.from.After(cut.Add(-sampleEvery)) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return l.until.IsZero() || slices.ContainsFunc(s.list[p], func(one sample) bool {
		return p.lived(one.at, one.until) && !one.at.Before(cut.Add(notice)) && !one.at.After(l.until)
	})
}

// judgeVisible looks whether each fault is seen in metrics.
func (c *campaign) judgeVisible() {
	for _, f := range c.result.Faults {
		for _, look := range sights {
			if slices.Contains(look.kinds, Kind(f.Kind)) && look.what.MatchString(f.Target+": "+f.Detail) &&
				f.For >= look.least.Seconds() && !c.sees(look, f) {
				var metrics []string
				for _, signal := range look.any {
					metrics = append(metrics, signal.metric)
				}
				c.violate(c.time(f.At), "each fault is visible in metrics", "%s of %s, %.1f s: none of %s moved",
					f.Kind, f.Target, f.For, strings.Join(metrics, ", "))
			}
		}
	}
}

// sees says whether a part that is to show a fault does, or none could.
func (c *campaign) sees(look sight, f found.Fault) bool {
	from, until, notice := c.time(f.At), c.time(f.At+f.For).Add(seenWithin), underWay
	if c.o.Untimed {
		until, notice = until.Add(seenWithin), time.Second
	}
	// An aggregator that was away around then may alone have known what Redis lost: checkers tell.
	begin, end := from.Add(-lookEvery), c.time(f.At+f.For).Add(lookEvery)
	checkersTell := slices.ContainsFunc(look.any, func(of signal) bool { return of.metric == losses.metric }) &&
		slices.ContainsFunc(c.fleet.aggregators, func(p *part) bool { return !p.lived(begin, end) })
	could := false
	for _, p := range c.fleet.daemons() {
		moved := func(of signal) bool { return c.samples.moved(p, of, from, until) }
		switch {
		case look.whose == "" && !strings.HasPrefix(f.Target, p.name):
			continue
		case look.whose != "" && look.whose != partKind(p.name) && look.whose != everybody:
			if checkersTell && moved(losses) {
				return true
			}
			continue
		case slices.ContainsFunc(look.any, moved):
			return true
		}
		switch Kind(f.Kind) {
		case Cut:
			could = could || c.samples.couldShow(p, from, notice)
		case Secrets: // a start reads the files, too
			could = could || p.lived(from, c.time(f.At+f.For).Add(time.Second))
		default:
			could = true
		}
	}
	return !could
}

func (c *campaign) time(seconds float64) time.Time {
	return c.start.Add(time.Duration(seconds * float64(time.Second)))
}
