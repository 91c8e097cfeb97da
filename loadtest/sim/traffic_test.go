package sim

import (
	"math"
	"testing"
	"time"

	"github.com/offpath-io/offpath/loadtest/scenario"
)

// TestTraffic: reports and hellos are what checkers send, and what they hear are answers, alarms,
// whose bytes are measured at their links as well, and welcomes.
func TestTraffic(t *testing.T) {
	const checkers, hellos = 8, 4.0 // a second, of all
	sc := scenarioOf(t, "steady", short(scenario.Settings{Checkers: new(checkers)}))
	r := simulate(t, sc, Options{Seed: 1, Delay: 2 * time.Millisecond})
	c, a, n := r.Traffic.Checkers, r.Traffic.Aggregators, r.Traffic.NATS
	reports := r.ReportsPer1000 * r.OfferedRate / 1000
	if math.Abs(c.Sent-reports-hellos) > 2 {
		t.Errorf("checkers send %v messages, of which %v are reports", c.Sent, reports)
	}
	if welcomes := c.HeardBytes - checkers*r.RefreshBytes; welcomes <= 0 || welcomes > 100*hellos {
		t.Errorf("checkers hear %v bytes a second beside answers and alarms", welcomes)
	}
	if alarms := (c.Heard - reports - hellos) / checkers; alarms <= 0 || math.Abs(a.Sent-reports-hellos-alarms) > 20 {
		t.Errorf("aggregators send %v messages: %v alarms to each checker", a.Sent, alarms)
	}
	if n.Heard != c.Sent+a.Sent || n.SentBytes != c.HeardBytes+a.HeardBytes {
		t.Errorf("NATS: %+v", n)
	}
	lost := simulate(t, sc, Options{Seed: 1, Loss: 1}).Traffic
	if lost.Checkers.Sent == 0 || lost.NATS.Sent != 0 {
		t.Errorf("on a network that loses everything: %+v", lost)
	}
}
