package check

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
)

// token checks a hit that has to pass, and returns its token.
func token(t testing.TB, l *Limiter, now int64, key string, cost int64) string {
	t.Helper()
	d, text := l.CheckTokenAt(now, key, cost)
	if !d.Allowed || text == "" {
		t.Fatalf("a cost of %d of %q: %+v, token %q", cost, key, d, text)
	}
	return text
}

func mustSettle(t testing.TB, c *Checker, now int64, text string, cost int64) {
	t.Helper()
	if err := c.SettleAt(now, text, cost); err != nil {
		t.Fatal(err)
	}
}

func TestSettleLocally(t *testing.T) {
	for _, buckets := range []int{1, 60} {
		c := newChecker(t, Options{}, rule("r", 20, time.Minute, buckets))
		l := limiter(t, c, "r")
		first, second_ := token(t, l, noon, "k", 12), token(t, l, noon, "k", 8)
		if d := l.CheckAt(noon, "k", 1); d.Allowed { // leaves a block behind
			t.Fatalf("over the limit: %+v", d)
		}
		mustSettle(t, c, noon, first, 2)
		if d := l.CheckAt(noon, "k", 1); !d.Allowed || d.Remaining != 9 {
			t.Errorf("10 given back and 1 taken: %+v", d)
		}
		if err := c.SettleAt(noon, first, 1); !errors.Is(err, ErrSettled) || left(l, noon, "k") != 9 {
			t.Errorf("again: %v, %d left", err, left(l, noon, "k"))
		}
		mustSettle(t, c, noon+second, second_, 30) // more than the limit
		if d := l.CheckAt(noon+second, "k", 1); d.Allowed || d.Remaining != 0 {
			t.Errorf("far over the limit: %+v", d)
		}
		late := token(t, l, noon+4*int64(time.Minute), "k", 20)
		mustSettle(t, c, noon+9*int64(time.Minute), late, 0)
		if got := left(l, noon+9*int64(time.Minute), "k"); got != 20 {
			t.Errorf("a bucket that is gone: %d left", got)
		}
	}
}

func TestSettleErrors(t *testing.T) {
	c := newChecker(t, Options{}, rule("r", 20, time.Hour, 1))
	l := limiter(t, c, "r")
	good := token(t, l, noon, "k", 5)
	const hours = int64(time.Hour)
	for _, row := range []struct {
		why, token string
		at, cost   int64
		want       error
	}{
		{"a negative cost", good, 0, -1, ErrCost},
		{"a huge cost", good, 0, events.MaxCount + 1, ErrCost},
		{"no token", "", 0, 1, ErrToken},
		{"not one", "kristie", 0, 1, ErrToken},
		{"cut off", good[:len(good)-4], 0, 1, ErrToken},
		{"too old", good, 20*hours + 1, 1, ErrTokenAge},
		{"of the future", good, -hours, 1, ErrTokenAge},
		{"the last moment, and the largest cost", good, 20 * hours, events.MaxCount, nil},
		{"again", good, 0, 1, ErrSettled},
	} {
		err := c.SettleAt(noon+row.at, row.token, row.cost)
		if !errors.Is(err, row.want) || (err == nil) != (row.want == nil) {
			t.Errorf("%s: %v, want %v", row.why, err, row.want)
		}
	}
	if s := c.Stats(); s.SettlementsTaken != 1 || s.SettlementsAnswered != 1 {
		t.Errorf("stats: %d taken, %d answered", s.SettlementsTaken, s.SettlementsAnswered)
	}
}

