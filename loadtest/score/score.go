// Package score turns what happened in a run into figures. A live run and a simulation hand it the
// same things, so that their figures mean the same.
package score

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/offpath-io/offpath/loadtest/oracle"
	"github.com/offpath-io/offpath/loadtest/result"
	"github.com/offpath-io/offpath/loadtest/scenario"
	"github.com/offpath-io/offpath/loadtest/tap"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/rules"
)

// Steps is into how many the timeline of a run is cut.
const Steps = 400

// Score takes in the hits of a run in order of time. It is for one goroutine.
type Score struct {
	scenario *scenario.Scenario
	traffic  *scenario.Traffic
	start    int64 // Unix time of the start of the warm-up
	from, to int64 // the measured part
	judge    *oracle.Judge
	lag      sampler
	admitted int64 // in all, warm-up included
	last     int64
}

// New returns a Score for a run that starts, with its warm-up, at a time in Unix nanoseconds.
func New(sc *scenario.Scenario, t *scenario.Traffic, start int64) *Score {
	s := &Score{scenario: sc, traffic: t, start: start, last: start}
	s.from = start + int64(sc.Warmup)
	s.to = s.from + int64(sc.Duration)
	s.judge = oracle.New(oracle.Options{Rules: sc.Rules, From: s.from, To: s.to, Steps: Steps})
	s.lag = newSampler(sc, t)
	return s
}

// Measured returns the measured part, in Unix nanoseconds.
func (s *Score) Measured() (from, to int64) { return s.from, s.to }

// Hit takes in what a checker decided at a time in Unix nanoseconds, not before that of the hit
// before.
func (s *Score) Hit(now int64, h scenario.Hit, allowed bool) {
	now = max(now, s.last)
	s.last = now
	rule := s.traffic.Rule(h.Key)
	count := s.judge.Hit(now, rule, h.Key, int64(h.Cost), allowed)
	if allowed {
		s.admitted += int64(h.Cost)
	}
	if now >= s.from && now < s.to {
		s.lag.note(now, rule, h, allowed, 2*count >= float64(s.judge.Limit(rule)))
	}
}

// Admitted returns how many hits were admitted in all, the warm-up included.
func (s *Score) Admitted() int64 { return s.admitted }

// Run begins the figures of a run that ended at a time in Unix nanoseconds: all that follow from
// the hits alone.
func (s *Score) Run(end int64) result.Run {
	end = min(end, s.to)
	v := s.judge.Verdict(end)
	r := result.Run{
		Scenario:        s.scenario.Name,
		Variant:         s.scenario.Variant,
		Description:     s.scenario.Description,
		Params:          Params(s.scenario),
		MeasuredSeconds: max(time.Duration(end-s.from).Seconds(), 0),
		Hits:            v.Hits,
		Admitted:        v.Admitted,
		Denied:          v.Hits - v.Admitted,
		OracleAdmitted:  v.OracleAdmitted,
		Keys:            v.Keys,
		Accuracy:        accuracy(v),
		Timeline: result.Timeline{
			StepMS: float64(s.to-s.from) / Steps / 1e6, Ours: v.Timeline, Oracle: v.OracleTimeline,
		},
	}
	if r.MeasuredSeconds > 0 {
		r.OfferedRate = float64(v.Hits) / r.MeasuredSeconds
	}
	return r
}

func accuracy(v oracle.Verdict) result.Accuracy {
	a := result.Accuracy{
		OverWorstWindow: v.Worst, OracleOverWorstWindow: v.OracleWorst,
		Over999: &v.Worst999, RollingOverWorst: v.RollingWorst, OracleRollingOverWorst: v.OracleRollingWorst,
		WrongAllowShare:       share(v.WrongAllow, v.Hits),
		FalseDenialShare:      share(v.FalseDenial, v.Hits),
		WrongAllowShareExact:  share(v.WrongAllowExact, v.Hits),
		FalseDenialShareExact: share(v.FalseDenialExact, v.Hits),
	}
	if v.OracleAdmitted > 0 {
		a.OverTotal = float64(v.Admitted)/float64(v.OracleAdmitted) - 1
	}
	return a
}

func share(part, all int64) float64 {
	if all == 0 {
		return 0
	}
	return float64(part) / float64(all)
}

