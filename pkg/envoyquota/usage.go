package envoyquota

import (
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	quotapb "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"

	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/window"
)

// Domain is the attribute of the domain of an Envoy's configuration, unless its buckets have an
// entry of that name.
const Domain = "domain"

// Bounds of one bucket.
const (
	maxEntries = 64
	maxName    = 256
	maxValue   = 4096
	maxDomain  = 256
	// maxReported bounds the requests of a bucket in one report. More are a mistake, and would
	// block the key.
	maxReported = uint64(1e12)
)

// usage is one bucket's part of a report.
type usage struct {
	bucket          map[string]string
	id              *quotapb.BucketId // nil if no message can have it
	name            string            // unambiguous
	fits            bool              // it is within bounds
	allowed, denied int64
	elapsed         time.Duration
}

// wrong returns what is wrong with a usage that no working Envoy would report. A bucket's entries
// are never wrong: they come from requests, so any client could end the stream otherwise.
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
		// Envoy reports a new bucket with 0.
		if elapsed := u.elapsed.AsDuration(); elapsed < 0 || elapsed > window.MaxLength {
			return "time_elapsed: want 0 to 366 days"
		}
	}
	return ""
}

// readUsage copies a usage with which nothing is wrong.
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
		name := strings.ToValidUTF8(string(e.name), "\uFFFD")
		u.bucket[name] = strings.ToValidUTF8(string(e.value), "\uFFFD")
	}
	if readable && len(entries) <= maxEntries {
		u.id = &quotapb.BucketId{Bucket: u.bucket}
	}
	if u.fits = u.fits && readable; u.fits {
		u.name = bucketName(u.bucket)
	}
}

// bucketName returns a text that no other bucket has: each has an even number of values.
func bucketName(bucket map[string]string) string {
	values := make([]string, 0, 2*len(bucket))
	for _, a := range identity.FromMap(bucket) {
		values = append(values, a.Name, a.Value)
	}
	return identity.JoinKey(values...)
}

// attributes are the domain and the bucket's entries in the order of their names, as ordered rules
// want them, without those that are a rule's cost attribute: a report is about many hits.
func attributes(
	domain string, bucket map[string]string, costs map[string]bool,
) identity.Attributes {
	if own, ok := bucket[Domain]; ok {
		domain = own
	}
	all := identity.Attributes{{Name: Domain, Value: domain}}
	for _, a := range identity.FromMap(bucket) {
		if a.Name != Domain {
			all = append(all, a)
		}
	}
	return slices.DeleteFunc(all, func(a identity.Attribute) bool { return costs[a.Name] })
}
