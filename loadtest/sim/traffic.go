package sim

import (
	"github.com/offpath-io/offpath/internal/testing/membus"
	"github.com/offpath-io/offpath/loadtest/result"
)

// trafficOf returns what was sent and heard per second between two moments.
func trafficOf(from, to membus.Traffic, seconds float64) (t result.Traffic) {
	if seconds <= 0 {
		return t
	}
	flow := func(from, to membus.Flow) result.Flow {
		return result.Flow{
			Sent:       float64(to.Sent-from.Sent) / seconds,
			SentBytes:  float64(to.SentBytes-from.SentBytes) / seconds,
			Heard:      float64(to.Heard-from.Heard) / seconds,
			HeardBytes: float64(to.HeardBytes-from.HeardBytes) / seconds,
		}
	}
	c, a := flow(from.Checkers, to.Checkers), flow(from.Workers, to.Workers)
	t.Checkers, t.Aggregators = c, a
	t.NATS = result.Flow{
		Sent: c.Heard + a.Heard, SentBytes: c.HeardBytes + a.HeardBytes,
		Heard: c.Sent + a.Sent, HeardBytes: c.SentBytes + a.SentBytes,
	}
	return t
}
