package console

import (
	"encoding/json"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/offpath-io/offpath/cmd/internal/console/history"
	"github.com/offpath-io/offpath/internal/status"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// at is a clock that a test sets.
type at struct{ time.Time }

func (c *at) now() time.Time { return c.Time }

func (c *at) pass(d time.Duration) { c.Time = c.Add(d) }

func checkerSays(name string, allowed, denied int64) status.Checker {
	return status.Checker{
		Part: status.Part{Name: name, Every: 1000}, Freshness: "fresh",
		Rules:  []status.Decisions{{Rule: "r", Allowed: allowed, Denied: denied}},
		Denied: status.Keys{Span: 10_000, List: []status.Key{{Rule: "r", Key: "k", Count: denied}}},
	}
}

// TestSums: the fleet's numbers are the sums of what is heard; who is silent is left out, and who
// leaves is gone.
func TestSums(t *testing.T) {
	clock := &at{noon}
	p := newPicture(clock.now)
	p.checker(checkerSays("a", 10, 1))
	p.checker(checkerSays("b", 20, 2))
	clock.pass(time.Second)
	p.checker(checkerSays("a", 15, 1))
	p.checker(checkerSays("b", 20, 4))
	for _, step := range []struct {
		why             string
		do              func()
		checkers        int
		silent          int
		allowed, denied int64
		rate            float64 // of admitted ones
	}{
		{"both", func() {}, 2, 0, 35, 5, 5},
		{"several come at once", func() { p.checker(checkerSays("a", 20, 1)); p.checker(checkerSays("a", 25, 1)) }, 2, 0, 45, 5, 5},
		{"one has started again", func() { p.checker(checkerSays("a", 1, 0)) }, 2, 0, 21, 4, 0},
		{"b falls silent", func() { clock.pass(5 * time.Second); p.checker(checkerSays("a", 2, 0)) }, 1, 1, 2, 0, 0.2},
		{"and comes back", func() { p.checker(checkerSays("b", 20, 4)) }, 2, 0, 22, 4, 0.2},
		{"a leaves", func() {
			s := checkerSays("a", 3, 0)
			s.Leaving = true
			p.checker(s)
		}, 1, 0, 20, 4, 0},
		{"b is forgotten", func() { clock.pass(2 * time.Minute); p.forget() }, 0, 0, 0, 0, 0},
	} {
		step.do()
		v := p.view()
		var rule RuleView
		if len(v.Rules) > 0 {
			rule = v.Rules[0]
		}
		if v.Heard.Checkers != step.checkers || v.Heard.Silent != step.silent || v.Heard.Allowed != step.allowed || v.Heard.Denied != step.denied ||
			rule.Allowed != step.allowed || rule.Denied != step.denied || rule.AllowedRate != step.rate {
			t.Errorf("%s: %+v, %+v", step.why, v.Heard, rule)
		}
	}
}

// TestRatesAgree: of a fleet in which as much happens all the time, the numbers per second, of all
// checkers and whatever aggregators tell of the same hits, are those of the charts.
func TestRatesAgree(t *testing.T) {
	clock := &at{noon}
	p := newPicture(clock.now)
	for i := range int64(60) {
		for j, name := range []string{"a", "b"} {
			p.checker(checkerSays(name, 30*i, 10*i))
			p.aggregator(status.Aggregator{
				Part: status.Part{Name: name, Every: 1000}, Rules: []status.Rule{{Name: "r", Counted: 30*i + int64(j)}},
			})
			clock.pass(500 * time.Millisecond)
		}
		p.history.Listen(clock.Add(-time.Second), clock.Time)
	}
	h := p.view().Heard
	chart, _ := p.history.Read("15m", "", clock.now())
	last := len(chart.Allowed) - 3 // the one before the present may still miss a status
	if h.AllowedRate != 60 || h.DeniedRate != 20 || *chart.Allowed[last] != 60 || *chart.Denied[last] != 20 {
		t.Errorf("%v and %v per second; in the chart %v and %v", h.AllowedRate, h.DeniedRate, *chart.Allowed[last], *chart.Denied[last])
	}
}

// TestHistoryOfPicture: it has what came since a part's status before, and nothing of what it did
// before it was first heard, nor what a removed rule had counted.
func TestHistoryOfPicture(t *testing.T) {
	clock := &at{noon}
	p := newPicture(clock.now)
	for i := range int64(4) {
		s := checkerSays("a", 1000+i*i, 1000)
		s.Rules[0].False, s.Rules[0].Lost = 10*i, i
		s.Rules = append(s.Rules, status.Decisions{Rule: "removed", Allowed: 1e6 * i})
		p.checker(s)
		p.aggregator(status.Aggregator{Part: status.Part{Name: "x"}, Rules: []status.Rule{{Name: "r", Over: float64(i) / 2}}})
		clock.pass(time.Second)
	}
	all, rules := p.history.Lately(time.Minute, clock.now())
	want := history.Point{Allowed: 9, False: 30, Lost: 3, Over: 1.5}
	if all != want || len(rules) != 1 || rules["r"] != want {
		t.Errorf("%+v, %+v", all, rules)
	}
}

// TestRulesComeAndGo: an aggregator tells of its latest rules only. What one has counted before it
// was left out is no news when it comes back; what came meanwhile is.
func TestRulesComeAndGo(t *testing.T) {
	clock := &at{noon}
	p := newPicture(clock.now)
	says := func(more ...status.Rule) {
		rules := more
		for i := range rulesTold - len(more) {
			rules = append(rules, status.Rule{Name: fmt.Sprint("busy", i)})
		}
		p.aggregator(status.Aggregator{Part: status.Part{Name: "x"}, Rules: rules})
		clock.pass(time.Second)
	}
	a := func(over float64) status.Rule { return status.Rule{Name: "a", Over: over} }
	says(a(1000))
	says(a(1001))
	says()
	says()
	says(a(1004), status.Rule{Name: "never told of before", Over: 1000})
	says(status.Rule{Name: "never told of before", Over: 1002})
	all, rules := p.history.Lately(time.Minute, clock.now())
	if all.Over != 1+3+2 || rules["a"].Over != 1+3 || rules["never told of before"].Over != 2 {
		t.Errorf("%+v, %+v", all, rules)
	}
	for i := range 3 * maxRules {
		says(status.Rule{Name: fmt.Sprint("forged", i)})
	}
	if n := len(p.aggregators["x"].over); n != maxRules {
		t.Errorf("%d rules are remembered", n)
	}
	clock.pass(2 * time.Minute)
	if p.forget(); p.held != 0 {
		t.Errorf("all have gone: %d bytes are held", p.held)
	}
}

// TestHostileCounters: counters as large as can be make no sums wrong for longer than they are
// heard, nor negative.
func TestHostileCounters(t *testing.T) {
	clock := &at{noon}
	p := newPicture(clock.now)
	for _, n := range []int64{0, math.MaxInt64} {
		for _, name := range []string{"a", "b"} {
			s := checkerSays(name, n, n)
			s.Rules = append(s.Rules, status.Decisions{Rule: "s", Allowed: n, Denied: n, False: n, Lost: n})
			p.checker(s)
		}
		clock.pass(time.Second)
	}
	if h := p.view().Heard; h.Allowed != math.MaxInt64 || h.Denied != math.MaxInt64 {
		t.Errorf("%+v", h)
	}
	if all, _ := p.history.Lately(time.Minute, clock.now()); all.Allowed != 4*maxMore || all.Lost != 2*maxMore || all.False != 2*maxMore {
		t.Errorf("%+v", all)
	}
}

// TestTopKeysAddUp: keys of several parts, each by its own span.
func TestTopKeysAddUp(t *testing.T) {
	top := merge([]*status.Keys{
		{Span: 10_000, List: []status.Key{{Rule: "r", Key: "a", Count: 100}, {Rule: "r", Key: "b", Count: 50}}},
		{Span: 20_000, List: []status.Key{{Rule: "r", Key: "b", Count: 300}, {Rule: "s", Key: "a", Count: 20}}},
		{Span: 0, List: []status.Key{{Rule: "t", Key: "a", Count: 2}}},
	})
	if got := fmt.Sprint(top); got != "[{{r b} 20} {{r a} 10} {{t a} 2} {{s a} 1}]" {
		t.Error(got)
	}
	var many status.Keys
	for i := range 100 {
		many.List = append(many.List, status.Key{Rule: "r", Key: status.Text(fmt.Sprint(i)), Count: int64(i)})
	}
	p := newPicture((&at{noon}).now)
	p.checker(status.Checker{Part: status.Part{Name: "few"}, Denied: status.Keys{List: many.List[:deniedTold-1]}})
	if h := p.view().Heard; h.Limited != deniedTold-1 || h.LimitedMore {
		t.Errorf("%+v", h)
	}
	p.checker(status.Checker{Part: status.Part{Name: "full"}, Denied: status.Keys{List: many.List[:deniedTold]}})
	if h := p.view().Heard; h.Limited != deniedTold || !h.LimitedMore {
		t.Errorf("%+v", h)
	}
	p.aggregator(status.Aggregator{Part: status.Part{Name: "x"}, Used: many})
	if top := p.view().Used; len(top) != topShown || top[0].Key != "99" {
		t.Errorf("%v", top)
	}
}

// TestRulesHeard: a checker tells its rules now and then; they are known in between. All checkers
// of a fleet have the same, which are kept once.
func TestRulesHeard(t *testing.T) {
	p := newPicture((&at{noon}).now)
	for i := range 10 {
		s := checkerSays(fmt.Sprint(i), 1, 0)
		s.Set = []status.Rule{{Name: "r", Limit: 5, Revision: 1}}
		p.checker(s)
		p.checker(checkerSays(fmt.Sprint(i), 2, 0)) // without
	}
	for _, h := range p.checkers {
		if len(h.Set) != 1 || &h.Set[0] != &p.set[0] {
			t.Errorf("%s has a set of its own: %v", h.Name, h.Set)
		}
	}
	p.aggregator(status.Aggregator{Part: status.Part{Name: "x"}, Rules: []status.Rule{{Name: "r", Limit: 6, Revision: 2}, {Name: "s", Limit: 1}}})
	if got := p.rulesHeard(); len(got) != 2 || got["r"].Limit != 6 || got["s"].Limit != 1 {
		t.Errorf("%+v", got)
	}
}

// TestHeldIsBounded: who has one checker's password can speak in the name of any number of its
// processes. What is kept of them all is bounded, and those that were there before stay in view.
func TestHeldIsBounded(t *testing.T) {
	clock := &at{noon}
	p := newPicture(clock.now)
	p.checker(checkerSays("honest", 1, 0))
	for i := range 10 * maxHeld / (status.MaxRules * 240) {
		s := checkerSays(fmt.Sprint("forged.", i), 1, 1)
		s.Rules = make([]status.Decisions, status.MaxRules)
		s.Set = []status.Rule{{Name: fmt.Sprint(i)}}
		p.checker(s)
	}
	if p.held > maxHeld || p.held < maxHeld/2 {
		t.Errorf("%d bytes are held", p.held)
	}
	p.checker(checkerSays("honest", 5, 0))
	clock.pass(time.Second)
	if h := p.checkers["honest"]; h == nil || h.Rules[0].Allowed != 5 {
		t.Errorf("%+v", h)
	}
	clock.pass(2 * time.Minute)
	p.forget()
	if p.held != 0 || len(p.checkers) != 0 {
		t.Errorf("all have gone: %d bytes are held of %d checkers", p.held, len(p.checkers))
	}
}

// TestHostileStatusesAreBounded: what a picture keeps of statuses that are made up to take as much
// as they can is not much more than it reckons with, however long the texts are that were cut.
func TestHostileStatusesAreBounded(t *testing.T) {
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	p, before := newPicture(time.Now), heap()
	for i := range 50 {
		s := status.Checker{Part: status.Part{Name: fmt.Sprint("c", i), Problem: strings.Repeat("x", 200<<10)}}
		for r := range 700 {
			name := fmt.Sprintf("%03d-%03d-%0200d", i, r, 0)
			s.Rules = append(s.Rules, status.Decisions{Rule: name})
			s.Set = append(s.Set, status.Rule{Name: name[:8]})
		}
		data, err := json.Marshal(s)
		must(t, err)
		s, err = status.DecodeChecker(data)
		must(t, err)
		p.checker(s)
	}
	grown := int(heap()) - int(before)
	if len(p.checkers) != 50 || grown > p.held*5/4 {
		t.Errorf("%d statuses grew the heap by %d KB; reckoned with %d KB", len(p.checkers), grown>>10, p.held>>10)
	}
	runtime.KeepAlive(p)
}