// A token names what was charged, by every rule, and where.
func TestTokens(t *testing.T) {
	list := []rules.Rule{rule("requests", 3, time.Minute, 60), rule("spent", 100, time.Minute, 1)}
	f := newFleet(t, Options{Epoch: 9}, list...)
	user := identity.Attributes{{Name: "user", Value: "kristie"}}
	now := noon + 90*second
	f.Step(now)
	d, text := f.CheckTokenAt(now, user, 2)
	if !d.Allowed {
		t.Fatalf("%+v", d)
	}
	m, err := events.DecodeToken(text)
	if err != nil {
		t.Fatal(err)
	}
	if m.Epoch != 9 || m.Number != 1 || m.Made != now || len(m.Charges) != 2 {
		t.Fatalf("%v", m)
	}
	for i, want := range []string{"requests", "spent"} {
		c := m.Charges[i]
		if c.Rule.Name != want || string(c.Key) != "kristie" || c.Cost != 2 || c.Permits || c.Rule.Newest != list[i].Window.Bucket(now) {
			t.Errorf("%v", c)
		}
	}
	if d, text := f.CheckTokenAt(now, user, 2); d.Allowed || text != "" {
		t.Errorf("one rule denies: %+v, %q", d, text)
	}
	if got := left(limiter(t, f.Checker, "spent"), now, "kristie"); got != 98 {
		t.Errorf("%d left by the rule that did not deny", got)
	}
	d, text = f.CheckTokenAt(now, identity.Attributes{{Name: "animal", Value: "cat"}}, 1)
	if m, err = events.DecodeToken(text); err != nil || !d.Allowed || len(m.Charges) != 0 || m.Number != 3 {
		t.Errorf("no rule matches: %+v, %v, %v", d, m, err)
	}
	mustSettle(t, f.Checker, now, text, 7) // nothing to do
	if err := f.SettleAt(now, text, 7); !errors.Is(err, ErrSettled) {
		t.Errorf("twice: %v", err)
	}
}

// A rule that has a cost of its own is what a token is about, also for callers of an override; one without is left as
// it is.
func TestTokensOfRulesWithACost(t *testing.T) {
	requests, cost := rule("requests", 100, time.Minute, 1), rule("tokens", 1000, time.Minute, 1)
	cost.Cost = "tokens"
	cost.Overrides = []rules.Override{{Match: []rules.Condition{{Name: "tier", Value: "gold"}}, Factor: 10}}
	c := newChecker(t, Options{}, requests, cost)
	for tier, name := range map[string]string{"none": cost.Name, "gold": cost.WireName(0)} {
		user := identity.Attributes{{Name: "user", Value: tier}, {Name: "tier", Value: tier}, {Name: "tokens", Value: "400"}}
		_, text := c.CheckTokenAt(noon, user, 1)
		m, err := events.DecodeToken(text)
		if err != nil || len(m.Charges) != 1 || m.Charges[0].Rule.Name != name || m.Charges[0].Cost != 400 {
			t.Fatalf("%s: %v, %v", tier, m, err)
		}
		mustSettle(t, c, noon, text, 301)
		if got := limiter(t, c, "requests").PeekAt(noon, tier, 1).Remaining; got != 99 {
			t.Errorf("%s: %d requests left", tier, got)
		}
		l := c.program.Load().byName[name]
		if got := l.PeekAt(noon, tier, 1).Remaining; got != l.Rule().Limit-301 {
			t.Errorf("%s: %d left of %d", tier, got, l.Rule().Limit)
		}
	}
}

// The same for callers of an override, whose counter has the rule's cost.
func TestTokensOfOverridesWithACost(t *testing.T) {
	c := ofYAML(t, Options{}, `
rules:
  - {name: tokens, key: [user], limit: 1000/minute, cost: tokens, overrides: [{match: {tier: gold}, limit: 10x}]}
  - {name: requests, key: [user], limit: 60/minute}
`)
	user := identity.Attributes{{Name: "user", Value: "kristie"}, {Name: "tokens", Value: "100"}, {Name: "tier", Value: "gold"}}
	_, text := c.CheckTokenAt(noon, user, 1)
	mustSettle(t, c, noon, text, 500)
	if r, k := left(limiter(t, c, "requests"), noon, "kristie"), left(limiter(t, c, "tokens/tier=gold"), noon, "kristie"); r != 59 || k != 9500 {
		t.Errorf("%d requests left, %d tokens", r, k)
	}
}

// kindsOf lists a report's rows: a letter for the kind of hits, the key and its hits.
func kindsOf(r *events.Report) string {
	var all []string
	text, at := r.Hits.KeyText, 0
	for i, n := range r.Hits.KeyLength {
		row := [kinds]string{"", "denied ", "refunded "}[kindOf(r.Hits.Rules[r.Hits.KeyRule[i]])] + string(text[:n])
		for range r.Hits.KeyCells[i] {
			row += fmt.Sprint(" ", r.Hits.Value[at])
			at++
		}
		all, text = append(all, row), text[n:]
	}
	return strings.Join(all, ", ")
}

// answerAll answers the last report: a total of the newest bucket for each row, 0 for none, and of its settlements.
func (f *fleet) answerAll(now int64, settlements int, totals ...uint64) {
	f.t.Helper()
	r := f.last()
	m := &events.Refresh{Epoch: r.Epoch, Shard: r.Shard, Sequence: r.Sequence, Generation: 1, Version: r.Sequence, Settlements: uint32(settlements)}
	for _, n := range totals {
		m.KeyCells, m.Age, m.Total = append(m.KeyCells, 1), append(m.Age, 0), append(m.Total, n)
	}
	f.receive(now, events.KindRefresh, m)
}

