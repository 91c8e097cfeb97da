package check

import (
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
)

// TestSmallLimitsByTurns: as many calls as a small limit allows, each at another checker, all pass,
// also in quick succession.
func TestSmallLimitsByTurns(t *testing.T) {
	for _, test := range []struct {
		checkers uint32
		pause    int64
	}{{2, 20 * ms}, {2, 500 * ms}, {8, 50 * ms}, {8, 500 * ms}} {
		f, l := newFleetOf(t, test.checkers, Options{HelloEvery: time.Hour}, 10, time.Minute)
		now, others := noon, int64(0)
		for n := range int64(10) {
			if now += test.pause; n%int64(test.checkers) == 1 {
				d := atTime(now, l).Check("k", 1)
				require(t, d.Allowed, "%+v: hit %d is denied: %+v", test, n+1, d)
			} else {
				others++
				f.alarm(now, 1, l, "k", others)
			}
		}
		d := atTime(now+test.pause, l).Check("k", 1)
		require(t, !d.Allowed, "%+v: a hit too many: %+v", test, d)
	}
}

// TestSmallLimitsAreThinned: of the room that several checkers have heard of at once, each uses a
// hit; the next one passes when its answer said that it might.
func TestSmallLimitsAreThinned(t *testing.T) {
	for _, test := range []struct {
		why      string
		checkers uint32
		o        Options
		others   int64
		thinned  bool
	}{
		{"room for two", 8, Options{HelloEvery: time.Hour}, 8, true},
		{"between two", 2, Options{HelloEvery: time.Hour}, 8, true},
		{"room for four", 8, Options{HelloEvery: time.Hour}, 6, false},
		{"none are known of others", 8, Options{HelloEvery: time.Hour}, 0, false},
		{"estimates are switched off", 8, Options{HelloEvery: time.Hour, Tuning: tuning{NoForecast: true}}, 8, false},
	} {
		f, l := newFleetOf(t, test.checkers, test.o, 10, time.Minute)
		if test.others > 0 {
			f.alarm(noon, 1, l, "k", test.others)
		}
		now := noon + ms
		require(t, atTime(now, l).Check("k", 1).Allowed, "%s: the first hit is denied", test.why)
		now += ms
		d := atTime(now, l).Check("k", 1)
		require(t, d.Allowed != test.thinned, "%s: %+v", test.why, d)
		if !d.Allowed {
			require(t, d.Remaining == 1, "%s: room for one is left: %+v", test.why, d)
			require(t, d.RetryAfter > 0 && d.RetryAfter < time.Second, "%s: %+v", test.why, d)
			now += int64(d.RetryAfter)
			d = atTime(now, l).Check("k", 1)
			require(t, d.Allowed, "%s: when it was to try again: %+v", test.why, d)
		}
	}
}

// TestCostlyRequestsAreThinned: where a request costs more than a hundredth of the limit, the last
// hundredths are not for all checkers at once, as those of a small limit.
func TestCostlyRequestsAreThinned(t *testing.T) {
	f, l := newFleetOf(t, 8, Options{HelloEvery: time.Hour}, 1000, time.Minute)
	now := noon
	try := func(why string, others, cost int64, passes bool) (d Decision) {
		t.Helper()
		if now += ms; others > 0 {
			f.alarm(now, 1, l, "k", others)
		}
		d = atTime(now, l).Check("k", cost)
		require(t, d.Allowed == passes, "%s: %+v", why, d)
		return d
	}
	try("the first request", 600, 50, true)
	try("it leaves room for many", 700, 50, true)
	try("it leaves little room", 831, 50, true)
	d := try("others have heard of that room, too", 0, 11, false)
	now += int64(d.RetryAfter)
	try("none of them has taken it", 0, 11, true)
	try("there is no room", 0, 11, false)
}

// TestThinnedHitsOfDeniedRequests: what another rule denies takes nothing of what may pass.
func TestThinnedHitsOfDeniedRequests(t *testing.T) {
	small, other := rule("r", 10, time.Minute, 1), rule("other", 1, time.Hour, 1)
	other.Key = []string{"ip"}
	f := newFleet(t, Options{HelloEvery: time.Hour}, small, other)
	f.welcomeOf(noon, 8)
	from := func(ip string) identity.Attributes {
		return append(user("k"), identity.Attribute{Name: "ip", Value: ip})
	}
	require(t, atTime(noon, f).Do(Request{Attributes: from("1"), Cost: 1}).Allowed, "the first hit is denied")
	f.alarm(noon+ms, 1, limiter(t, f.Checker, "r"), "k", 8)
	for n := range int64(20) {
		d := atTime(noon+(2+n)*ms, f).Do(Request{Attributes: from("1"), Cost: 1}).Decision
		require(t, !d.Allowed && d.Rule == "other", "a second hit from the same address: %+v", d)
	}
	d := atTime(noon+22*ms, f).Do(Request{Attributes: from("2"), Cost: 1}).Decision
	require(t, d.Allowed, "a hit from another address: %+v", d)
}

// TestThinnedReservations wait for nothing but their turn: they take the room at once.
func TestThinnedReservations(t *testing.T) {
	f := newFleet(t, Options{HelloEvery: time.Hour}, draining("r", rules.TokenBucket, 10, 10, time.Hour, 60))
	f.welcomeOf(noon, 8)
	l := limiter(t, f.Checker, "r")
	f.alarm(noon, 1, l, "k", 8)
	for n := range int64(2) {
		r := atTime(noon+(n+1)*ms, l).try(Reserve, "k", 1)
		require(t, r.Allowed && r.Delay == 0, "reservation %d: %+v", n+1, r)
	}
}
