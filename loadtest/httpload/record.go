package httpload

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

const (
	longest = time.Hour // longer times count as this
	digits  = 3         // decimal digits that are kept of a time
)

// record is what one worker has measured. Histograms that keep only what occurs are slower, but a
// tiny part of what a request takes, and thousands of workers can have their own.
type record struct {
	latency, service *hdrhistogram.PackedHistogram
	answers          map[int]int64 // by status
	errors           int64
	late, queued     int64 // late, and the part of these for which no worker was free
}

func newRecord() *record {
	return &record{
		latency: hdrhistogram.NewPacked(1, int64(longest), digits),
		service: hdrhistogram.NewPacked(1, int64(longest), digits),
		answers: make(map[int]int64),
	}
}

func (r *record) add(o outcome) {
	put(r.latency, o.lag+o.service)
	put(r.service, o.service)
	if o.status == 0 {
		r.errors++
	} else {
		r.answers[o.status]++
	}
	if o.lag > late {
		r.late++
		if o.queued {
			r.queued++
		}
	}
}

func put(h *hdrhistogram.PackedHistogram, d time.Duration) {
	// An error would mean a value out of range, or 2^63 of them.
	_ = h.RecordValue(int64(min(max(d, 0), longest)))
}

// merge adds up what all workers have measured.
func merge(records []*record) (sum record, latency, service *hdrhistogram.Histogram) {
	latency, service = hdrhistogram.New(1, int64(longest), digits), hdrhistogram.New(1, int64(longest), digits)
	sum.answers = make(map[int]int64)
	for _, r := range records {
		r.latency.MergeInto(latency)
		r.service.MergeInto(service)
		for status, n := range r.answers {
			sum.answers[status] += n
		}
		sum.errors += r.errors
		sum.late += r.late
		sum.queued += r.queued
	}
	return sum, latency, service
}
