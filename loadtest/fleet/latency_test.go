package fleet

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/offpath-io/offpath/loadtest/scenario"
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
	if err != nil {
		t.Fatal(err)
	}
	c := &checker{}
	if c.Checker, err = check.New(check.Options{Rules: set, MaxIdleKeys: -1}); err != nil {
		t.Fatal(err)
	}
	for _, r := range list {
		l, _ := c.Limiter(r.Name)
		c.limiters = append(c.limiters, l)
	}
	return c
}

// tally is what a checker says that it did.
type tally struct{ decisions, allowed, charged int64 }

// tallyOf returns what a checker did by a plan. It is exact only when every key has been looked at under
// its lock, which a request for 2 hits makes sure of; these requests are left out.
func tallyOf(c *checker, p *plan) (did tally) {
	for key, text := range p.texts {
		did.decisions--
		if c.limiters[p.rules[key]].Check(text, 2).Allowed {
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
		c := lone(t, 2)
		hit := scenario.Hit{At: 17, Key: 1, Checker: 0}
		p := &plan{hits: [][]scenario.Hit{{hit}}, texts: []string{"x", "y"}, rules: []int{0, 1}}
		for n := int64(1); n <= 3; n++ { // of which 2 pass
			now := ownTime()
			d := newDriver(c, p, 0, now, now+int64(test.from), now+int64(test.to))
			d.ask(context.Background(), hit, now+int64(test.due))
			if d.took.TotalCount() != test.took || d.late.TotalCount() != test.took || d.planned != test.planned || d.missed != test.missed {
				t.Errorf("%s: %d times taken, %d latenesses, %d planned and %d missed; want %d, %d, %d and %d", test.name,
					d.took.TotalCount(), d.late.TotalCount(), d.planned, d.missed, test.took, test.took, test.planned, test.missed)
			}
			if late := time.Duration(d.late.Max()); late < test.late*999/1000 || late > test.late+time.Minute {
				t.Errorf("%s: %v late, want %v", test.name, late, test.late)
			}
			if took := time.Duration(d.took.Max()); took > 2*time.Second {
				t.Errorf("%s: the decision took %v, which is how late it was", test.name, took)
			}
			if len(d.decided) != 1 || d.decided[0].hit != hit ||
				d.decided[0].at < now || d.decided[0].at > ownTime() || d.decided[0].allowed != (n <= 2) {
				t.Errorf("%s: the %d. time, decided %+v", test.name, n, d.decided)
			}
		}
		if did := tallyOf(c, p); did != (tally{3, 2, 2}) {
			t.Errorf("%s: the checker did %+v", test.name, did)
		}
		if r := c.Stats().Rules[0]; r.Allowed+r.Denied != 1 { // by tallyOf
			t.Errorf("%s: the other rule did %+v", test.name, r)
		}
	}
}

// TestDecisionIsBracketed: a very long key is hashed before anything is decided, which takes
// milliseconds on any machine. That is in the decision's time, neither before it nor in the lateness.
func TestDecisionIsBracketed(t *testing.T) {
	const size = 32 << 20
	c := lone(t, 1000)
	p := &plan{hits: [][]scenario.Hit{nil}, texts: []string{strings.Repeat("x", size)}, rules: []int{0}}
	now := ownTime()
	d := newDriver(c, p, 0, now, now-int64(time.Hour), now+int64(time.Hour))
	var before int64 // the shortest time from asking for a decision to its beginning
	for i := range 5 {
		due := ownTime()
		d.ask(context.Background(), scenario.Hit{}, due)
		if wait := d.decided[i].at - due; i == 0 || wait < before {
			before = wait
		}
	}
	took := d.took.Min()
	if took < int64(time.Millisecond) {
		t.Errorf("it takes %v to decide by a key of %d bytes", time.Duration(took), size)
	}
	if before > took/2 {
		t.Errorf("a decision of %v is noted at %v after its begin", time.Duration(took), time.Duration(before))
	}
	if late := d.late.Min(); late > took/2 {
		t.Errorf("a decision of %v that was asked for at once is %v late", time.Duration(took), time.Duration(late))
	}
}

// TestDriver: all hits are asked for in their order, none before its time, and each is in the figures
// that it belongs to.
func TestDriver(t *testing.T) {
	const n = 100
	c := lone(t, 60)
	p := &plan{hits: [][]scenario.Hit{nil, nil}, texts: []string{"x"}, rules: []int{0}}
	for i := range n {
		p.hits[1] = append(p.hits[1], scenario.Hit{At: int64(i) * int64(time.Millisecond), Checker: 1})
	}
	start := ownTime() + int64(5*time.Millisecond)
	from, to := start+int64(30*time.Millisecond), start+int64(80*time.Millisecond)
	d := newDriver(c, p, 1, start, from, to)
	d.run(context.Background())
	if len(d.decided) != n || d.planned != 70 {
		t.Fatalf("%d hits of %d decided, %d planned for the measured part and what follows, want 70", len(d.decided), n, d.planned)
	}
	var measured, missed int64
	for i, one := range d.decided {
		due := start + p.hits[1][i].At
		if one.hit != p.hits[1][i] || one.at < due || one.allowed != (i < 60) {
			t.Errorf("hit %d: %+v, %v after it was due", i, one, time.Duration(one.at-due))
		}
		if one.at >= from && one.at < to {
			measured++
		}
		if due >= from && one.at >= to {
			missed++
		}
	}
	if d.took.TotalCount() != measured || d.late.TotalCount() != measured || d.missed != missed {
		t.Errorf("%d decisions and %d latenesses of %d in the measured part; %d missed of %d",
			d.took.TotalCount(), d.late.TotalCount(), measured, d.missed, missed)
	}

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	d = newDriver(c, p, 1, ownTime()+int64(time.Hour), from, to)
	if d.run(ctx); len(d.decided) != 0 {
		t.Errorf("%d hits decided after the end", len(d.decided))
	}
}

// TestHammer: every decision and every hit that passed is in the sums, and each was at its own checker.
func TestHammer(t *testing.T) {
	const length = 200 * time.Millisecond // enough for every core to begin, on a machine that does other things too
	for _, test := range []struct {
		name  string
		cores int
		hits  []int // of each checker
	}{
		{"as many cores as checkers", 2, []int{500, 300}},
		{"more checkers", 2, []int{500, 300, 70, 1, 200}},
		{"more cores", 4, []int{500, 300}},
		{"one checker, many cores", 8, []int{1000}},
		{"one that nothing is for", 2, []int{500, 0, 300}},
	} {
		p := &plan{texts: []string{"x", "y", "z"}, rules: []int{0, 1, 0}}
		var checkers []*checker
		for number, n := range test.hits {
			checkers = append(checkers, lone(t, 20_000))
			p.hits = append(p.hits, nil)
			for i := range n {
				p.hits[number] = append(p.hits[number], scenario.Hit{Key: int32(i % 3), Checker: int32(number)})
			}
		}
		asked, admitted, took := hammer(context.Background(), checkers, p, test.cores, length)
		var sum tally
		for number, c := range checkers {
			did := tallyOf(c, p)
			if (did.decisions > 0) != (test.hits[number] > 0) {
				t.Errorf("%s: checker %d, which %d hits are for, did %+v", test.name, number, test.hits[number], did)
			}
			sum.decisions, sum.allowed, sum.charged = sum.decisions+did.decisions, sum.allowed+did.allowed, sum.charged+did.charged
		}
		if want := (tally{asked, admitted, admitted}); sum != want || asked == 0 || admitted == 0 {
			t.Errorf("%s: %d decisions and %d admitted; the checkers did %+v", test.name, asked, admitted, sum)
		}
		if took < length || took > time.Minute {
			t.Errorf("%s: it took %v, want %v and little more", test.name, took, length)
		}
	}
}

// TestHammerDenies: what is denied is a decision, but not admitted.
func TestHammerDenies(t *testing.T) {
	c := lone(t, 10)
	p := &plan{hits: [][]scenario.Hit{make([]scenario.Hit, 100)}, texts: []string{"x"}, rules: []int{1}}
	asked, admitted, _ := hammer(context.Background(), []*checker{c}, p, 2, 20*time.Millisecond)
	if admitted != 10 || asked <= 10 {
		t.Errorf("%d of %d admitted, want 10 of many", admitted, asked)
	}
	if r := c.Stats().Rules[0]; r.Allowed+r.Denied != 0 {
		t.Errorf("the other rule did %+v", r)
	}

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if asked, _, took := hammer(ctx, []*checker{c}, p, 2, time.Hour); took > time.Minute || asked > 1e9 {
		t.Errorf("stopped before its begin it took %v for %d decisions", took, asked)
	}
	p.hits[0] = nil
	if asked, admitted, took := hammer(context.Background(), []*checker{c}, p, 2, time.Hour); asked != 0 || admitted != 0 || took > time.Minute {
		t.Errorf("with nothing to ask: %d decisions, %d admitted, in %v", asked, admitted, took)
	}
}

// TestHammerShares: a core has checkers of its own, or all of them if they are too few for that.
func TestHammerShares(t *testing.T) {
	for _, test := range []struct {
		checkers, core, cores int
		want                  []int
	}{{3, 0, 2, []int{0, 2}}, {3, 1, 2, []int{1}}, {2, 3, 4, []int{0, 1}}, {1, 1, 2, []int{0}}} {
		p := &plan{texts: []string{"x"}, rules: []int{0}}
		var checkers []*checker
		for range test.checkers {
			checkers = append(checkers, lone(t, 1000))
			p.hits = append(p.hits, make([]scenario.Hit, 32))
		}
		var stopped atomic.Bool
		timer := time.AfterFunc(50*time.Millisecond, func() { stopped.Store(true) })
		asked, _ := p.hammer(checkers, test.core, test.cores, &stopped)
		timer.Stop()
		var busy []int
		for number, c := range checkers {
			if tallyOf(c, p).decisions > 0 {
				busy = append(busy, number)
			}
		}
		if !slices.Equal(busy, test.want) || asked == 0 {
			t.Errorf("core %d of %d asks %v of %d checkers, %d times; want %v",
				test.core, test.cores, busy, test.checkers, asked, test.want)
		}
	}
}
