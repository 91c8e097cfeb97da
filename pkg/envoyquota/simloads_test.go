package envoyquota

import (
	"testing"
	"time"
)

func even(times float64, envoys int) func(int, time.Duration) float64 {
	return func(int, time.Duration) float64 { return times / float64(envoys) }
}

// skewed gives one Envoy most of the load.
func skewed(times float64, parts ...float64) func(int, time.Duration) float64 {
	return func(i int, _ time.Duration) float64 { return times * parts[i] }
}

// hopping moves nearly all of the load from Envoy to Envoy.
func hopping(times float64, envoys int, every time.Duration) func(int, time.Duration) float64 {
	return func(i int, at time.Duration) float64 {
		if int(at/every)%envoys == i {
			return times * 0.94
		}
		return times * 0.06 / float64(envoys-1)
	}
}

// bursts are 10 times the load in a tenth of the time.
func bursts(times float64, envoys int, every time.Duration) func(int, time.Duration) float64 {
	return func(_ int, at time.Duration) float64 {
		if at%every < every/10 {
			return 10 * times / float64(envoys)
		}
		return 0
	}
}

// simRow is a scenario, and what may come of it at most, in percent: how far the limit is exceeded at worst, how much less is
// admitted than an exact limiter would, and how many requests are turned away although they fit. The bounds are at most 1.5 times the
// worst of five seeds, or half a per cent.
type simRow struct {
	name                   string
	load                   func(int, time.Duration) float64
	over, lacking, denials float64
}

func (row simRow) hold(t *testing.T, rule string, r simResult) {
	t.Helper()
	if 100*r.worst > row.over || 100*(1-r.throughput) > row.lacking || 100*r.falseDenials > row.denials {
		t.Errorf("%s, %s: %v; want at most %v %% over, %v %% lacking, %v %% denied that fit", rule, row.name, r, row.over, row.lacking, row.denials)
	}
}

func simRows(over, lacking, denials [8]float64) []simRow {
	rows := []simRow{
		{name: "even, 0.7x", load: even(0.7, 4)},
		{name: "even, 1.5x", load: even(1.5, 4)},
		{name: "even, 5x", load: even(5, 4)},
		{name: "skewed, 0.7x", load: skewed(0.7, 0.85, 0.05, 0.05, 0.05)},
		{name: "skewed, 1.5x", load: skewed(1.5, 0.85, 0.05, 0.05, 0.05)},
		{name: "skewed, 5x", load: skewed(5, 0.85, 0.05, 0.05, 0.05)},
		{name: "hopping every 30 s, 1.5x", load: hopping(1.5, 4, 30*time.Second)},
		{name: "bursts every 10 s, 0.7x", load: bursts(0.7, 4, 10*time.Second)},
	}
	for i := range rows {
		rows[i].over, rows[i].lacking, rows[i].denials = over[i], lacking[i], denials[i]
	}
	return rows
}
