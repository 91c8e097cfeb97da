package check

import (
	"math"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/fleetstate"
)

// due returns when the next step is once these rounds are wanted, in ms after noon of the fleet's
// time.
func (f *fleet) due(now, behind int64, wanted ...uint32) float64 {
	for _, w := range wanted {
		f.host.Want(w)
	}
	return float64(atTime(now, f).Step().UnixNano()+behind-noon) / 1e6
}

// TestRoundsAreDueAtMultiples: rounds come at multiples of their period in the fleet's time,
// whatever the checker's own clock says, and at least half a floor after the last flush, which is
// at noon.
func TestRoundsAreDueAtMultiples(t *testing.T) {
	never := []uint32{}
	fast, normal, full := []uint32{fleetstate.NextFast}, []uint32{fleetstate.NextNormal}, []uint32{fleetstate.NextFull}
	for _, test := range []struct {
		why    string
		o      Options
		now    float64 // ms after noon of the fleet's time
		behind time.Duration
		wanted []uint32
		due    float64
	}{
		{"nothing wanted: the timer", Options{}, 5, 0, never, 50},
		{"a long timer", Options{FlushEvery: 200 * time.Millisecond}, 5, 0, never, 200},
		{"a fast round", Options{}, 5, 0, fast, 8},
		{"a fast round, in its moment", Options{}, 3, 0, fast, 4},
		{"a fast round, just after it", Options{}, 4.5, 0, fast, 8},
		{"a normal round", Options{}, 5, 0, normal, 32},
		{"a full round: the timer comes first", Options{}, 5, 0, full, 50},
		{"a full round: with a longer timer", Options{FlushEvery: 200 * time.Millisecond}, 5, 0, full, 128},
		{"what is wanted first", Options{}, 5, 0, []uint32{fleetstate.NextFull, fleetstate.NextNormal, fleetstate.NextFast}, 8},
		{"a normal round before a full one",
			Options{FlushEvery: 200 * time.Millisecond, Tuning: tuning{FlushFloor: 64 * time.Millisecond}}, 5, 0, []uint32{fleetstate.NextFull, fleetstate.NextNormal}, 128},
		{"a longer floor", Options{Tuning: tuning{FlushFloor: 5 * time.Millisecond}}, 5, 0, fast, 8},
		{"a longer timer makes normal rounds longer", Options{FlushEvery: 64 * time.Millisecond}, 5, 0, normal, 64},
		{"not quite so long", Options{FlushEvery: 63 * time.Millisecond}, 5, 0, normal, 32},
		{"by the timer only", Options{Tuning: tuning{FlushFloor: 50 * time.Millisecond}}, 5, 0, fast, 50},
		{"by the timer only, after a step that came late", Options{Tuning: tuning{FlushFloor: 50 * time.Millisecond}}, 60, 0, never, 100},
		{"a slow clock", Options{}, 5, 1300 * time.Microsecond, fast, 8},
		{"a fast one", Options{}, 5, -2700 * time.Microsecond, fast, 8},
		{"a slow clock, normal", Options{}, 5, 2 * time.Second, normal, 32},
	} {
		test.o.Epoch, test.o.HelloEvery = 1, time.Hour
		f := unwelcomed(t, test.o, rule("r", 1000, time.Minute, 1))
		behind := int64(test.behind)
		atTime(noon-behind, f).Step()
		f.join(noon-behind, 4, behind)
		atTime(noon-behind, f).Step()
		now := noon + int64(test.now*1e6) - behind
		equal(t, f.due(now, behind, test.wanted...), test.due, "%s: due", test.why)
	}
}

