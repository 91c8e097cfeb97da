// Package tracing traces reports with OpenTelemetry: from the checker that makes one, through the
// aggregator and the store, back to the checker that merges the answer.
//
//	checker     report ──────────────────────────────────────── refresh
//	aggregator         └ aggregate: gather, fold ───────┘
//	store                        └ apply ─┘
//
// A checker traces a random sample of its reports, and an aggregator those that have a traceparent.
// Spans have shards, numbers and sizes, and no keys. They are sent in the background; if that
// fails, they are dropped.
package tracing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Options of a Tracer. Endpoint and Service are needed.
type Options struct {
	// Endpoint receives the spans, by OTLP over HTTP: see ReadEndpoint.
	Endpoint string
	// Service, Instance and Version identify the process.
	Service, Instance, Version string
	// Sample is the fraction of its reports that a checker traces, from 0 to 1.
	Sample float64
	// Log is for failures of sending. If it is nil, nothing is logged.
	Log *slog.Logger
}

// Tracer sends spans. Its methods are safe for concurrent use.
type Tracer struct {
	sample   float64
	provider *sdk.TracerProvider
	tracer   trace.Tracer
}

const (
	// tracesPath is the path of an endpoint without one.
	tracesPath = "/v1/traces"
	// stopTimeout bounds sending the last spans.
	stopTimeout = 2 * time.Second
	scope       = "github.com/offpath-io/offpath"
)

// ReadEndpoint reads the URL of a collector, such as http://127.0.0.1:4318, with its path unless
// that is /v1/traces. Its errors do not quote passwords.
func ReadEndpoint(text string) (string, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return "", errors.New("not a URL (want one such as http://127.0.0.1:4318)")
	case u.Scheme != "http" && u.Scheme != "https":
		return "", fmt.Errorf("unknown scheme %q (want a URL such as http://127.0.0.1:4318)",
			u.Scheme)
	case u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return "", errors.New("want a host, a port and a path only, such as http://127.0.0.1:4318")
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = tracesPath
	}
	return u.String(), nil
}

// Open returns a tracer. It does not connect before it has spans to send.
func Open(ctx context.Context, o Options) (*Tracer, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	logErrors(o.Log)
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(o.Endpoint))
	if err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	provider := sdk.NewTracerProvider(
		sdk.WithBatcher(
			&watched{SpanExporter: exporter, log: o.Log}, sdk.WithBatchTimeout(time.Second)),
		sdk.WithSampler(sdk.ParentBased(sdk.AlwaysSample())), // other reports have no span at all
		sdk.WithResource(resource.NewSchemaless(
			attribute.String("service.name", o.Service),
			attribute.String("service.instance.id", o.Instance),
			attribute.String("service.version", o.Version))),
	)
	return &Tracer{sample: o.Sample, provider: provider, tracer: provider.Tracer(scope)}, nil
}

// Run sends spans until ctx is done, and then for at most 2 s the remaining ones. It returns nil.
func (t *Tracer) Run(ctx context.Context) error {
	<-ctx.Done()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	_ = t.provider.Shutdown(last) // its error has been logged
	return nil
}

// watched logs when sending begins to fail and when it works again. It returns no error: the
// library would report each one globally.
type watched struct {
	sdk.SpanExporter
	log   *slog.Logger
	fails atomic.Bool
}

// ExportSpans sends spans, or drops them.
func (w *watched) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := w.SpanExporter.ExportSpans(ctx, spans)
	switch {
	case err != nil && !w.fails.Swap(true):
		w.log.Warn("traces cannot be sent and are dropped", "error", err)
	case err == nil && w.fails.Swap(false):
		w.log.Info("traces can be sent again")
	}
	return nil
}
