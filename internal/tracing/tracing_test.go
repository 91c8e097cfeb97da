package tracing

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/membus"
	"github.com/offpath-io/offpath/internal/testing/rulestest"
	"github.com/offpath-io/offpath/internal/testing/tlsfilestest"
	"github.com/offpath-io/offpath/internal/testing/tracingtest"
	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/memstore"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/events"
)

var must = daemontest.Must

func open(t *testing.T, r *tracingtest.Receiver, service string, sample float64) *Tracer {
	t.Helper()
	endpoint, err := ReadEndpoint(r.URL)
	must(t, err)
	tracer, err := Open(t.Context(), Options{Endpoint: endpoint, Service: service, Sample: sample})
	must(t, err)
	return tracer
}

// flush sends all spans, however long that takes.
func flush(t *testing.T, tracers ...*Tracer) {
	t.Helper()
	for _, tracer := range tracers {
		must(t, tracer.provider.ForceFlush(t.Context()))
	}
	stop(t, tracers...)
}

// stop ends tracers, as a daemon does.
func stop(t *testing.T, tracers ...*Tracer) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tracer := range tracers {
		must(t, tracer.Run(ctx))
	}
}

// whole is one report's way, in the order of Traces.
var whole = []string{
	" > checker/report", "aggregate > aggregator/apply", "report > aggregator/aggregate", "report > checker/refresh",
}

// TestTroubleShows: what goes wrong on the way is in the spans.
func TestTroubleShows(t *testing.T) {
	r := tracingtest.Start(t)
	checker, aggregator := open(t, r, "checker", 1), open(t, r, "aggregator", 0)
	parent, report := checker.Report(0, 1, 1)
	apply := aggregator.Aggregate(parent, 0, 1, 1)
	apply(aggregate.TraceEvent{Kind: aggregate.TraceApply})
	apply(aggregate.TraceEvent{Kind: aggregate.TraceApplied, Err: errors.New("no store")})
	apply(aggregate.TraceEvent{Kind: aggregate.TraceDropped})
	report(check.TraceRepeated)
	report(check.TraceRefused)
	report(check.TraceGivenUp)
	flush(t, checker, aggregator)
	got := map[string]string{}
	for _, s := range r.Spans() {
		text := s.GetStatus().GetMessage()
		for _, e := range s.Events {
			text += " " + e.Name
		}
		got[s.Name] = text
	}
	if want := "map[aggregate:not answered apply:no store report:given up repeated refused]"; fmt.Sprint(got) != want {
		t.Errorf("got  %v\nwant %s", got, want)
	}
}

// TestSample: a checker traces its part, and an aggregator nothing but what comes with a parent
// that is sampled.
func TestSample(t *testing.T) {
	r := tracingtest.Start(t)
	never, some := open(t, r, "checker", 0), open(t, r, "checker", 0.5)
	traced := 0
	for range 1000 {
		if parent, follow := never.Report(0, 1, 1); parent != "" || follow != nil {
			t.Fatal("it traces what nobody has asked for")
		}
		if parent, _ := some.Report(0, 1, 1); parent != "" {
			traced++
		}
	}
	if traced < 300 || traced > 700 { // 12 standard deviations
		t.Errorf("%d of 1000 traced, want about half", traced)
	}
	for _, parent := range []string{"", "nonsense", "00-00000000000000000000000000000000-0000000000000000-01",
		"00-0123456789abcdef0123456789abcdef-0123456789abcdef-00", strings.Repeat("x", 10_000)} {
		if never.Aggregate(parent, 0, 1, 1) != nil {
			t.Errorf("it follows %.60q", parent)
		}
	}
}

// TestNobodyWaits for a collector that is away or hangs.
func TestNobodyWaits(t *testing.T) {
	t.Parallel()
	hangs := make(chan struct{})
	defer close(hangs)
	slow := &tracingtest.Receiver{Server: httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hangs }))}
	defer slow.CloseClientConnections()
	tracer := open(t, slow, "checker", 1)
	for i := range 20_000 {
		_, follow := tracer.Report(0, uint64(i+1), 1)
		follow(check.TraceAnswered)
		follow(check.TraceMerged)
	}
	stop(t, tracer)
}

