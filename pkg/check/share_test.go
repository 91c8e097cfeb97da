package check

import (
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/forecast"
	"github.com/offpath-io/offpath/pkg/rules"
)

// TestReserveWithinLocalShare: who keeps to a share lets callers wait until they fit that, and not until they would fit the
// whole bucket.
func TestReserveWithinLocalShare(t *testing.T) {
	c := newChecker(t, Options{Link: new(tape), ExpectCheckers: 8}, draining("r", rules.TokenBucket, 10, 80, time.Second, 50))
	c.Step(noon)
	l := limiter(t, c, "r")
	if _, d := l.ReserveAt(noon, "dear", 11); d.Allowed || d.Freshness != LocalShare {
		t.Errorf("more than the share ever holds: %+v", d)
	}
	var delays []time.Duration
	for {
		r, d := l.ReserveAt(noon, "k", 1)
		if !d.Allowed {
			break
		}
		delays = append(delays, r.Delay)
	}
	if len(delays) != 20 { // a full share, and as many that are owed
		t.Fatalf("%d hits: %v", len(delays), delays)
	}
	for i, delay := range delays {
		want := max(time.Duration(i-9), 0) * 800 * time.Millisecond // an eighth of the rate
		if delay < want || delay > want+20*time.Millisecond {
			t.Errorf("hit %d waits for %v, want %v", i, delay, want)
		}
	}
}

// TestTimesSaturate: no number of checkers that a message may tell makes many hits few.
func TestTimesSaturate(t *testing.T) {
	for _, factor := range []int64{1, 8, 1<<32 - 1} {
		if got := times([]int64{1, events.MaxCount}, factor); got[0] != factor || got[1] <= events.MaxCount/2 {
			t.Errorf("times %d: %d", factor, got)
		}
	}
}

// TestForecastsOutliveWrongTimes: one message of a clock that is far ahead, or of none, does not make all later ones old.
func TestForecastsOutliveWrongTimes(t *testing.T) {
	for _, made := range []int64{noon - ms, noon + 3600*second, 1<<63 - 1, -1 << 63} {
		f := newFleet(t, Options{}, rule("r", 1000, time.Minute, 1))
		f.Checker.fleet.Store(4)
		l := limiter(t, f.Checker, "r")
		tell := func(now, made, total int64) {
			table := &events.Table{Rules: []*events.Rule{l.wire(now)}}
			table.AddKey(0, "k")
			table.AddCell(0, uint64(total))
			f.receive(now, events.KindAlarm, &events.Alarm{Generation: 1, Version: 1, Totals: table, Made: made})
		}
		tell(noon, noon-ms, 400)
		tell(noon+ms, made, 401)
		total := int64(400)
		for at := 20 * ms; at < 400*ms; at += 20 * ms {
			total += 10
			tell(noon+at, noon+at-ms, total)
		}
		c := l.holds([]byte("k"))
		if c == nil || c.ahead() == nil {
			t.Fatal("no forecast")
		}
		o := c.ahead().Look(noon+400*ms, forecast.Window{Limit: 1000, Free: 400}, forecast.Fleet{Checkers: 4, Tick: 4 * ms})
		if perSecond := o.Demand * 1e9; perSecond < 300 || perSecond > 800 { // 500
			t.Errorf("after a message made at %d: %.0f hits per second are expected", made, perSecond)
		}
	}
}