func TestSettlementsAreReported(t *testing.T) {
	f := newFleet(t, Options{}, rule("r", 20, time.Minute, 1))
	l := limiter(t, f.Checker, "r")
	now := noon
	text, other := token(t, l, now, "k", 12), token(t, l, now, "k", 8)
	l.CheckAt(now, "k", 1) // a block
	now += 50 * ms
	f.Step(now)
	if got := kindsOf(f.last()); got != "refunded k, k 20" {
		t.Errorf("where there are tokens, refunds are asked for: %s", got)
	}
	f.answerAll(now, 0, 0, 20)
	mustSettle(t, f.Checker, now, text, 2)
	mustSettle(t, f.Checker, now, other, 9)
	if d := l.CheckAt(now, "k", 1); d.Allowed {
		t.Errorf("before the store has heard of it: %+v", d)
	}
	now += 50 * ms
	f.Step(now)
	m := f.last()
	if got := kindsOf(m); got != "refunded k, k" || len(m.Settlements) != 2 || m.Settlements[0].Hits != -10 || m.Settlements[1].Hits != 1 {
		t.Fatalf("%s, %v", got, m.Settlements)
	}
	if m.Settlements[0].Number == m.Settlements[1].Number || m.Settlements[0].Epoch != f.Epoch() {
		t.Errorf("%v", m.Settlements)
	}
	f.answerAll(now, 2, 10, 21)
	if d := l.CheckAt(now, "k", 1); !d.Allowed || d.Remaining != 8 {
		t.Errorf("21 less 10, and one more: %+v", d)
	}
	if s := f.Stats(); s.SettlementsTaken != 2 || s.SettlementsAnswered != 2 || s.SettlementsLost != 0 {
		t.Errorf("stats: %+v", s)
	}
	reports := len(f.tape.reports)
	f.Step(now + 50*ms) // the hit
	f.Step(now + 100*ms)
	if got := f.tape.reports[reports:]; len(got) != 1 || len(got[0].Settlements) != 0 {
		t.Errorf("then: %v", got)
	}
}

// An aggregator of before settlements ignores them, and says so by saying nothing: they are sent again.
func TestSettlementsAreSentAgain(t *testing.T) {
	f := newFleet(t, Options{}, rule("r", 20, time.Minute, 1))
	l := limiter(t, f.Checker, "r")
	text := token(t, l, noon, "k", 12)
	now := noon + 50*ms
	f.Step(now)
	f.answerAll(now, 0, 0, 12)
	mustSettle(t, f.Checker, now, text, 2)
	for range 3 {
		now += 50 * ms
		f.Step(now)
		m := f.last()
		if len(m.Settlements) != 1 || m.Settlements[0].Hits != -10 {
			t.Fatalf("%v", m.Settlements)
		}
		f.answerAll(now, 0, make([]uint64, len(m.Hits.KeyLength))...)
	}
	f.Step(now + 50*ms)
	f.receive(now+50*ms, events.KindWelcome, &events.Welcome{Epoch: f.Epoch(), Shards: 3, Time: now, Sent: now})
	f.receive(now+50*ms, events.KindWelcome, &events.Welcome{Epoch: f.Epoch(), Shards: 3, Time: now, Sent: now}) // gives up what is in flight
	f.Step(now + 100*ms)
	m := f.last()
	if len(m.Settlements) != 1 || m.Shards != 3 || m.Shard != events.Shard("r", "k", 3) {
		t.Fatalf("with other shards: %v", m)
	}
	f.answerAll(now+100*ms, 1, make([]uint64, len(m.Hits.KeyLength))...)
	if s := f.Stats(); s.SettlementsTaken != 1 || s.SettlementsAnswered != 1 || s.SettlementsLost != 0 {
		t.Errorf("stats: %+v", s)
	}
}

