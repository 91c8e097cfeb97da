// Package envoyquota is Envoy's rate limit quota service (RLQS) v3, StreamRateLimitQuotas, in front
// of a checker.
//
// With it, Envoy decides itself. For each *bucket*, a map of strings that its configuration makes
// of a request, it reports how many requests it has allowed and denied, and gets an *assignment*: a
// token bucket that is valid until the next one. Here, a bucket's entries and the Envoy's domain
// are attributes, and the rules that match them its limits. Allowed requests become hits; denied
// ones are demand. An assignment is this Envoy's share of the limits: package internal/shares
// divides them among the Envoys of this daemon. Among daemons they are divided in proportion to
// their counts.
//
// The files, in the order in which a report passes them: server.go (the stream), wire.go and
// usage.go (reading and checking it), distributor.go and bucket.go (what was used, and the limits),
// pool.go (what there is to divide), assignment.go and actions.go (the assignments, and when they
// are sent).
package envoyquota

import (
	"time"

	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/rules"
)

// Checker counts, and knows how things stand. *check.Checker is one.
type Checker interface {
	// Rules are those in force.
	Rules() *rules.Set
	// Do is asked in the modes Record and Standing.
	Do(r check.Request) check.Result
	Stats() check.Stats
}

// Options of a Server. The zero value works with Envoy.
type Options struct {
	// ReportEvery is the interval of Envoys' reports. Default 5 s, which is Envoy's, whatever its
	// configuration says.
	ReportEvery time.Duration
	// TTL is how long an assignment is valid without renewal, for example while this server cannot
	// be reached; after that, Envoy uses its expired_assignment_behavior. Assignments are renewed
	// after half of it. When a stream breaks, the assignments of its Envoy stay reserved for that
	// time; a stream from the same host takes them over. Whole seconds, at least 2; default 20 s.
	TTL time.Duration
	// IdleAfter is how long a bucket without requests is kept; then Envoy is told to abandon it.
	// Default 60 s.
	IdleAfter time.Duration
	// SilenceAfter is how long a stream may be without a complete message before it is ended, and
	// SendTimeout how long an Envoy may take to receive one. Default 60 s and 10 s.
	SilenceAfter, SendTimeout time.Duration
	// MaxStreams bounds the streams: more are refused with ResourceExhausted. MaxBuckets bounds the
	// buckets of each, which take about 1.2 KB besides their text. The requests of further buckets
	// are counted, but these get no assignment, so that Envoy uses its no_assignment_behavior.
	// (Ending the stream would take all assignments away whenever a client makes up many users.)
	// Default 1,000 and 16,384.
	MaxStreams, MaxBuckets int
	// Now is the clock, which is the checker's too (check.Options.Now). Default time.Now.
	Now func() time.Time
}

func (o Options) withDefaults() Options {
	for _, d := range []struct {
		of *time.Duration
		to time.Duration
	}{
		{&o.ReportEvery, 5 * time.Second},
		{&o.TTL, 20 * time.Second},
		{&o.IdleAfter, time.Minute},
		{&o.SilenceAfter, time.Minute},
		{&o.SendTimeout, 10 * time.Second},
	} {
		if *d.of <= 0 {
			*d.of = d.to
		}
	}
	// Envoy drops fractions, and 0 expires at once.
	o.TTL = max(o.TTL.Truncate(time.Second), 2*time.Second)
	o.ReportEvery = max(o.ReportEvery, time.Second)
	if o.MaxStreams <= 0 {
		o.MaxStreams = 1000
	}
	if o.MaxBuckets <= 0 {
		o.MaxBuckets = 16384
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}
