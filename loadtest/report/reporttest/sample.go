// Package reporttest makes results for tests of what shows them.
package reporttest

import (
	"math"

	"github.com/offpath-io/offpath/loadtest/result"
)

// Charts is how many charts a page of Sample has: two runs have three, the simulated one has no latencies, and three are of
// the costs of all runs.
const Charts = 3 + 3 + 2 + 3

// Sample is three runs, two live and one simulated, with all figures that such runs have. The figures are invented, but
// of the size that real ones are.
func Sample() result.File {
	return result.File{
		Version: result.Version,
		Offpath: "v0.3.0",
		Machine: result.Machine{OS: "linux", Arch: "amd64", CPU: "Sample CPU at 2.80 GHz", Cores: 2, Go: "go1.26.8"},
		Runs:    []result.Run{steady(), surge(), published()},
	}
}

func steady() result.Run {
	r := run("steady", "Five times the limit, evenly, at one key.", params(8, 1000, 50))
	r.Params.Load = 5
	r.Timeline = timeline(100, func(float64) float64 { return 1 }, 0.021)
	live(&r, 71)
	return r
}

func surge() result.Run {
	r := run("surge", "Half the limit, then fifteen times as much from one moment to the next.", params(8, 1000, 50))
	r.Params.Store = "redis"
	r.Accuracy = result.Accuracy{
		OverWorstWindow: 0.184, OverTotal: 0.0213, RollingOverWorst: 0.61, OracleRollingOverWorst: 0.52,
		WrongAllowShare: 0.0071, FalseDenialShare: 0.0004, WrongAllowShareExact: 0.0102, FalseDenialShareExact: 0.0031,
	}
	r.Timeline = timeline(100, func(at float64) float64 { return min(1, 0.5+max(0, at-8)*2) }, 0.18)
	r.Cost = result.Cost{
		ReportsPer1000: 24.8, ReportBytesPer1000: 2_204, StoreCommandsPer1000: 5.12, RedisCallsPer1000: new(29.7),
		RefreshBytes: 5_020,
	}
	live(&r, 83)
	return r
}

func published() result.Run {
	p := params(2, 1000, 10)
	p.DelayMS, p.JitterMS, p.EarlyFlush, p.DurationS = 0.4, 0.2, false, 180
	p.Rules[0].Algorithm = "fixed_window"
	r := run("published-a", "A fixed window, saturated for minutes.", p)
	r.Mode, r.Variant, r.MeasuredSeconds = result.Simulated, "2 replicas, 10ms, timer only", 180
	r.OverTotal = 0.0009
	r.Cost = result.Cost{ReportsPer1000: 112, ReportBytesPer1000: 8_930, StoreCommandsPer1000: 51.3, RefreshBytes: 9_800}
	r.Memory = result.Memory{}
	r.Timeline = timeline(900, func(at float64) float64 { return min(1, math.Mod(at, 1)*5+0.05) }, 0.012)
	return r
}

// run is one without what only live runs have.
func run(scenario, description string, p result.Params) result.Run {
	r := result.Run{
		Scenario: scenario, Description: description, Mode: result.Live, Params: p, MeasuredSeconds: p.DurationS,
		Hits: 100_000, Admitted: 20_015, Denied: 79_985, OracleAdmitted: 20_003, Keys: 1,
		Accuracy: result.Accuracy{
			OverWorstWindow: 0.021, OverTotal: 0.0006, RollingOverWorst: 0.033, OracleRollingOverWorst: 0.011,
			WrongAllowShare: 0.00042, FalseDenialShare: 0.00019, WrongAllowShareExact: 0.0031, FalseDenialShareExact: 0.0027,
		},
		RefreshLagMS: result.Lag{P50: new(29.4), P99: new(57.8), Samples: 91_212, Never: 37},
		Cost: result.Cost{
			ReportsPer1000: 31.2, ReportBytesPer1000: 2_871, StoreCommandsPer1000: 7.42, RefreshBytes: 4_410,
		},
		Memory:       result.Memory{CheckerBytes: new(312.0), StoreBytes: new(141.5)},
		Conservation: result.Conservation{Admitted: 22_031, Charged: 22_031, Counted: 22_019, Late: 12},
		Sweep:        sweep(),
	}
	r.Params.Rules[0].Name = scenario
	r.OfferedRate = float64(r.Hits) / r.MeasuredSeconds
	r.Conservation.Check()
	return r
}

func params(checkers int, limit int64, flush float64) result.Params {
	return result.Params{
		Checkers: checkers, Aggregators: 2, Limit: limit, WindowMS: 1000, FlushMS: flush, EarlyFlush: true, Keys: 1,
		Rules:   []result.Rule{{Limit: limit, WindowMS: 1000, Buckets: 1, Algorithm: "sliding_window"}},
		WarmupS: 2, DurationS: 20, Seed: 1, Store: "memory",
	}
}

// live adds latencies around a median, in nanoseconds.
func live(r *result.Run, median float64) {
	r.ClockNS = new(38.0)
	r.DecisionsPerSecond, r.DecisionsPerSecondPerCore = new(21_400_000.0), new(10_700_000.0)
	r.LateMS = &result.Lateness{P50: 0.06, P99: 1.2, Max: 7.9}
	at := func(percent float64) float64 { return median * math.Pow(1/(1-percent/100), 0.7) * 0.62 }
	for nines := 0.0; nines <= 5; nines += 0.05 {
		percent := 100 * (1 - math.Pow(10, -nines))
		r.DecisionNS.Curve = append(r.DecisionNS.Curve, result.Quantile{Percent: percent, Value: at(percent)})
	}
	largest := at(99.9995)
	r.DecisionNS.Curve = append(r.DecisionNS.Curve, result.Quantile{Percent: 100, Value: largest})
	r.DecisionNS.P50, r.DecisionNS.P90, r.DecisionNS.P99 = new(at(50)), new(at(90)), new(at(99))
	r.DecisionNS.P999, r.DecisionNS.Max = new(at(99.9)), &largest
}

// timeline follows a course that the oracle keeps to, and that we exceed by at most so much.
func timeline(steps int, course func(seconds float64) float64, over float64) result.Timeline {
	t := result.Timeline{StepMS: 200}
	for i := range steps {
		exact := course(float64(i) * t.StepMS / 1000)
		t.Oracle = append(t.Oracle, exact)
		t.Ours = append(t.Ours, exact+over*math.Pow(math.Sin(float64(i)*0.7), 8)*exact)
	}
	return t
}

func sweep() []result.SweepStep {
	var steps []result.SweepStep
	for _, flush := range []float64{5, 10, 20, 50, 100, 200, 500} {
		steps = append(steps, result.SweepStep{
			FlushMS: flush, OverWorstWindow: flush / 2400, WrongAllowShare: flush / 90_000, FalseDenialShare: flush / 240_000,
			ReportsPer1000: 8 + 900/flush,
		})
	}
	return steps
}
