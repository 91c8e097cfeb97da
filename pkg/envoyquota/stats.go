package envoyquota

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Stats is a snapshot of a Server.
type Stats struct {
	// Streams is the number of connected Envoys, Buckets that of all their buckets.
	Streams, Buckets int
	// Opened counts streams; Refused those for which there was no room; Failed those that were
	// ended because a message was invalid, or none came or was received in time.
	Opened, Refused, Failed int64
	// Allowed and Denied are the reported requests that Envoys have decided themselves. Allowed
	// ones are hits; denied ones are in no other count.
	Allowed, Denied int64
	// TurnedAway counts reports of buckets without an assignment: there was no room for them, or
	// they exceed a bound.
	TurnedAway int64
}

// Stats returns a snapshot. It takes time in proportion to the number of streams.
func (s *Server) Stats() Stats {
	d := s.distributor
	d.mu.Lock()
	defer d.mu.Unlock()
	stats := d.stats
	stats.Streams = len(d.clients)
	for c := range d.clients {
		stats.Buckets += len(c.buckets)
	}
	return stats
}

// countEnd counts a stream that has failed.
func (d *distributor) countEnd(ctx context.Context, err error) {
	if err == nil || ctx.Err() != nil || status.Code(err) == codes.Unavailable {
		return // ended by the Envoy, or the server stops
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stats.Failed++
}