// What no aggregator takes is given up, and does not keep others from being sent.
func TestSettlementsAreGivenUp(t *testing.T) {
	f := newFleet(t, Options{}, rule("r", 20, time.Minute, 1))
	l := limiter(t, f.Checker, "r")
	refused, old := token(t, l, noon, "k", 2), token(t, l, noon, "k", 2)
	mustSettle(t, f.Checker, noon, refused, 1)
	now := noon + 50*ms
	f.Step(now)
	f.refuse(now, f.last().Sequence)
	now += int64(refusedFor)
	for range mostRefusals - 1 {
		f.refuse(now, f.last().Sequence)
	}
	if s := f.Stats(); s.SettlementsLost != 1 || s.ReportsGivenUp != 1 {
		t.Errorf("refused: %+v", s)
	}
	mustSettle(t, f.Checker, now, old, 1)
	f.Step(now + 50*ms)
	f.answerAll(now+50*ms, 0, make([]uint64, len(f.last().Hits.KeyLength))...) // not taken
	reports := len(f.tape.reports)
	f.Step(now + 21*int64(time.Hour))
	for _, m := range f.tape.reports[reports:] {
		if len(m.Settlements) > 0 {
			t.Errorf("too old: %v", m.Settlements)
		}
	}
	if s := f.Stats(); s.SettlementsLost != 2 {
		t.Errorf("too old: %+v", s)
	}
}

func TestTooManySettlements(t *testing.T) {
	f := newFleet(t, Options{MaxSettling: 2}, rule("r", 20, time.Minute, 1))
	l := limiter(t, f.Checker, "r")
	var all []string
	for range 3 {
		all = append(all, token(t, l, noon, "k", 1))
	}
	mustSettle(t, f.Checker, noon, all[0], 0)
	mustSettle(t, f.Checker, noon, all[1], 0)
	if err := f.SettleAt(noon, all[2], 0); !errors.Is(err, ErrSettling) {
		t.Errorf("a third: %v", err)
	}
	f.Step(noon + 50*ms)
	f.answerAll(noon+50*ms, 2, 2, 3)
	mustSettle(t, f.Checker, noon+50*ms, all[2], 0) // it was not used up
}

// A caller who is kept out passes as soon as this checker hears of a refund, however it does.
func TestRefundsFreeCallers(t *testing.T) {
	alarm := func(f *fleet, l *Limiter, kinds ...int) {
		tab := &events.Table{}
		for i, kind := range kinds {
			r := l.wire(noon)
			r.Refunded = kind == ofRefunded
			tab.Rules = append(tab.Rules, r)
			tab.AddKey(uint32(i), "k")
			tab.AddCell(0, map[int]uint64{ofAdmitted: 50, ofRefunded: 45}[kind])
		}
		f.receive(noon, events.KindAlarm, &events.Alarm{Generation: 1, Version: 1, Totals: tab})
	}
	for why, hear := range map[string]func(f *fleet, l *Limiter){
		"one alarm":    func(f *fleet, l *Limiter) { alarm(f, l, ofAdmitted, ofRefunded) },
		"either order": func(f *fleet, l *Limiter) { alarm(f, l, ofRefunded, ofAdmitted) },
		"two alarms":   func(f *fleet, l *Limiter) { alarm(f, l, ofAdmitted); alarm(f, l, ofRefunded) },
		"twice, late":  func(f *fleet, l *Limiter) { alarm(f, l, ofRefunded, ofAdmitted); alarm(f, l, ofAdmitted) },
		"and repeated": func(f *fleet, l *Limiter) { alarm(f, l, ofRefunded, ofAdmitted); alarm(f, l, ofRefunded) },
	} {
		f := newFleet(t, Options{}, rule("r", 20, time.Minute, 1))
		l := limiter(t, f.Checker, "r")
		l.CheckAt(noon, "k", 1)
		f.alarm(noon, 1, l, "k", 50)
		if d := l.CheckAt(noon, "k", 1); d.Allowed {
			t.Fatalf("%s: before: %+v", why, d)
		}
		hear(f, l)
		if got := left(l, noon, "k"); got != 14 {
			t.Errorf("%s: %d left, want 20 - (50 + 1 - 45)", why, got)
		}
		f.Step(noon + 50*ms)
		if got := kindsOf(f.last()); got != "refunded k, k 1" {
			t.Errorf("%s: the report: %s", why, got)
		}
	}
	f := newFleet(t, Options{}, rule("r", 20, time.Minute, 1)) // of a key that was never here
	l := limiter(t, f.Checker, "r")
	alarm(f, l, ofAdmitted, ofRefunded)
	if got := left(l, noon, "k"); got != 15 {
		t.Errorf("an unknown key: %d left", got)
	}
}

