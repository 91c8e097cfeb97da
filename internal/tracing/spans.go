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
	spanReport    = "report"    // at the checker, until its answer has been merged
	spanRefresh   = "refresh"   // merging the answer
	spanAggregate = "aggregate" // at the aggregator, until it is answered
	spanApply     = "apply"     // the store's call for the batch that has the report
)

// traceparent is the name of the field in W3C's format.
const traceparent = "traceparent"

// Report is for check.Options.Trace.
func (t *Tracer) Report(
	shard uint32, sequence uint64, keys int,
) (parent string, follow func(check.TraceEvent)) {
	if rand.Float64() >= t.sample {
		return "", nil
	}
	ctx, span := t.tracer.Start(context.Background(), spanReport, trace.WithNewRoot(),
		trace.WithSpanKind(trace.SpanKindClient), attributes(shard, sequence, keys))
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	s := &spans{tracer: t.tracer, ctx: ctx, span: span}
	return carrier[traceparent], s.checker
}

func attributes(shard uint32, sequence uint64, keys int) trace.SpanStartEventOption {
	return trace.WithAttributes(attribute.Int64("offpath.shard", int64(shard)),
		attribute.Int64("offpath.sequence", int64(sequence)), attribute.Int("offpath.keys", keys))
}

// spans are the span of one report and the one within it.
type spans struct {
	tracer trace.Tracer
	ctx    context.Context
	span   trace.Span
	inner  trace.Span // nil if there is none
}

func (s *spans) begin(name string, o ...trace.SpanStartOption) {
	_, s.inner = s.tracer.Start(s.ctx, name, o...)
}

func (s *spans) end(err error) {
	if s.inner != nil {
		note(s.inner, err)
		s.inner.End()
		s.inner = nil
	}
}

func note(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
}

func (s *spans) checker(e check.TraceEvent) {
	switch e {
	case check.TraceRepeated:
		s.span.AddEvent("repeated")
	case check.TraceRefused:
		s.span.AddEvent("refused")
	case check.TraceAnswered:
		s.begin(spanRefresh)
	case check.TraceMerged:
		s.end(nil)
		s.span.End()
	case check.TraceGivenUp:
		s.span.SetStatus(codes.Error, "given up")
		s.span.End()
	}
}

// Aggregate is for aggregate.Options.Trace.
func (t *Tracer) Aggregate(
	parent string, shard uint32, sequence uint64, keys int,
) (follow func(aggregate.TraceEvent)) {
	carrier := propagation.MapCarrier{traceparent: parent}
	ctx := propagation.TraceContext{}.Extract(context.Background(), carrier)
	if !trace.SpanContextFromContext(ctx).IsSampled() {
		return nil
	}
	ctx, span := t.tracer.Start(ctx, spanAggregate, trace.WithSpanKind(trace.SpanKindServer),
		attributes(shard, sequence, keys))
	return (&spans{tracer: t.tracer, ctx: ctx, span: span}).aggregator
}

func (s *spans) aggregator(e aggregate.TraceEvent) {
	switch e.Kind {
	case aggregate.TraceApply:
		s.begin(spanApply, trace.WithSpanKind(trace.SpanKindClient),
			trace.WithAttributes(attribute.Int("offpath.fold.keys", e.Keys),
				attribute.Int("offpath.fold.reports", e.Reports)))
	case aggregate.TraceApplied:
		s.end(e.Err)
	case aggregate.TraceAnswered:
		note(s.span, e.Err)
		s.span.End()
	case aggregate.TraceDropped:
		s.span.SetStatus(codes.Error, "not answered")
		s.span.End()
	}
}
