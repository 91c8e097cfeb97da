package envoyquota

import (
	"math"
	"os"
	"runtime"
	"strconv"
	"strings"
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

// loads are those that docs/adapters.md has figures of, for four Envoys.
var loads = map[string]func(int, time.Duration) float64{
	"even, 0.7":    even(0.7, 4),
	"even, 1.5":    even(1.5, 4),
	"even, 5":      even(5, 4),
	"skewed, 0.7":  skewed(0.7, 0.85, 0.05, 0.05, 0.05),
	"skewed, 1.5":  skewed(1.5, 0.85, 0.05, 0.05, 0.05),
	"skewed, 5":    skewed(5, 0.85, 0.05, 0.05, 0.05),
	"hopping, 1.5": hopping(1.5, 4, 30*time.Second),
	"bursts, 0.7":  bursts(0.7, 4, 10*time.Second),
}

// lengths are how long its limits are simulated for.
var lengths = map[string]time.Duration{
	"100/second": time.Minute, "1000/second": time.Minute, "300/10s": 2 * time.Minute,
	"600/minute": 4 * time.Minute, "5000/10m": 15 * time.Minute,
}

// table is the first one of docs/adapters.md after a text.
func table(t *testing.T, after string) (header []string, rows [][]string) {
	t.Helper()
	document, err := os.ReadFile("../../docs/adapters.md")
	must(t, err)
	_, rest, _ := strings.Cut(string(document), after)
	_, rest, found := strings.Cut(rest, "\n\n| ")
	if !found {
		t.Fatalf("there is no table after %q", after)
	}
	rest, _, _ = strings.Cut(rest, "\n\n")
	for line := range strings.Lines(rest) {
		rows = append(rows, strings.Split(strings.Trim(line, "| \n"), " | "))
	}
	return rows[0], rows[2:]
}

// hold fails the test unless a cell, such as "+7.7 %, 2.4 %, 101.5 %", is what was measured. Where
// floating point rounds otherwise than on amd64, other requests are denied, and figures may be off
// by half.
func (r simResult) hold(t *testing.T, what, cell string) {
	t.Helper()
	t.Logf("%s: %v", what, r)
	texts := strings.Split(cell, ", ")
	if len(texts) != 3 {
		t.Fatalf("%s: %q has not three figures", what, cell)
	}
	for i, got := range []float64{r.worst, r.falseDenials, r.throughput - 1} {
		want, err := strconv.ParseFloat(strings.TrimSuffix(texts[i], " %"), 64)
		must(t, err)
		if i == 2 {
			want -= 100
		}
		slack := 0.05 + 1e-9
		if runtime.GOARCH != "amd64" {
			slack += math.Abs(want) / 2
		}
		if math.Abs(100*got-want) > slack {
			t.Errorf("%s: %v, documented as %s", what, r, cell)
			return
		}
	}
}
