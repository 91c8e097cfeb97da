package envoyquota

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Stats is a snapshot of a Server.
type Stats struct {
	// Streams are the Envoys that are connected now, Buckets what they have assignments for, together.
	Streams, Buckets int
	// Opened streams so far; Refused ones, for which there was no room; Failed ones, which were ended because a message made no sense, or none
	// came or was taken in time.
	Opened, Refused, Failed int64
	// Allowed and Denied are requests that Envoys have decided by themselves, as they have reported. Allowed ones are hits; denied
	// ones are in no other count.
	Allowed, Denied int64
	// TurnedAway are reports of a bucket that gets no assignment, because there is no room for it or it is not within bounds.
	TurnedAway int64
}

// Stats returns a snapshot. It is safe for concurrent use, and takes time with the number of streams only.
func (s *Server) Stats() Stats {
	d := s.desk
	d.mu.Lock()
	defer d.mu.Unlock()
	stats := d.stats
	stats.Streams = len(d.clients)
	for c := range d.clients {
		stats.Buckets += len(c.buckets)
	}
	return stats
}

// noteEnd takes in why a stream has ended.
func (d *desk) noteEnd(ctx context.Context, err error) {
	if err == nil || ctx.Err() != nil || status.Code(err) == codes.Unavailable {
		return // by the Envoy, or because the server stops
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stats.Failed++
}
