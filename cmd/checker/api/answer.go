package api

import (
	"net/http"
	"strconv"
	"time"

	"github.com/offpath-io/offpath/cmd/internal/reply"
	"github.com/offpath-io/offpath/pkg/check"
)

// Answer is the body of a 200, or of a denial.
type Answer struct {
	Allowed bool `json:"allowed"`
	// Rule is the one that decided: the one that denied, or else the one with the least left. If no
	// rule limits the request, it is null, and so are the fields about it.
	Rule      *string `json:"rule"`
	Limit     *int64  `json:"limit"`
	Remaining *int64  `json:"remaining"`
	// RetryAfterMS is rounded up; 0 if the request may pass, null if it never will at this cost.
	RetryAfterMS *int64 `json:"retry_after_ms"`
	ResetMS      *int64 `json:"reset_ms"`
	// Freshness is fresh, stale, local, local_share or outage.
	Freshness string `json:"freshness"`
	// Unmatched: no rule matches, and --on-no-match decided.
	Unmatched bool `json:"unmatched,omitempty"`
	// Exceeded: the hit passed above a limit that is soft or elastic.
	Exceeded bool `json:"exceeded,omitempty"`
	// Queue: the caller may wait, for at most MaxWaitMS, and ask again.
	Queue     bool   `json:"queue,omitempty"`
	MaxWaitMS *int64 `json:"max_wait_ms,omitempty"`
	// Shadow is the first shadow rule that would have denied the request.
	Shadow string `json:"shadow,omitempty"`
	// DelayMS is how long an allowed request with "mode": "reserve" has to wait for its turn,
	// rounded up.
	DelayMS *int64 `json:"delay_ms,omitempty"`
	// Receipt is for one POST to SettlePath. An allowed request has one if it asked for it.
	Receipt string `json:"receipt,omitempty"`
}

// NewAnswer returns the answer for a decision.
func NewAnswer(d check.Decision) Answer {
	a := Answer{
		Allowed: d.Allowed, Freshness: d.Freshness.String(),
		Unmatched: d.Unmatched, Exceeded: d.Exceeded, Queue: d.Queue, Shadow: d.Shadow,
	}
	if d.Queue {
		a.MaxWaitMS = new(ceil(d.MaxWait, time.Millisecond))
	}
	if d.RetryAfter != check.Never {
		a.RetryAfterMS = new(ceil(d.RetryAfter, time.Millisecond))
	}
	if d.Rule != "" {
		a.Rule, a.Limit, a.Remaining = &d.Rule, &d.Limit, &d.Remaining
		a.ResetMS = new(ceil(d.Reset, time.Millisecond))
	}
	return a
}

// ceil returns d in units, rounded up; 0 for a negative d.
func ceil[T ~int64](d, unit T) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d-1)/unit) + 1
}

// writeAnswer answers one request.
func writeAnswer(w http.ResponseWriter, status int, a Answer) {
	if status != http.StatusOK && a.RetryAfterMS != nil {
		seconds := max(ceil(*a.RetryAfterMS, 1000), 1)
		w.Header().Set("Retry-After", strconv.FormatInt(seconds, 10))
	}
	reply.JSON(w, status, a)
}
