package checker

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/offpath-io/offpath/cmd/internal/decisionlog"
	"github.com/offpath-io/offpath/internal/flags"
	"github.com/offpath-io/offpath/internal/tracing"
	"github.com/offpath-io/offpath/internal/version"
)

// trail has the flags for the end of the daemon, its decision log and its traces.
type trail struct {
	stopDelay time.Duration

	logTo     string  // where denials are written, with commas between; noLog for nowhere
	logSample float64 // the part of them
	logBytes  int
	logAge    time.Duration

	traceTo     string // "" for nowhere
	traceSample float64
}

// Values of --decision-log.
const (
	noLog  = "none"
	toLog  = "log"
	toNATS = "nats"
)

func (t *trail) setDefaults() {
	*t = trail{
		logTo: noLog, logSample: 1, traceSample: 0.01,
		logBytes: decisionlog.DefaultBytes, logAge: decisionlog.DefaultAge,
	}
}

const (
	leastSample = 1e-6
	mostBytes   = 1 << 40
	mostAge     = 10 * 366 * 24 * time.Hour
)

func (t *trail) addFlags(s *pflag.FlagSet) {
	flags.Add(s, &t.logTo, "decision-log", "where to log denials, a line of JSON each: `none|log|nats`; "+
		"log is standard error, nats a JetStream stream, log,nats both", readLogTo)
	flags.Add(s, &t.logSample, "decision-log-sample", "random `PART` of the denials to log; 1 for "+
		"all", flags.Float(leastSample, 1))
	flags.Add(s, &t.logBytes, "decision-log-bytes", "bounds the decision log's stream to `N` bytes "+
		"when it is created; the oldest entries go first", flags.Int(1<<20, mostBytes))
	flags.Add(s, &t.logAge, "decision-log-age", "how long the stream keeps entries, a `DURATION`",
		flags.Duration(time.Second, mostAge))
	flags.Add(s, &t.traceTo, "trace", "send OpenTelemetry traces of reports to this `URL`, by OTLP "+
		"over HTTP, such as http://127.0.0.1:4318", tracing.ReadEndpoint)
	flags.Add(s, &t.traceSample, "trace-sample",
		"random `PART` of the reports to trace; 1 for all",
		flags.Float(0, 1))
}

func readLogTo(text string) (string, error) {
	if text == noLog {
		return text, nil
	}
	seen := map[string]bool{}
	for to := range strings.SplitSeq(text, ",") {
		if to != toLog && to != toNATS || seen[to] {
			return "", fmt.Errorf("%q: want none, log, nats, or log,nats", text)
		}
		seen[to] = true
	}
	return text, nil
}

// openDecisionLog returns the log of denials, nil if there is none.
func (p *process) openDecisionLog(name string) *decisionlog.Log {
	if p.logTo == noLog {
		return nil
	}
	var sinks []decisionlog.Sink
	for to := range strings.SplitSeq(p.logTo, ",") {
		if to == toLog {
			sinks = append(sinks, decisionlog.Lines{To: p.stderr})
			continue
		}
		sinks = append(sinks, decisionlog.NewStream(p.conn, decisionlog.StreamOptions{
			Namespace: p.namespace, Checker: name, MaxBytes: int64(p.logBytes), MaxAge: p.logAge,
			OthersMake: p.othersMakeLog(),
		}))
	}
	return decisionlog.New(decisionlog.Options{
		Checker: name, Sample: p.logSample, Hashed: p.keyHash != "", Limit: p.adapters.limit,
		Sinks: sinks, StopTimeout: p.drainTime, Log: p.log,
	})
}

// othersMakeLog reports whether an aggregator has to make the stream that this checker writes to:
// accounts restrict a checker with a name to its own subjects, under which it may make none.
func (c config) othersMakeLog() bool {
	return c.name != "" && strings.Contains(c.logTo, toNATS)
}

// openTracer returns the tracer of reports, nil without --trace.
func openTracer(ctx context.Context, c config, name string, log *slog.Logger) (*tracing.Tracer, error) {
	if c.traceTo == "" {
		return nil, nil
	}
	return tracing.Open(ctx, tracing.Options{
		Endpoint: c.traceTo, Service: "offpath-checker", Instance: name,
		Version: version.Get().Version, Sample: c.traceSample, Log: log,
	})
}

// logMetrics are the metrics of the decision log.
type logMetrics struct{ log *decisionlog.Log }

var (
	loggedDesc = describe("decision_log_denials_total",
		"Denials by what became of them in the decision log: "+
			"written, dropped for lack of room, or not drawn.", "to", "outcome")
	logWaitsDesc = describe("decision_log_denials_waiting",
		"Denials that wait to be written to the decision log.", "to")
)

// Describe sends both.
func (m logMetrics) Describe(descs chan<- *prometheus.Desc) {
	descs <- loggedDesc
	descs <- logWaitsDesc
}

// Collect sends one snapshot.
func (m logMetrics) Collect(out chan<- prometheus.Metric) {
	c := collector{out}
	for _, s := range m.log.Stats() {
		c.countOf(loggedDesc, s.Written, s.Sink, "written")
		c.countOf(loggedDesc, s.Dropped, s.Sink, "dropped")
		c.countOf(loggedDesc, s.Unsampled, s.Sink, "unsampled")
		c.gaugeOf(logWaitsDesc, float64(s.Waiting), s.Sink)
	}
}
