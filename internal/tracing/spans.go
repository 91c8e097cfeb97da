package tracing

import (
	"context"
	"math/rand/v2"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/check"
)

// The names of spans.
const (
	spanReport    = "report"    // at the checker, from when it is made until its answer has been taken in
	spanRefresh   = "refresh"   // the latter alone
	spanAggregate = "aggregate" // at the aggregator, from when it comes until it is answered
	spanApply     = "apply"     // the store, for the fold that the report is in
)

// traceparent is the name of the field that W3C's format has for it.
const traceparent = "traceparent"

// Report is for check.Options.Trace.
func (t *Tracer) Report(shard uint32, sequence uint64, keys int) (parent string, follow func(check.TraceEvent)) {
	if rand.Float64() >= t.sample {
		return "", nil
	}
	ctx, span := t.tracer.Start(context.Background(), spanReport, trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindClient), of(shard, sequence, keys))
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	f := &following{tracer: t.tracer, ctx: ctx, span: span}
	return carrier[traceparent], f.checker
}

func of(shard uint32, sequence uint64, keys int) trace.SpanStartEventOption {
	return trace.WithAttributes(attribute.Int64("offpath.shard", int64(shard)), attribute.Int64("offpath.sequence", int64(sequence)),
		attribute.Int("offpath.keys", keys))
}

// following is one report's span, and that within it.
type following struct {
	tracer trace.Tracer
	ctx    context.Context
	span   trace.Span
	inner  trace.Span // nil if there is none
}

func (f *following) begin(name string, o ...trace.SpanStartOption) {
	_, f.inner = f.tracer.Start(f.ctx, name, o...)
}

func (f *following) end(err error) {
	if f.inner != nil {
		note(f.inner, err)
		f.inner.End()
		f.inner = nil
	}
}

func note(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
}

func (f *following) checker(e check.TraceEvent) {
	switch e {
	case check.TraceRepeated:
		f.span.AddEvent("repeated")
	case check.TraceRefused:
		f.span.AddEvent("refused")
	case check.TraceAnswered:
		f.begin(spanRefresh)
	case check.TraceMerged:
		f.end(nil)
		f.span.End()
	case check.TraceGivenUp:
		f.span.SetStatus(codes.Error, "given up")
		f.span.End()
	}
}

// Aggregate is for aggregate.Options.Trace.
func (t *Tracer) Aggregate(parent string, shard uint32, sequence uint64, keys int) (follow func(aggregate.TraceEvent)) {
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{traceparent: parent})
	if !trace.SpanContextFromContext(ctx).IsSampled() {
		return nil
	}
	ctx, span := t.tracer.Start(ctx, spanAggregate, trace.WithSpanKind(trace.SpanKindServer), of(shard, sequence, keys))
	return (&following{tracer: t.tracer, ctx: ctx, span: span}).aggregator
}

func (f *following) aggregator(e aggregate.TraceEvent) {
	switch e.Kind {
	case aggregate.TraceApply:
		f.begin(spanApply, trace.WithSpanKind(trace.SpanKindClient),
			trace.WithAttributes(attribute.Int("offpath.fold.keys", e.Keys), attribute.Int("offpath.fold.reports", e.Reports)))
	case aggregate.TraceApplied:
		f.end(e.Err)
	case aggregate.TraceAnswered:
		note(f.span, e.Err)
		f.span.End()
	case aggregate.TraceDropped:
		f.span.SetStatus(codes.Error, "not answered")
		f.span.End()
	}
}
