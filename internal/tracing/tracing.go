// Package tracing shows the way of reports as OpenTelemetry traces: from the checker that makes one, through the aggregator and
// the store, back to the checker that takes its answer in.
//
//	checker     report ──────────────────────────────────────── refresh
//	aggregator         └ aggregate: gather, fold ───────┘
//	store                        └ apply ─┘
//
// A checker draws by chance which of its reports are traced; an aggregator follows those that come with a traceparent. Spans name
// shards, numbers and sizes, and no keys. They are sent in the background; what cannot be sent is dropped, and nobody waits for it.
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

// Options make a Tracer. Endpoint and Service are needed.
type Options struct {
	// Endpoint is where spans go, by OTLP over HTTP: see ReadEndpoint.
	Endpoint string
	// Service, Instance and Version name the process.
	Service, Instance, Version string
	// Sample is the part of reports that a checker traces, from 0 to 1.
	Sample float64
	// Log takes what an operator should know; nil: nothing is logged.
	Log *slog.Logger
}

// Tracer sends spans. Its methods are safe for concurrent use.
type Tracer struct {
	sample   float64
	provider *sdk.TracerProvider
	tracer   trace.Tracer
}

const (
	// tracesPath is where a collector takes spans, if the endpoint says nothing else.
	tracesPath = "/v1/traces"
	// stopTimeout is how long the last spans may take.
	stopTimeout = 2 * time.Second
	scope       = "github.com/offpath-io/offpath"
)

// ReadEndpoint takes the URL of a collector, such as http://127.0.0.1:4318, with its path if that is another than /v1/traces. Its
// errors show no password.
func ReadEndpoint(text string) (string, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return "", errors.New("not a URL (want one such as http://127.0.0.1:4318)")
	case u.Scheme != "http" && u.Scheme != "https":
		return "", fmt.Errorf("unknown scheme %q (want a URL such as http://127.0.0.1:4318)", u.Scheme)
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
	hear(o.Log)
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(o.Endpoint))
	if err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	provider := sdk.NewTracerProvider(
		sdk.WithBatcher(&watched{SpanExporter: exporter, log: o.Log}, sdk.WithBatchTimeout(time.Second)),
		sdk.WithSampler(sdk.ParentBased(sdk.AlwaysSample())), // what is not drawn has no span at all
		sdk.WithResource(resource.NewSchemaless(
			attribute.String("service.name", o.Service), attribute.String("service.instance.id", o.Instance),
			attribute.String("service.version", o.Version))),
	)
	return &Tracer{sample: o.Sample, provider: provider, tracer: provider.Tracer(scope)}, nil
}

// Run sends spans until ctx is done, and then what is left, for 2 s at most. It returns nil.
func (t *Tracer) Run(ctx context.Context) error {
	<-ctx.Done()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	_ = t.provider.Shutdown(last) // what is lost has been logged
	return nil
}

// watched logs changes only, and lets a collector that is away be nobody's error: the library would tell the whole process.
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
		w.log.Warn("traces cannot be sent, and are dropped", "error", err)
	case err == nil && w.fails.Swap(false):
		w.log.Info("traces can be sent again")
	}
	return nil
}
