// Package envoyquota is Envoy's rate limit quota service (RLQS) v3, StreamRateLimitQuotas, in front of a checker.
//
// With it, Envoy decides by itself: it reports how many requests it has let through and turned away per *bucket*, a map of
// strings that its configuration makes of a request, and is sent an *assignment*, a token bucket of its own, to go by until the
// next one. Here a bucket's entries and the Envoy's domain are attributes, and the rules that match them its limits. Requests let through
// become hits; those turned away are demand. An assignment is this Envoy's share of the limits: see package internal/shares for how they are
// divided among the Envoys of this daemon. Among daemons they are divided by what the counts tell.
//
// The pieces, in the order in which a report meets them: server.go (the stream), usage.go (is it one that can be read), desk.go and
// bucket.go (what was spent, and what may be), pool.go (what there is to divide), tell.go (when an Envoy is told), assignment.go (what).
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

// Options of a Server. The zero value is good for Envoy.
type Options struct {
	// ReportEvery is how often Envoys report. Default 5 s, which is what Envoy does whatever its configuration says.
	ReportEvery time.Duration
	// TTL is how long an assignment holds if it is not renewed, as while this server cannot be reached; then Envoy goes by its
	// expired_assignment_behavior. What an Envoy was assigned whose stream breaks is not given to others before that, but to one from the same host, which is taken to be it. It is renewed when half of it is over. Whole
	// seconds, at least 2; default 20 s.
	TTL time.Duration
	// IdleAfter is how long a bucket lives without a request; then Envoy is told to forget it. Default 60 s.
	IdleAfter time.Duration
	// SilenceAfter is how long a stream may go without a whole message before it is ended, and SendTimeout how long an Envoy may take to
	// receive one. Default 60 s and 10 s.
	SilenceAfter, SendTimeout time.Duration
	// MaxStreams bounds streams: beyond it they are refused with ResourceExhausted. MaxBuckets bounds the buckets of each, which take about
	// 1.2 KB each beside their text: the requests of more are counted, but those buckets get no assignment, so that Envoy goes by its
	// no_assignment_behavior. (To end the stream instead would leave all others without, whenever somebody makes up many users.)
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
	o.TTL = max(o.TTL.Truncate(time.Second), 2*time.Second) // Envoy drops fractions, and takes 0 as over at once
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
