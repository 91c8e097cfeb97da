package envoyquota

import (
	"strings"
	"time"
	"unicode/utf8"

	quotapb "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"

	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/window"
)

// Domain is the attribute that the domain of an Envoy's configuration is the value of, unless its buckets have one of that name.
const Domain = "domain"

// Bounds of one bucket.
const (
	maxEntries = 64
	maxName    = 256
	maxValue   = 4096
	maxDomain  = 256
	// maxReported is the most requests that one report may have of a bucket. More is a mistake, and would block its key.
	maxReported = uint64(1e12)
)

// usage is one bucket's part of a report.
type usage struct {
	bucket          map[string]string
	id              *quotapb.BucketId // nil if Envoy cannot be told of it
	name            string            // the bucket, unambiguously
	fits            bool              // it is within bounds
	allowed, denied int64
	elapsed         time.Duration
}

// wrong says what is wrong with a usage, if no Envoy that works would report it. What requests have
// made of a bucket is never wrong: whoever sends one would then end the stream.
func (u *wireUsage) wrong() string {
	if len(u.entries) == 0 {
		return "bucket_id is empty"
	}
	if u.allowed > maxReported || u.denied > maxReported {
		return "more than 10^12 requests in one report"
	}
	if u.timed {
		if err := u.elapsed.CheckValid(); err != nil {
			return "time_elapsed is no duration"
		}
		// Of 0 is what Envoy reports a new bucket with.
		if elapsed := u.elapsed.AsDuration(); elapsed < 0 || elapsed > window.MaxLength {
			return "time_elapsed: want 0 to 366 days"
		}
	}
	return ""
}

// readUsage takes over what was reported of a bucket, with which nothing is wrong.
func readUsage(w *wireUsage) *usage {
	u := &usage{allowed: int64(w.allowed), denied: int64(w.denied)}
	if w.timed {
		u.elapsed = w.elapsed.AsDuration()
	}
	u.readBucket(w.entries)
	return u
}

func (u *usage) readBucket(entries []wireEntry) {
	u.bucket = make(map[string]string, min(len(entries), maxEntries))
	readable := true
	u.fits = len(entries) <= maxEntries
	for _, e := range entries[:min(len(entries), maxEntries)] {
		readable = readable && utf8.Valid(e.name) && utf8.Valid(e.value)
		u.fits = u.fits && len(e.name) <= maxName && len(e.value) <= maxValue
		u.bucket[strings.ToValidUTF8(string(e.name), "\uFFFD")] = strings.ToValidUTF8(string(e.value), "\uFFFD")
	}
	if readable && len(entries) <= maxEntries {
		u.id = &quotapb.BucketId{Bucket: u.bucket}
	}
	if u.fits = u.fits && readable; u.fits {
		u.name = bucketName(u.bucket)
	}
}

// bucketName is a text that no other bucket has.
func bucketName(bucket map[string]string) string {
	attrs := identity.FromMap(bucket)
	parts := make([]string, 0, 2*len(attrs))
	for _, a := range attrs {
		parts = append(parts, a.Name, a.Value)
	}
	var b strings.Builder
	for _, part := range parts {
		writeLength(&b, len(part))
		b.WriteString(part)
	}
	return b.String()
}

func writeLength(b *strings.Builder, n int) {
	for ; n >= 0x80; n >>= 7 {
		b.WriteByte(byte(n) | 0x80)
	}
	b.WriteByte(byte(n))
}

// attributes are what the rules are asked with: the bucket's entries, and the domain. Those that a rule would take a hit's cost from are left
// out: a report is of many hits.
func attributes(domain string, bucket map[string]string, costs map[string]bool) identity.Attributes {
	all := append(identity.FromMap(bucket), identity.Attribute{Name: Domain, Value: domain})
	kept := all[:0]
	for _, a := range all {
		if !costs[a.Name] {
			kept = append(kept, a)
		}
	}
	return kept
}
