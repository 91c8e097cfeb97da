package check

import (
	"context"
	"errors"
	"github.com/offpath-io/offpath/pkg/check/internal/fleetstate"
	"testing"
	"testing/synctest"
	"time"

	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/rules"
)

func strictRule(name string, limit int64, length time.Duration, buckets int) rules.Rule {
	r := rule(name, limit, length, buckets)
	r.Enforcement = rules.Strict
	return r
}

// fleetAndLimiter is newFleet, and the limiter of the first rule.
func fleetAndLimiter(t testing.TB, o Options, list ...rules.Rule) (*fleet, *Limiter) {
	t.Helper()
	f := newFleet(t, o, list...)
	return f, limiter(t, f.Checker, list[0].Name)
}

// checkerAndLimiter is newChecker, and the limiter of the first rule.
func checkerAndLimiter(t testing.TB, o Options, list ...rules.Rule) (*Checker, *Limiter) {
	t.Helper()
	c := newChecker(t, o, list...)
	return c, limiter(t, c, list[0].Name)
}

// strictFleet is a fleet's checker with one strict rule of one bucket, and its limiter.
func strictFleet(t testing.TB, limit int64, length time.Duration) (*fleet, *Limiter) {
	t.Helper()
	return fleetAndLimiter(t, Options{}, strictRule("r", limit, length, 1))
}

// firstGrant denies a hit at noon, which makes the checker ask, and grants permits 2 ms later; more
// can be free after wait.
func (f *fleet) firstGrant(l *Limiter, permits int64, wait time.Duration) {
	f.t.Helper()
	atTime(noon, l).Check("k", 1)
	atTime(noon+ms, f).Step()
	f.grants(noon+2*ms, 0, permits, permits, wait)
}

// asked returns the lease request sent last, and how many there were.
func (f *fleet) asked() (m *events.LeaseRequest, n int) {
	f.t.Helper()
	n = len(f.tape.leases)
	require(f.t, n != 0, "no permits were asked for")
	return f.tape.leases[n-1], n
}

// grants answers the first key of the last request, in the bucket that it named, or newer buckets
// later.
func (f *fleet) grants(now int64, newer, granted, spoken int64, wait time.Duration) {
	f.t.Helper()
	m, _ := f.asked()
	f.receive(now, events.KindGrant, &events.Grant{
		Epoch: m.Epoch, Shard: m.Shard, Sequence: m.Sequence, Generation: 1, Version: m.Sequence,
		Age: []int64{m.Age[0] - newer}, Granted: []uint64{uint64(granted)}, Spoken: []uint64{uint64(spoken)},
		WaitMs: []uint64{uint64(wait.Milliseconds())},
	})
}

// grant answers each key of the last request with the permits granted so far, and when more can be
// free.
func (f *fleet) grant(now int64, m *events.LeaseRequest, permits func(i int) (granted uint64, wait time.Duration)) {
	f.t.Helper()
	g := &events.Grant{Epoch: m.Epoch, Shard: m.Shard, Sequence: m.Sequence, Generation: 1, Version: m.Sequence, Age: m.Age}
	for i := range m.Age {
		granted, wait := permits(i)
		g.Granted, g.Spoken = append(g.Granted, granted), append(g.Spoken, granted)
		g.WaitMs = append(g.WaitMs, uint64(wait.Milliseconds()))
	}
	f.receive(now, events.KindGrant, g)
}

// grantOne answers the last request: more permits of one rule, and none of the others.
func (f *fleet) grantOne(now int64, rule string, more uint64, wait time.Duration) {
	f.t.Helper()
	m, _ := f.asked()
	f.grant(now, m, func(i int) (uint64, time.Duration) {
		if m.Keys.Rules[m.Keys.KeyRule[i]].Name == rule {
			return m.Known[i] + more, wait
		}
		return m.Known[i], 0
	})
}

// passes returns how many of n hits of cost 1 pass.
func passes(l *Limiter, now int64, n int) int { return hit(l, now, "k", n) }

// pass fails the test unless as many of the hits, of cost 1, pass at ms after noon.
func (f *fleet) pass(l *Limiter, at int64, hits, want int) {
	f.t.Helper()
	equal(f.t, passes(l, noon+at*ms, hits), want, "%d ms after noon, hits of %d that pass", at, hits)
}

// leaseWish is what a lease request says of its first key.
type leaseWish struct {
	want, known uint64
	age         int64 // of its bucket
	returned    uint64
	of          int64 // age of the bucket of the returned
}

// asks fails the test unless the step at ms after noon sends one lease request, with this wish.
func (f *fleet) asks(at int64, want leaseWish) *events.LeaseRequest {
	f.t.Helper()
	before := len(f.tape.leases)
	atTime(noon+at*ms, f).Step()
	n := len(f.tape.leases) - before
	require(f.t, n == 1, "%d ms after noon %d requests, want one, %+v", at, n, want)
	return f.wishes(want)
}

