package fleet

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/offpath-io/offpath/loadtest/scenario"
	"github.com/offpath-io/offpath/loadtest/tap"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

// lone returns a checker that knows nobody, with two rules of this limit an hour.
func lone(t *testing.T, limit int64) *checker {
	t.Helper()
	var list []rules.Rule
	for _, name := range []string{"first", "second"} {
		list = append(list, rules.Rule{Name: name, Key: []string{"key"}, Limit: limit, Window: window.Shape{Length: time.Hour, Buckets: 1}})
	}
	set, err := rules.NewSet(list...)
	must(t, err)
	c, err := check.New(check.Options{Rules: set, MaxIdleKeys: -1})
	must(t, err)
	first, _ := c.Limiter("first")
	second, _ := c.Limiter("second")
	return &checker{Checker: tap.Checker{Checker: c, Limiters: []*check.Limiter{first, second}}}
}

// tally is what a checker says that it did.
type tally struct{ decisions, allowed, charged int64 }

// tallyOf returns what a checker did by a plan. It is exact only when every key has been looked at
// under its lock, which a request for 2 hits makes sure of; these requests are left out.
func tallyOf(c *checker, p *plan) (did tally) {
	for key, text := range p.texts {
		did.decisions--
		if c.Limiters[p.rules[key]].Check(text, 2).Allowed {
			did.allowed--
			did.charged -= 2
		}
	}
	for _, r := range c.Stats().Rules {
		did.decisions += r.Allowed + r.Denied
		did.allowed += r.Allowed
		did.charged += r.Charged
	}
	return did
}

// TestAsk: what is noted of a hit depends on when it was due and when it was asked, which is now.
func TestAsk(t *testing.T) {
	const hour = time.Hour
	for _, test := range []struct {
		name            string
		from, to, due   time.Duration // from now
		took            int64
		planned, missed int64
		late            time.Duration
	}{
		{"in the warm-up", hour, 2 * hour, -time.Second, 0, 0, 0, 0},
		{"in the measured part", -hour, hour, -5 * time.Second, 1, 1, 0, 5 * time.Second},
		{"due in the warm-up, asked in the measured part", -time.Second, hour, -3 * time.Second, 1, 0, 0, 3 * time.Second},
		{"due in the measured part, asked after it", -2 * hour, -hour, -hour - time.Second, 0, 1, 1, 0},
		{"later than can be told apart", -2 * hour, hour, -hour, 1, 1, 0, 10 * time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) { // where time stands still
			c := lone(t, 2)
			hit := scenario.Hit{At: 17, Key: 1, Checker: 0, Cost: 1}
			p := &plan{hits: [][]scenario.Hit{{hit}}, texts: []string{"x", "y"}, rules: []int{0, 1}}
			for n := int64(1); n <= 3; n++ { // of which 2 pass
				now := ownTime()
				d := newDriver(c, p, 0, now, now+int64(test.from), now+int64(test.to))
				d.ask(context.Background(), hit, now+int64(test.due))
				if d.took.TotalCount() != test.took || d.late.TotalCount() != test.took || d.planned != test.planned || d.missed != test.missed {
					t.Errorf("%s: %d times taken, %d latenesses, %d planned and %d missed; want %d, %d, %d and %d", test.name,
						d.took.TotalCount(), d.late.TotalCount(), d.planned, d.missed, test.took, test.took, test.planned, test.missed)
				}
				if late, took := time.Duration(d.late.Max()), d.took.Max(); late < test.late || late > test.late*1001/1000+1 || took > 1 {
					t.Errorf("%s: %v late, want %v, and the decision took %d ns", test.name, late, test.late, took)
				}
				if len(d.decided) != 1 || d.decided[0] != (decided{now, hit, n <= 2}) {
					t.Errorf("%s: the %d. time, decided %+v", test.name, n, d.decided)
				}
			}
			if did := tallyOf(c, p); did != (tally{3, 2, 2}) {
				t.Errorf("%s: the checker did %+v", test.name, did)
			}
			if r := c.Stats().Rules[0]; r.Allowed+r.Denied != 1 { // by tallyOf
				t.Errorf("%s: the other rule did %+v", test.name, r)
			}
		})
	}
}

