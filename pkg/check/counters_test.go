package check

import (
	"fmt"
	"testing"
	"time"
)

// TestAKillLosesASecond: a killed checker loses at most one second of hits, even of deferred keys;
// the metrics count every hit that passed, and every one that is not reported.
func TestAKillLosesASecond(t *testing.T) {
	f, l := newFleetOf(t, 4, Options{}, 100_000, 24*time.Hour)
	const keys, step, span = 300, 10 * ms, 3 * second
	for i := range keys {
		inform(l, fmt.Sprint(i))
	}
	reported, passed, oldest := uint64(0), int64(0), time.Duration(0)
	since := make(map[string]int64) // when the oldest hit of a key came that is not reported
	for now := noon; now < noon+span; now += step {
		for i := range 3 {
			key := fmt.Sprint((int(now/step) + i*100) % keys)
			passed += int64(hit(l, now, key, 2))
			if _, ok := since[key]; !ok {
				since[key] = now
			}
		}
		for _, r := range f.reportsAt(now) {
			for key, n := range hits(r) {
				reported += n
				delete(since, key)
			}
			f.answerRows(now, make([]uint64, r.Hits.Keys())...)
		}
		for _, at := range since {
			oldest = max(oldest, time.Duration(now-at))
		}
	}
	expect(t, oldest <= time.Second, "%d hits are lost, the oldest after %v", uint64(passed)-reported, oldest)
	s := f.Stats()
	expect(t, s.Rules[0].Charged == passed && s.Unreported() == passed-int64(reported),
		"%d hits passed, %d are not reported; the metrics tell of %d and %d", passed, uint64(passed)-reported, s.Rules[0].Charged, s.Unreported())
}

// TestChargedIsExact: each hit that was let pass or denied is counted at once, whatever allowance
// it was taken from or turned away by, and once.
func TestChargedIsExact(t *testing.T) {
	for name, checkers := range map[string]uint32{"in a fleet": 4, "with nobody else": 1, "without a link": 0} {
		f, l := newFleetOf(t, checkers, Options{}, 1000, time.Minute)
		f.alarmMade(noon, noon, l, "k", 300)
		if checkers == 0 {
			f.Checker, l = checkerAndLimiter(t, Options{}, rule("r", 1000, time.Minute, 1))
		}
		allowed := int64(0)
		for i := range 2098 {
			now := noon + int64(i)*ms/10
			allowed += int64(hit(l, now, "k", 1))
			if i%7 != 0 {
				continue
			}
			for _, r := range f.reportsAt(now) {
				f.answerRows(now, make([]uint64, r.Hits.Keys())...)
			}
			s := f.Stats().Rules[0]
			require(t, s.Allowed == allowed && s.Charged == allowed && s.Denied == int64(i+1)-allowed,
				"%s: %d of %d hits were let pass, the metrics tell of %d, of %d charged and %d denied", name, allowed, i+1, s.Allowed, s.Charged, s.Denied)
		}
	}
}

// TestCountersOnlyGrow: Stats never goes backwards while other goroutines decide.
func TestCountersOnlyGrow(t *testing.T) {
	f, l := newFleetOf(t, 2, Options{}, 1_000_000, time.Minute)
	var passed [4]int64
	stop := meanwhile(len(passed), func(g int) {
		passed[g] += int64(hit(l, noon, "k", 100))
	})
	last := int64(0)
	for i := range int64(1000) {
		if i%50 == 0 {
			atTime(noon+i*ms, f).Step()
		}
		n := f.Stats().Rules[0].Charged
		expect(t, n >= last, "%d charged, and %d before", n, last)
		last = n
	}
	stop()
	equal(t, f.Stats().Rules[0].Charged, passed[0]+passed[1]+passed[2]+passed[3], "charged")
}
