package check

import (
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/rules"
)

// TestIdleCellsAreLookedAtSeldom: a handful of times until all that they know has left the window,
// and not every so often; then they leave soon. When their rule goes they leave at once.
func TestIdleCellsAreLookedAtSeldom(t *testing.T) {
	const day = 24 * time.Hour
	for _, tt := range []struct {
		rule    rules.Rule
		leaves  time.Duration // after the beginning of the day, if the rule stays
		retired bool
	}{
		{rule: rule("r", 100, day, 1), leaves: 2 * day},
		{rule: rule("r", 100, day, 24), leaves: 25*time.Hour + 12*time.Hour},
		{rule: draining("r", rules.TokenBucket, 24, 100, day, 24), leaves: 37*time.Hour + time.Hour},
		{rule: rule("r", 100, day, 1), retired: true},
	} {
		f, l := fleetAndLimiter(t, Options{HelloEvery: time.Hour, MaxIdleKeys: -1, Tuning: tuning{NoForecast: true}}, tt.rule)
		begin, now := noon-int64(12*time.Hour), noon
		atTime(now, l).Check("k", 1)
		atTime(now+50*ms, f).Step()
		f.answer(now+51*ms, 1)
		due, looks, left := int64(0), 0, time.Duration(0)
		for ; now < begin+int64(3*day) && left == 0; now += int64(10 * time.Second) {
			atTime(now, f).Step()
			if next := f.host.Ageing.Due(); next != due {
				due = next
				looks++
			}
			if tt.retired && now >= begin+int64(14*time.Hour) && tt.leaves == 0 {
				tt.leaves = time.Duration(now - begin)
				reload(t, f.Checker, now, rule("other", 1, time.Second, 1))
			}
			if f.Stats().LiveKeys == 0 {
				left = time.Duration(now - begin)
			}
		}
		expect(t, left >= tt.leaves && left <= tt.leaves+2*time.Minute, "%+v: it leaves %v after the day began, want %v", tt.rule.Window, left, tt.leaves)
		expect(t, looks <= 20, "%+v: it was looked at %d times", tt.rule.Window, looks)
	}
}
