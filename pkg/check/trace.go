package check

import "github.com/offpath-io/offpath/pkg/check/internal/reporter"

// Tracing is told of a report that is about to be sent for the first time, of so many keys and to
// this shard. If the report is to be traced it returns the W3C traceparent that goes with it, of at
// most events.MaxTrace bytes, and a function that is told what becomes of it; else "" and nil. Both
// are called one at a time, with a lock held: they must be quick, and must not call the checker. Of
// a report that is not answered when the checker stops nothing more is told.
type Tracing func(shard uint32, sequence uint64, keys int) (traceparent string, follow func(TraceEvent))

// TraceEvent is what has become of a report.
type TraceEvent uint8

// The events of a report's life, of which the last one is TraceMerged or TraceGivenUp.
const (
	// TraceRepeated: it was sent again.
	TraceRepeated = TraceEvent(reporter.Repeated)
	// TraceRefused: an aggregator has refused it.
	TraceRefused = TraceEvent(reporter.Refused)
	// TraceAnswered: its answer has come, and is taken in now.
	TraceAnswered = TraceEvent(reporter.Answered)
	// TraceMerged: that has been done.
	TraceMerged = TraceEvent(reporter.Merged)
	// TraceGivenUp: its hits are lost.
	TraceGivenUp = TraceEvent(reporter.GivenUp)
)
