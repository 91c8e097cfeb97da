package check

import "github.com/offpath-io/offpath/pkg/check/internal/reporter"

// Tracing is called with a report that is about to be sent for the first time: its shard, its
// sequence and its number of keys. It returns a W3C traceparent for the report, of at most
// events.MaxTrace bytes, and a function that is called with its events; "" and nil if there is none.
// Both are called one at a time, with a lock held: they must be quick, and must not call the
// checker. If a report is not answered when the checker stops, there are no more events.
type Tracing func(shard uint32, sequence uint64, keys int) (traceparent string, follow func(TraceEvent))

// TraceEvent is an event in the life of a report.
type TraceEvent uint8

// The events of a report's life, of which the last one is TraceMerged or TraceGivenUp.
const (
	// TraceRepeated: it was sent again.
	TraceRepeated = TraceEvent(reporter.Repeated)
	// TraceRefused: an aggregator has refused it.
	TraceRefused = TraceEvent(reporter.Refused)
	// TraceAnswered: its answer has come, and is processed now.
	TraceAnswered = TraceEvent(reporter.Answered)
	// TraceMerged: its answer has been processed.
	TraceMerged = TraceEvent(reporter.Merged)
	// TraceGivenUp: its hits are lost.
	TraceGivenUp = TraceEvent(reporter.GivenUp)
)