// TestFastRoundsFollowTheRoundTrip: a report must be answered before the next fast round, else
// every other round is missed.
func TestFastRoundsFollowTheRoundTrip(t *testing.T) {
	f, l := newFleetOf(t, 2, Options{HelloEvery: time.Hour, Tuning: tuning{NoForecast: true}}, 1000, time.Minute)
	now := noon
	ask := func(trip int64) float64 {
		atTime(now, l).Check("k", 1)
		now += 64*ms - now%(64*ms)
		f.host.Want(fleetstate.NextFast)
		atTime(now, f).Step()
		f.answer(now+trip, 1)
		return f.due(now+trip, 0, fleetstate.NextFast) - float64(now-noon)/1e6
	}
	for _, phase := range []struct {
		trip, answers int64
		want          float64
	}{{1, 1, 4}, {1, 1, 4}, {10, 31, 16}, {1, 31, 4}} {
		var got float64
		for range phase.answers {
			got = ask(phase.trip * ms)
		}
		equal(t, got, phase.want, "%d answers after %d ms: next fast round", phase.answers, phase.trip)
		equal(t, f.host.Rounds.Normal.Load(), 32*ms, "normal rounds")
	}
	// One answer that is late does not make the others slow.
	got := ask(21 * ms)
	expect(t, got <= 24, "one late answer: the next fast round is %v ms after the last", got)
	fleet := f.host.ForecastFleet()
	expect(t, fleet.FastInterval == f.host.Rounds.Fast.Load() && fleet.Checkers == 2 && fleet.Trail > 0, "a fleet of %+v", fleet)
	// Nor does one that has waited here: this process was frozen, or it would have been repeated.
	for range 31 {
		ask(ms)
	}
	ask(2000 * ms)
	now += 2000 * ms
	equal(t, ask(ms), 4, "after an answer that has waited for 2 s: next fast round")
	// The first round trip has nothing to be weighed against.
	f, l = newFleetOf(t, 2, Options{HelloEvery: time.Hour, Tuning: tuning{NoForecast: true}}, 1000, time.Minute)
	atTime(noon, l).Check("k", 1)
	atTime(noon+50*ms, f).Step()
	f.answer(noon+65*ms, 1)
	equal(t, f.due(noon+65*ms, 0, fleetstate.NextFast), 80, "interval after the first answer, of 15 ms")
}

// TestKeysWithoutAForecastAreReportedSoon from half of their limit on, if there are other checkers,
// and small limits from the second hit on that could be beyond a quarter if all had as many; near a
// small limit at once. Also if all hits come at once.
func TestKeysWithoutAForecastAreReportedSoon(t *testing.T) {
	const never = math.MaxInt64
	for _, test := range []struct {
		checkers     uint32
		limit        int64
		o            Options
		soon, atOnce int64 // from which hit on
	}{
		{2, 10, Options{}, 2, 5},
		{8, 4, Options{}, never, 2},
		{2, 80, Options{}, 10, 40},
		{2, 1000, Options{Tuning: tuning{NoForecast: true}}, 500, never},
		{1, 10, Options{}, never, never},
	} {
		f, l := newFleetOf(t, test.checkers, test.o, test.limit, time.Minute)
		for n := range test.limit {
			f.host.Rounds.Wanted.Store(0)
			allowed := n > 0 && counterOf(l, "k").Allowance.Load() > 0 // without a look
			d := atTime(noon, l).Check("k", 1)
			require(t, d.Allowed, "%+v: hit %d: %+v", test, n+1, d)
			want := uint32(0)
			switch hit := n + 1; {
			case hit >= test.atOnce:
				want = fleetstate.AtOnce
			case hit >= test.soon:
				want = fleetstate.NextFast
			}
			if !allowed {
				equal(t, f.host.Rounds.Wanted.Load(), want, "%+v: wanted after hit %d", test, n+1)
			}
		}
	}
}

// TestTrailGrowsWithTheFleet, since alarms come less often in large fleets.
func TestTrailGrowsWithTheFleet(t *testing.T) {
	last := int64(0)
	for _, n := range []uint32{0, 2, 1000, 10_000} {
		f, _ := newFleetOf(t, n, Options{}, 1000, time.Minute)
		fleet := f.host.ForecastFleet()
		expect(t, fleet.Checkers == float64(max(n, 1)) && fleet.Trail >= last && (n <= 2 || fleet.Trail != last),
			"%d checkers: %+v", n, fleet)
		last = fleet.Trail
	}
}