// wishes fails the test unless this is the wish of the last request.
func (f *fleet) wishes(want leaseWish) *events.LeaseRequest {
	f.t.Helper()
	m, n := f.asked()
	got := leaseWish{want: m.Want[0], known: m.Known[0], age: m.Age[0]}
	if len(m.Keys.Value) > 0 {
		got.returned, got.of = m.Keys.Value[0], m.Keys.Age[0]
	}
	require(f.t, got == want, "request %d: %+v, want %+v", n, got, want)
	return m
}

// steps lets time pass, in ms after noon.
func (f *fleet) steps(from, until, every int64) {
	for at := from; at < until; at += every {
		atTime(noon+at*ms, f).Step()
	}
}

// asksNothing fails the test if a step between these times, in ms after noon, sends a lease
// request.
func (f *fleet) asksNothing(from, until, every int64) {
	f.t.Helper()
	before := len(f.tape.leases)
	f.steps(from, until, every)
	if n := len(f.tape.leases) - before; n != 0 {
		f.t.Errorf("%d requests, the last %+v, want none", n, f.tape.leases[len(f.tape.leases)-1])
	}
}

// wantHit checks key k, fails the test unless the hit is allowed or denied as wanted, and returns
// the decision.
func wantHit(t testing.TB, l *Limiter, now, cost int64, allowed bool, why string) Decision {
	t.Helper()
	d := atTime(now, l).Check("k", cost)
	if d.Allowed != allowed { // without an allocation otherwise
		t.Errorf("%s: %+v", why, d)
	}
	return d
}

// decided fails the test unless a hit was allowed or denied as wanted.
func decided(t tester, d Decision, allowed bool, why string) {
	t.Helper()
	expect(t, d.Allowed == allowed, "%s: %+v", why, d)
}

// wantLeft fails the test unless so much is left of key k.
func wantLeft(t testing.TB, l *Limiter, now, want int64, why string) {
	t.Helper()
	equal(t, left(l, now, "k"), want, "%s: left", why)
}

// runFleet begins to run a fleet's checker in a bubble of virtual time, which is the fleet's too.
func runFleet(t *testing.T, o Options, list ...rules.Rule) (f *fleet, stop func(), done chan error) {
	f = &fleet{t: t, tape: new(tape)}
	o.Link, o.MaxIdleKeys = f.tape, -1
	f.Checker = newChecker(t, o, list...)
	r := run(t, f.Checker)
	synctest.Wait()
	f.welcome(fleetstate.SystemTime(), 1)
	return f, r.stop, r.ended
}

// ends has what was sent answered every 2 ms, and returns what Run does.
func (f *fleet) ends(done chan error, answer func()) error {
	for i := 0; len(done) == 0; i++ {
		require(f.t, i != 3000, "Run does not end")
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		answer()
	}
	return <-done
}

// inBubble calls f with a checker that runs, and expects that no caller waits when Run has ended.
func inBubble(t *testing.T, o Options, list []rules.Rule, f func(t *testing.T, f *fleet)) {
	synctest.Test(t, func(t *testing.T) {
		o.DrainTimeout = time.Millisecond
		x, stop, done := runFleet(t, o, list...)
		f(t, x)
		stop()
		if err := <-done; err != nil && !errors.Is(err, ErrUnreported) {
			t.Error(err)
		}
		equal(t, x.Stats().Waiting, 0, "callers still wait")
	})
}

// inStrictBubble is inBubble with one strict rule, per minute.
func inStrictBubble(t *testing.T, limit int64, f func(t *testing.T, f *fleet, l *Limiter)) {
	list := []rules.Rule{strictRule("r", limit, time.Minute, 1)}
	inBubble(t, Options{}, list, func(t *testing.T, x *fleet) { f(t, x, limiter(t, x.Checker, "r")) })
}

// outcome is the result of Acquire or Wait.
type outcome struct {
	d   Decision
	err error
}

// begin begins a Wait, and returns when that waits or has ended.
func begin(ctx context.Context, c *Checker, r Request) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		r, err := c.Wait(ctx, r)
		done <- outcome{r.Decision, err}
	}()
	synctest.Wait()
	return done
}

// acquire begins to wait for permits of key k.
func acquire(ctx context.Context, l *Limiter, cost int64) <-chan outcome {
	return begin(ctx, l.checker(), Request{Limiter: l, Key: "k", Cost: cost})
}

// wantOutcome fails the test unless what was begun waits, passes, is denied or fails, as wanted,
// and returns the decision.
func wantOutcome(t testing.TB, c <-chan outcome, want, why string) (d Decision) {
	t.Helper()
	got := "waits"
	switch o := ended(c); {
	case o == nil:
	case o.err != nil:
		d, got = o.d, "fails"
	case o.d.Allowed:
		d, got = o.d, "passes"
	default:
		d, got = o.d, "denied"
	}
	expect(t, got == want, "%s: it %s, want %s: %+v", why, got, want, d)
	return d
}

// ended is the outcome, or nil while there is none.
func ended(c <-chan outcome) *outcome {
	synctest.Wait()
	select {
	case o := <-c:
		return &o
	default:
		return nil
	}
}

// settled lets requests leave, and returns how many permits the last one asks for.
func (f *fleet) settled() (want uint64) {
	time.Sleep(5 * time.Millisecond)
	synctest.Wait()
	m, _ := f.asked()
	return m.Want[0]
}