func TestReadEndpoint(t *testing.T) {
	for text, want := range map[string]string{
		"http://127.0.0.1:4318":        "http://127.0.0.1:4318/v1/traces",
		"https://otel.example/":        "https://otel.example/v1/traces",
		"http://otel.example/a/traces": "http://otel.example/a/traces",
		"":                             "", "127.0.0.1:4318": "", "grpc://a:1": "", "http://": "", "http://u:secret@a": "", "http://a?token=secret": "", "http://a:secret": "",
	} {
		got, err := ReadEndpoint(text)
		if got != want || (err == nil) != (want != "") || err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}

// TestFleet has a checker and an aggregator at work: every report that is answered is a whole
// trace. They work in virtual time, in which no answer is so late that a report is sent again.
func TestFleet(t *testing.T) {
	t.Parallel()
	r := tracingtest.Start(t)
	atChecker, atAggregator := open(t, r, "checker", 1), open(t, r, "aggregator", 0)
	answered := int64(0)
	synctest.Test(t, func(t *testing.T) { answered = work(t, atChecker.Report, atAggregator.Aggregate) })
	flush(t, atChecker, atAggregator)
	traces := r.Traces()
	if int64(len(traces)) != answered {
		t.Errorf("%d traces, %d reports", len(traces), answered)
	}
	for id, got := range traces {
		if !slices.Equal(got, whole) {
			t.Errorf("trace %s: %q, want %q", id, got, whole)
		}
	}
	for _, s := range r.Spans() {
		if strings.Contains(s.String(), "kristie") {
			t.Errorf("a span tells a key: %v", s)
		}
	}
}

// work has a fleet work in a bubble of virtual time, and returns how many reports were answered.
func work(
	t *testing.T, atChecker func(uint32, uint64, int) (string, func(check.TraceEvent)),
	atAggregator func(string, uint32, uint64, int) func(aggregate.TraceEvent),
) (answered int64) {
	t.Helper()
	bus := membus.New(membus.Options{})
	worker, err := aggregate.New(aggregate.Options{Store: memstore.New(), Bus: bus.Worker(), Trace: atAggregator})
	must(t, err)
	set := rulestest.Parse(t, "rules: [{name: r, key: [user], limit: 1000000/day}]")
	checker, err := check.New(check.Options{Rules: set, Link: bus.Checker("c1"), Trace: atChecker, MaxIdleKeys: -1})
	must(t, err)
	daemontest.Background(t, bus.Run)
	daemontest.Background(t, worker.Run)
	stop := daemontest.Background(t, checker.Run)
	limiter, _ := checker.Limiter("r")
	for begun := time.Now(); checker.Stats().ReportsAnswered < 2; {
		if time.Since(begun) > time.Minute {
			t.Fatal("no report is answered")
		}
		limiter.Check("kristie", 1)
		time.Sleep(time.Millisecond) // the bubble's time
	}
	stop()
	return checker.Stats().ReportsAnswered
}

// TestLongTraceIsIgnored: a report with one is counted all the same.
func TestLongTraceIsIgnored(t *testing.T) {
	data, err := events.Append(nil, &events.Report{Epoch: 1, Sequence: 1, Shards: 1, Trace: strings.Repeat("x", events.MaxTrace+1)})
	must(t, err)
	if m, err := events.DecodeReport(data); err != nil || m.Trace != "" {
		t.Errorf("%v, %v", m, err)
	}
}

// TestTellsNoToken: what the library cannot read of the environment is said, and not what it holds.
func TestTellsNoToken(t *testing.T) {
	for _, headers := range []string{"Authorization: Bearer CANARY", "Authorization: CANARY=x", "authorization=CANARY%zzCANARY"} {
		t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", headers)
		var log bytes.Buffer
		_, err := Open(t.Context(), Options{
			Endpoint: "http://127.0.0.1:1/v1/traces", Service: "x", Log: slog.New(slog.NewTextHandler(&log, nil)),
		})
		must(t, err)
		if !strings.Contains(log.String(), "is ignored") || strings.Contains(log.String(), "CANARY") {
			t.Errorf("%s: log %q", headers, &log)
		}
	}
}

// TestOverTLS: the exporter's own variables say which authority vouches for the collector, and what
// to show it.
func TestOverTLS(t *testing.T) {
	ca := tlsfilestest.NewAuthority(t, "authority")
	f, came := ca.Dir("checker"), make(chan string, 1)
	collector := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case came <- r.Header.Get("Authorization"):
		default: // sent again, since the first answer was late
		}
	}))
	collector.TLS = &tls.Config{
		Certificates: []tls.Certificate{ca.Pair("collector")}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ca.Pool(),
	}
	collector.StartTLS()
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", f.CA)
	t.Setenv("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", f.Cert)
	t.Setenv("OTEL_EXPORTER_OTLP_CLIENT_KEY", f.Key)
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20token")
	tracer, err := Open(t.Context(), Options{Endpoint: collector.URL + tracesPath, Service: "x"})
	must(t, err)
	_, span := tracer.tracer.Start(t.Context(), "x")
	span.End()
	flush(t, tracer)
	if token := daemontest.Next(t, "something comes", came); token != "Bearer token" {
		t.Errorf("it comes with %q", token)
	}
}
