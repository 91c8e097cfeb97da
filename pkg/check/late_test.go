package check

import (
	"testing"
	"time"
)

// TestLateAnswerMakesUpForAMissedRound: what waited for it goes with the next round, when all checkers
// report; if none was missed, it goes at once.
func TestLateAnswerMakesUpForAMissedRound(t *testing.T) {
	for _, missed := range []bool{false, true} {
		f, l := newFleetOf(t, 2, Options{HelloEvery: time.Hour, NoForecast: true}, 1000, time.Minute)
		f.rounds.trip = ms // so far they came soon
		l.CheckAt(noon+2*ms, "k", 1)
		f.want(nextTick)
		f.Step(noon + 4*ms)
		l.CheckAt(noon+5*ms, "k", 1)
		if missed {
			f.want(nextTick)
			if next := f.Step(noon + 6*ms); next != noon+8*ms {
				t.Errorf("the next step is due %v ms after noon", float64(next-noon)/1e6)
			}
			f.Step(noon + 8*ms) // the report in flight is not answered yet
		} else {
			f.Step(noon + 54*ms) // by the timer: this is no round
		}
		if n := f.Stats().ReportsSent; n != 1 {
			t.Fatalf("missed %v: %d reports in flight", missed, n)
		}
		at := f.behind.lastFlush + ms
		f.answer(at, 1)
		if n := f.Stats().ReportsSent; n != 2 && !missed || n != 1 && missed {
			t.Errorf("missed %v: %d reports after the answer", missed, n)
		}
		if !missed {
			continue
		}
		if next := f.Step(at); next != noon+12*ms {
			t.Errorf("the next step is due %v ms after noon, want the next tick", float64(next-noon)/1e6)
		}
		f.Step(noon + 12*ms)
		if got, _ := rows(f.last(), false); f.Stats().ReportsSent != 2 || got["k"] != 1 {
			t.Errorf("%d reports, the last of %v", f.Stats().ReportsSent, got)
		}
		// With that it is made up for.
		l.CheckAt(noon+13*ms, "k", 1)
		f.Step(noon + 62*ms)
		if f.answer(noon+63*ms, 2); f.Stats().ReportsSent != 3 {
			t.Errorf("%d reports: what waited for a late answer was kept back once more", f.Stats().ReportsSent)
		}
	}
}