// TestDriver: all hits are asked for in their order, each at its time, and each is in the figures
// that it belongs to.
func TestDriver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, ms = 100, int64(time.Millisecond)
		c := lone(t, 60)
		p := &plan{hits: [][]scenario.Hit{nil, nil}, texts: []string{"x"}, rules: []int{0}}
		for i := range int64(n) {
			p.hits[1] = append(p.hits[1], scenario.Hit{At: i * ms, Checker: 1, Cost: 1})
		}
		start := ownTime() + 5*ms
		from, to := start+30*ms, start+80*ms
		d := newDriver(c, p, 1, start, from, to)
		d.newPause = sleeper
		d.run(t.Context())
		if len(d.decided) != n || d.planned != 70 || d.took.TotalCount() != 50 || d.late.TotalCount() != 50 || d.missed != 20 {
			t.Fatalf("%d hits of %d decided, %d planned, %d and %d measured, %d missed", len(d.decided), n, d.planned,
				d.took.TotalCount(), d.late.TotalCount(), d.missed)
		}
		for i, one := range d.decided {
			if one != (decided{start + p.hits[1][i].At, p.hits[1][i], i < 60}) {
				t.Errorf("hit %d: %+v", i, one)
			}
		}

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		d = newDriver(c, p, 1, ownTime()+int64(time.Hour), from, to)
		d.newPause = sleeper
		if d.run(ctx); len(d.decided) != 0 {
			t.Errorf("%d hits decided after the end", len(d.decided))
		}
	})
}

// longer calls f with longer and longer times until it has had enough: a core may be busy otherwise
// for any of them.
func longer(t *testing.T, f func(length time.Duration) (enough bool)) {
	t.Helper()
	for length := 5 * time.Millisecond; !f(length); length *= 2 {
		if length > time.Minute {
			t.Fatalf("%v are not enough", length)
		}
	}
}

// several returns checkers and a plan with so many hits for each.
func several(t *testing.T, hits ...int) (checkers []*checker, p *plan) {
	p = &plan{texts: []string{"x", "y", "z"}, rules: []int{0, 1, 0}}
	for number, n := range hits {
		checkers = append(checkers, lone(t, 1000))
		p.hits = append(p.hits, nil)
		for i := range n {
			p.hits[number] = append(p.hits[number], scenario.Hit{Key: int32(i % 3), Checker: int32(number), Cost: 1})
		}
	}
	return checkers, p
}

// busyOf returns which checkers have decided something, and what all did.
func busyOf(checkers []*checker, p *plan) (busy []int, sum tally) {
	for number, c := range checkers {
		did := tallyOf(c, p)
		if did.decisions > 0 {
			busy = append(busy, number)
		}
		sum = tally{sum.decisions + did.decisions, sum.allowed + did.allowed, sum.charged + did.charged}
	}
	return busy, sum
}

// TestHammer: every decision and every hit that passed is in the sums, and each was at its own
// checker. It ends when it is stopped, or when there is nothing to ask.
func TestHammer(t *testing.T) {
	for _, test := range []struct {
		name  string
		cores int
		hits  []int // of each checker
		busy  []int
	}{
		{"more checkers", 2, []int{500, 300, 70, 1, 200}, []int{0, 1, 2, 3, 4}},
		{"more cores", 4, []int{500, 300}, []int{0, 1}},
		{"one that nothing is for", 2, []int{500, 0, 300}, []int{0, 2}},
	} {
		longer(t, func(length time.Duration) (enough bool) {
			checkers, p := several(t, test.hits...)
			asked, admitted, took := hammer(t.Context(), checkers, p, test.cores, length)
			busy, sum := busyOf(checkers, p)
			if sum != (tally{asked, admitted, admitted}) || took < length {
				t.Errorf("%s: %d decisions and %d admitted in %v; the checkers did %+v", test.name, asked, admitted, took, sum)
			}
			return slices.Equal(busy, test.busy)
		})
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	checkers, p := several(t, 500)
	hammer(ctx, checkers, p, 2, time.Hour)
	checkers, p = several(t, 0)
	if asked, admitted, _ := hammer(t.Context(), checkers, p, 2, time.Hour); asked != 0 || admitted != 0 {
		t.Errorf("with nothing to ask: %d decisions, %d admitted", asked, admitted)
	}
}