// TestWhichRoundIsWanted: haste costs messages, so it is kept for keys that need it.
func TestWhichRoundIsWanted(t *testing.T) {
	for _, test := range []struct {
		why     string
		total   int64
		hits    int
		perTick int64
		want    uint32
	}{
		{"far from the limit: none", 100, 1, 1, 0},
		{"nearer: a normal round", 4000, 1, 10, fleetstate.NextNormal},
		{"so much comes that the room may be used up by then", 4000, 1, 500, fleetstate.NextFast},
		{"far more comes here than was expected", 4000, 3000, 0, fleetstate.NextNormal | fleetstate.NextFast},
		{"full: denied hits wait for the full round", 10_000, 5, 0, fleetstate.NextFull},
	} {
		f, l := newFleetOf(t, 2, Options{HelloEvery: time.Hour}, 10_000, time.Minute)
		l.core.Group.FullRounds = 1 // as of a fast window
		now := noon
		for i := range int64(10) { // alarms, from which a demand is known
			now += 4 * ms
			f.alarmMade(now+ms, now, l, "k", test.total+i*test.perTick)
		}
		f.host.Rounds.Wanted.Store(0)
		hit(l, now+ms, "k", test.hits)
		equal(t, f.host.Rounds.Wanted.Load(), test.want, "%s: rounds wanted", test.why)
	}
}

// woken says whether the goroutine that steps has been woken since the last call.
func (f *fleet) woken() bool {
	select {
	case <-f.Wake():
		return true
	default:
		return false
	}
}

// TestWantWakesOnce before a step.
func TestWantWakesOnce(t *testing.T) {
	f, _ := newFleetOf(t, 2, Options{}, 1000, time.Minute)
	f.woken()
	for i, step := range []struct {
		wants uint32
		woken bool
	}{{fleetstate.NextNormal, true}, {fleetstate.NextNormal, false}, {fleetstate.NextFast, true}} {
		f.host.Want(step.wants)
		expect(t, f.woken() == step.woken, "want %d: woken: %v", i+1, !step.woken)
	}
	atTime(noon+64*ms, f).Step()
	f.host.Want(fleetstate.NextNormal)
	expect(t, f.woken(), "wanted again after the flush, and not woken")
}

// TestRepeatedReportsDoNotSlowRounds: nobody knows to which sending the answer is, so an outage
// does not make intervals long.
func TestRepeatedReportsDoNotSlowRounds(t *testing.T) {
	f, l := newFleetOf(t, 1, Options{}, 1000, time.Minute)
	atTime(noon, l).Check("k", 1)
	atTime(noon+50*ms, f).Step()
	for now := noon + 50*ms; now < noon+10*second; now += 100 * ms {
		atTime(now, f).Step()
	}
	require(t, f.Stats().ReportsRepeated != 0, "the report was not repeated")
	f.answer(noon+10*second, 1)
	equal(t, f.host.UpdateFastInterval(), 4*ms, "interval after an outage")
	atTime(noon+10*second, l).Check("k", 1)
	atTime(noon+10*second+50*ms, f).Step()
	f.answer(noon+10*second+57*ms, 2)
	equal(t, f.host.UpdateFastInterval(), 8*ms, "interval, when an answer takes 7 ms")
}

// TestSlowerAnswersStopRepeats: when answers take many times as long as they did, reports are soon
// not repeated any more.
func TestSlowerAnswersStopRepeats(t *testing.T) {
	for _, later := range []int64{30, 60, 300} {
		f, l := fleetAndLimiter(t, Options{Tuning: tuning{NoForecast: true}}, rule("r", 1e6, time.Second, 1))
		f.welcomeOf(noon, 8)
		trip, seen, due, repeats := 5*ms, 0, int64(0), int64(0)
		for now := noon; now < noon+40*second; now += ms {
			switch now {
			case noon + 5*second:
				trip = later * ms
			case noon + 20*second:
				repeats = f.Stats().ReportsRepeated
			}
			atTime(now, l).Check("k", 1)
			atTime(now, f).Step()
			if len(f.tape.reports) > seen {
				if due == 0 {
					due = now + trip
				}
				seen = len(f.tape.reports)
			}
			if due != 0 && now >= due {
				f.answer(now, 1)
				due = 0
			}
			if now%second == 0 {
				f.welcomeOf(now, 8)
			}
		}
		equal(t, f.Stats().ReportsRepeated, repeats, "reports repeated when answers take %d ms", later)
	}
}
