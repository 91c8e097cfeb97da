package httpload

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Result is what was measured. The warm-up is in none of its figures.
type Result struct {
	Options Options `json:"options"` // with the defaults filled in

	// Over gRPC, OK counts as OK200 and OVER_LIMIT as Limited429; other answers have the statuses
	// that suit them best.
	//
	// Sent are the requests that were answered or failed: OK200 + Limited429 + the sum of Other +
	// Errors.
	Sent       int64         `json:"sent"`
	OK200      int64         `json:"ok_200"`
	Limited429 int64         `json:"limited_429"`
	Other      map[int]int64 `json:"other,omitempty"` // answers by any other status; nil if there were none
	// Errors are requests without an answer: refused, broken off, or given up after the timeout.
	Errors int64 `json:"errors"`
	// FirstError is the first failure, or answer that was no decision, the warm-up's included; ""
	// if none.
	FirstError string `json:"first_error,omitempty"`

	// Latency is from when a request was due, and Service from when it was sent, to the end of its
	// answer. Errors are in both, as if each had taken the timeout at least.
	Latency Percentiles `json:"latency"`
	Service Percentiles `json:"service"`

	// Achieved is Sent per second of the measured part, which ends with the last answer if that
	// comes late.
	Achieved float64 `json:"achieved_per_second"`
	// Late are the requests that were sent more than 1 ms after they were due; Queued is the part
	// of them for which all connections were busy. The others are the generator's fault: the
	// machine had no time for it.
	Late   int64 `json:"late"`
	Queued int64 `json:"queued"`

	// Interrupted says that the run was stopped. Unanswered are the requests that were due by then
	// and had not been answered: a server that hangs shows in these alone.
	Interrupted bool  `json:"interrupted"`
	Unanswered  int64 `json:"unanswered"`
}

// Percentiles are times that so many per cent of the requests did not exceed, exact to three
// digits. All are 0 if there were no requests. More than an hour counts as an hour.
type Percentiles struct {
	P50   time.Duration `json:"p50_ns"`
	P75   time.Duration `json:"p75_ns"`
	P90   time.Duration `json:"p90_ns"`
	P99   time.Duration `json:"p99_ns"`
	P999  time.Duration `json:"p999_ns"`
	P9999 time.Duration `json:"p9999_ns"`
	Max   time.Duration `json:"max_ns"`
	Mean  time.Duration `json:"mean_ns"`
}

func percentiles(h *hdrhistogram.Histogram) Percentiles {
	at := func(percent float64) time.Duration { return time.Duration(h.ValueAtPercentile(percent)) }
	return Percentiles{
		P50: at(50), P75: at(75), P90: at(90), P99: at(99), P999: at(99.9), P9999: at(99.99),
		Max: time.Duration(h.Max()), Mean: time.Duration(h.Mean()),
	}
}

// result adds up what the workers have measured in the time since the start.
func (l *load) result(records []*record, elapsed time.Duration) Result {
	sum, latency, service := merge(records)
	r := Result{
		Options:     l.options,
		OK200:       sum.answers[http.StatusOK],
		Limited429:  sum.answers[http.StatusTooManyRequests],
		Errors:      sum.errors,
		FirstError:  l.errorText,
		Latency:     percentiles(latency),
		Service:     percentiles(service),
		Late:        sum.late,
		Queued:      sum.queued,
		Interrupted: l.done.Load() < l.total,
	}
	r.Sent = r.Errors
	for status, n := range sum.answers {
		r.Sent += n
		if !expected(status) {
			if r.Other == nil {
				r.Other = make(map[int]int64)
			}
			r.Other[status] = n
		}
	}
	r.finish(l.schedule, elapsed)
	return r
}

// finish sets what depends on how long the run took.
func (r *Result) finish(s schedule, elapsed time.Duration) {
	if r.Interrupted {
		r.Unanswered = max(0, min(s.before(elapsed), s.total)-s.warm-r.Sent)
	} else {
		elapsed = max(elapsed, r.Options.Warmup+r.Options.Duration) // the last request is due a little before
	}
	if measured := elapsed - r.Options.Warmup; measured > 0 {
		r.Achieved = float64(r.Sent) / measured.Seconds()
	}
}

// Print writes the result as text for a terminal.
func (r Result) Print(w io.Writer) error {
	var b strings.Builder
	r.printLoad(&b)
	b.WriteByte('\n')
	r.printCounts(&b)
	b.WriteByte('\n')
	r.printTimes(&b)
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("print result: %w", err)
	}
	return nil
}

func (r Result) printLoad(w io.Writer) {
	o := r.Options
	if o.GRPC != "" {
		fmt.Fprintf(w, "ShouldRateLimit at %s, of domain %s; channels: %d\n", o.GRPC, o.Domain, o.Channels)
	} else {
		fmt.Fprintf(w, "POST %s\n", o.URL)
	}
	fmt.Fprintf(w, "%s requests per second for %v", strconv.FormatFloat(o.Rate, 'f', -1, 64), o.Duration)
	if o.Warmup > 0 {
		fmt.Fprintf(w, ", after %v of warm-up", o.Warmup)
	}
	fmt.Fprintf(w, "; connections: %d, keys: %d\n", o.Connections, o.Keys)
	if r.Interrupted {
		fmt.Fprintln(w, "Interrupted: the figures are of what had been answered.")
	}
}

func (r Result) printCounts(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name string, n int64, note string) {
		fmt.Fprintf(t, "%s\t%10d\t%s\n", name, n, strings.TrimSpace(r.share(n)+note))
	}
	fmt.Fprintf(t, "sent\t%10d\t%.1f per second\n", r.Sent, r.Achieved)
	allowed, limited := "200 allowed", "429 limited"
	if r.Options.GRPC != "" {
		allowed, limited = "OK", "OVER_LIMIT"
	}
	row(allowed, r.OK200, "")
	row(limited, r.Limited429, "")
	for _, status := range slices.Sorted(maps.Keys(r.Other)) {
		row(fmt.Sprintf("%d %s", status, http.StatusText(status)), r.Other[status], "")
	}
	row("errors", r.Errors, "")
	row("sent late", r.Late, fmt.Sprintf("  more than %v; %d for want of a free connection", late, r.Queued))
	if r.Interrupted {
		fmt.Fprintf(t, "unanswered\t%10d\tdue when it was interrupted\n", r.Unanswered)
	}
	_ = t.Flush() // into a buffer
	if r.FirstError != "" {
		fmt.Fprintf(w, "first error: %s\n", r.FirstError)
	}
}

// share returns n as a part of all requests, or nothing if there were none.
func (r Result) share(n int64) string {
	if r.Sent == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f %%", 100*float64(n)/float64(r.Sent))
}

func (r Result) printTimes(w io.Writer) {
	if r.Sent == 0 {
		return
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "ms\tlatency, since due\tservice, since sent\t")
	l, s := r.Latency, r.Service
	for _, row := range []struct {
		name             string
		latency, service time.Duration
	}{
		{"p50", l.P50, s.P50}, {"p75", l.P75, s.P75}, {"p90", l.P90, s.P90}, {"p99", l.P99, s.P99},
		{"p99.9", l.P999, s.P999}, {"p99.99", l.P9999, s.P9999}, {"max", l.Max, s.Max}, {"mean", l.Mean, s.Mean},
	} {
		ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
		fmt.Fprintf(t, "%s\t%.3f\t%.3f\t\n", row.name, ms(row.latency), ms(row.service))
	}
	_ = t.Flush() // into a buffer
	if r.Errors > 0 {
		fmt.Fprintf(w, "\nEach error counts as %v at least.\n", r.Options.Timeout)
	}
}
