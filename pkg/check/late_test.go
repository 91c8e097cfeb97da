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
		sent := func(want int64, why string) {
			t.Helper()
			if n := f.Stats().ReportsSent; n != want {
				t.Errorf("missed %v: %d reports %s, want %d", missed, n, why, want)
			}
		}
		step := func(at, next int64) {
			t.Helper()
			if got := f.Step(noon + at*ms); got != noon+next*ms {
				t.Errorf("the next step is due %v ms after noon, want %d", float64(got-noon)/1e6, next)
			}
		}
		f.rounds.trip = ms // so far they came soon
		l.CheckAt(noon+2*ms, "k", 1)
		f.want(nextTick)
		f.Step(noon + 4*ms)
		l.CheckAt(noon+5*ms, "k", 1)
		if !missed {
			f.Step(noon + 54*ms) // by the timer: this is no round
			sent(1, "before the answer")
			f.answer(noon+55*ms, 1)
			sent(2, "after it")
			continue
		}
		f.want(nextTick)
		step(6, 8)
		f.Step(noon + 8*ms) // the report in flight is not answered yet
		sent(1, "before the answer")
		f.answer(noon+9*ms, 1)
		sent(1, "after it")
		step(9, 12) // the next tick
		f.Step(noon + 12*ms)
		if got, _ := rows(f.last(), false); got["k"] != 1 {
			t.Errorf("the last report has %v", got)
		}
		l.CheckAt(noon+13*ms, "k", 1)
		f.Step(noon + 62*ms)
		f.answer(noon+63*ms, 2)
		sent(3, "once it is made up for")
	}
}
