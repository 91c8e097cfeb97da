package aggregate

// Tracing is told of a report that has come with a W3C traceparent, and returns a function that is told what becomes of it, or
// nil. Both may be called from several goroutines at once, but for one report one call comes after the other. They must be quick.
// Of a report whose repeat has taken its place nothing more is told.
type Tracing func(traceparent string, shard uint32, sequence uint64, keys int) (follow func(TraceEvent))

// TraceEvent is what has become of a report.
type TraceEvent struct {
	Kind TraceKind
	// Keys and Reports are what the fold holds, of TraceApply.
	Keys, Reports int
	// Err is what went wrong, of TraceApplied and TraceAnswered; nil if nothing has.
	Err error
}

// TraceKind says which event it is.
type TraceKind uint8

// The events of a report's life, of which the last one is TraceAnswered or TraceDropped.
const (
	// TraceApply: a fold with the report goes to the store now. TraceApplied: the store has answered. Both may come again, if
	// others of the fold had been counted before.
	TraceApply TraceKind = iota + 1
	TraceApplied
	// TraceAnswered: the checker has been told the totals.
	TraceAnswered
	// TraceDropped: it was not; it will ask again.
	TraceDropped
)

// trace asks whether anybody follows a report.
func (w *Worker) trace(r *request) {
	if m := r.report; m.Trace != "" && w.o.Trace != nil {
		r.follow = w.o.Trace(m.Trace, m.Shard, m.Sequence, m.Hits.Keys())
	}
}

// tell tells whoever follows the report.
func (r *request) tell(e TraceEvent) {
	if r.follow != nil {
		r.follow(e)
	}
}

func tellAll(requests []*request, e TraceEvent) {
	for _, r := range requests {
		r.tell(e)
	}
}