// A checker that has heard of no refunds is told that there are some, and asks: its keys may be kept out by what does
// not count any more.
func TestRefundsAreAskedForOnAHint(t *testing.T) {
	f := newFleet(t, Options{}, rule("r", 20, time.Minute, 1), rule("s", 20, time.Minute, 1))
	l := limiter(t, f.Checker, "r")
	l.CheckAt(noon, "k", 1)
	limiter(t, f.Checker, "s").CheckAt(noon, "x", 1)
	now := noon + 50*ms
	f.Step(now)
	m := f.last()
	place := uint32(0)
	if m.Hits.Rules[0].Name != "r" {
		place = 1
	}
	f.receive(now, events.KindRefresh, &events.Refresh{
		Epoch: m.Epoch, Sequence: m.Sequence, Generation: 1, Version: 1, Refunding: []uint32{place, 77},
		KeyCells: []uint32{1, 1}, Age: []int64{0, 0}, Total: []uint64{50, 50},
	})
	if d := l.CheckAt(now, "k", 1); d.Allowed {
		t.Fatalf("50 of 20: %+v", d)
	}
	f.Step(now + 50*ms)
	if got := kindsOf(f.last()); got != "refunded k, k" {
		t.Fatalf("then it asks: %q", got)
	}
	f.answerAll(now+50*ms, 0, 45, 50)
	if got := left(l, now+50*ms, "k"); got != 15 {
		t.Errorf("%d left", got)
	}
}

// Refunds belong to buckets: they go when these do, and a store that has lost its data has none.
func TestRefundsAreOfBuckets(t *testing.T) {
	f := newFleet(t, Options{}, rule("r", 20, time.Minute, 6))
	l := limiter(t, f.Checker, "r")
	token(t, l, noon, "k", 20)
	now := noon + 50*ms
	f.Step(now)
	f.answerAll(now, 0, 15, 20)
	for _, row := range []struct{ seconds, left int64 }{{0, 15}, {9, 15}, {55, 15}, {62, 16}, {66, 18}, {70, 20}} {
		if got := left(l, noon+row.seconds*second, "k"); got != row.left {
			t.Errorf("after %d s: %d left, want %d", row.seconds, got, row.left)
		}
	}
	l.CheckAt(noon+100*second, "k", 4)
	f.Step(noon + 100*second)
	f.answerAll(noon+100*second, 0, 3, 10)
	if got := left(l, noon+100*second, "k"); got != 13 {
		t.Fatalf("%d left", got)
	}
	l.CheckAt(noon+100*second, "k", 1)
	f.Step(noon + 101*second)
	f.answerIn(noon+101*second, 2, 1) // too few rows: nothing
	m := f.last()
	f.receive(noon+101*second, events.KindRefresh, &events.Refresh{
		Epoch: m.Epoch, Sequence: m.Sequence, Generation: 2, Version: 1, KeyCells: []uint32{0, 1}, Age: []int64{0}, Total: []uint64{1},
	})
	if got := left(l, noon+101*second, "k"); got != 19 {
		t.Errorf("after a loss: %d left", got)
	}
}

func TestUsedTokensAreRemembered(t *testing.T) {
	var u used
	const least = usedChunk * usedChunks
	for n := range uint64(3 * least) {
		if n%61 == 0 && u.has(7, n+1) {
			t.Fatalf("%d before it was settled", n+1)
		}
		u.add(7, n+1)
		for _, back := range []uint64{0, 1, 511, 512, 1000, least - 1} {
			if n%61 == 0 && back <= n && !u.has(7, n+1-back) {
				t.Fatalf("at %d: %d is forgotten", n+1, n+1-back)
			}
		}
	}
	if n := len(u.young) + len(u.old); n > 2*usedChunks {
		t.Errorf("%d chunks in memory", n)
	}
	if u.has(8, 1) || u.has(7, 1) {
		t.Error("it remembers what it should not")
	}
}

// Of many who settle one token at the same time, one does.
func TestSettleAtTheSameTime(t *testing.T) {
	c := newChecker(t, Options{}, rule("r", 1000, time.Hour, 1))
	l := limiter(t, c, "r")
	for range 50 {
		text := token(t, l, noon, "k", 10)
		var done sync.WaitGroup
		var mu sync.Mutex
		settled := 0
		for range 4 {
			done.Go(func() {
				err := c.SettleAt(noon, text, 0)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					settled++
				} else if !errors.Is(err, ErrSettled) {
					t.Error(err)
				}
			})
		}
		done.Wait()
		if settled != 1 || left(l, noon, "k") != 1000 {
			t.Fatalf("settled %d times, %d left", settled, left(l, noon, "k"))
		}
	}
}