// Cost turns what was counted on links and stores in the measured part into figures per 1,000 hits.
func Cost(r *result.Run, c tap.Cost) {
	if r.Hits == 0 {
		return
	}
	per := 1000 / float64(r.Hits)
	r.ReportsPer1000 = float64(c.Reports) * per
	r.ReportBytesPer1000 = float64(c.ReportBytes) * per
	r.StoreCommandsPer1000 = float64(c.StoreCommands) * per
	r.StoreHeartbeatsPer1000 = float64(c.StoreJoins) * per
	if r.MeasuredSeconds > 0 {
		r.RefreshBytes = float64(c.HeardBytes) / float64(r.Params.Checkers) / r.MeasuredSeconds
	}
}

// Conservation looks for every admitted hit in what checkers and a store have on record.
func Conservation(admitted int64, checkers []check.Stats, ledger storage.Ledger) result.Conservation {
	c := result.Conservation{Admitted: admitted}
	for _, s := range checkers {
		for _, r := range s.Rules {
			c.Charged += r.Charged
			c.Overflow += r.Overflow
			c.Lost += r.Lost
		}
	}
	for _, r := range ledger {
		c.Counted += r.Counted
		c.Late += r.Late
		c.Refused += r.Refused
	}
	c.Check()
	return c
}

// Lag looks for how long hits took to other checkers. traces are by checker, nil for those that
// were not listened to; the measured part ended at a time in Unix nanoseconds.
func (s *Score) Lag(traces []*tap.Trace, end int64) result.Lag {
	lag := tap.FindLag(traces, s.lag.hits, min(end, s.to), func(h tap.Hit) int64 {
		shape := s.scenario.Rules[s.traffic.Rule(h.Key)].Window
		if shape.Fixed {
			return shape.End(h.Bucket)
		}
		return shape.End(h.Bucket) + int64(shape.Length)
	})
	r := result.Lag{Samples: lag.Nanoseconds.TotalCount(), Never: lag.Never, Truncated: lag.Truncated}
	if r.Samples > 0 {
		r.P50 = new(float64(lag.Nanoseconds.ValueAtQuantile(50)) / 1e6)
		r.P99 = new(float64(lag.Nanoseconds.ValueAtQuantile(99)) / 1e6)
	}
	return r
}

// Latency reads a distribution of nanoseconds.
func Latency(h *hdrhistogram.Histogram) result.Latency {
	at := func(q float64) *float64 { return new(float64(h.ValueAtQuantile(q))) }
	l := result.Latency{P50: at(50), P90: at(90), P99: at(99), P999: at(99.9), Max: new(float64(h.Max()))}
	for _, q := range []float64{1, 5, 10, 25, 50, 75, 90, 95, 98, 99, 99.5, 99.8, 99.9, 99.95, 99.98, 99.99, 99.995, 99.999} {
		if float64(h.TotalCount())*(1-q/100) >= 1 { // enough samples above it to tell
			l.Curve = append(l.Curve, result.Quantile{Percent: q, Value: float64(h.ValueAtQuantile(q))})
		}
	}
	return l
}

// Lateness reads a distribution of nanoseconds.
func Lateness(h *hdrhistogram.Histogram) *result.Lateness {
	return &result.Lateness{
		P50: float64(h.ValueAtQuantile(50)) / 1e6, P99: float64(h.ValueAtQuantile(99)) / 1e6, Max: float64(h.Max()) / 1e6,
	}
}

// Params puts a scenario's parameters down.
func Params(s *scenario.Scenario) result.Params {
	p := result.Params{
		Checkers: s.Checkers, Aggregators: s.Aggregators,
		Limit: s.Rules[0].Limit, WindowMS: milliseconds(s.Rules[0].Window.Length),
		Load: s.Load, FlushMS: milliseconds(s.Flush), EarlyFlush: !s.TimerOnly,
		WarmupS: s.Warmup.Seconds(), DurationS: s.Duration.Seconds(), Speed: s.Speed,
	}
	for _, r := range s.Rules {
		algorithm := r.Algorithm
		if r.Window.Fixed {
			algorithm = rules.FixedWindow
		}
		p.Rules = append(p.Rules, result.Rule{
			Name: r.Name, Limit: r.Limit, WindowMS: milliseconds(r.Window.Length), Buckets: r.Window.Buckets, Algorithm: algorithm.String(),
			Enforcement: r.Enforcement.String(),
		})
	}
	for i, st := range s.Streams {
		p.Keys += st.Keys
		if i == 0 && st.Cost.Most > 1 {
			p.Cost = st.Cost.String()
		}
	}
	if s.Fixed != nil {
		p.Keys = len(s.Fixed.Keys)
	}
	return p
}

func milliseconds(d time.Duration) float64 { return float64(d) / 1e6 }
