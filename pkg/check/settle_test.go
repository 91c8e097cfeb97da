package check

import (
	"errors"
	"fmt"
	"github.com/offpath-io/offpath/pkg/check/internal/fleetstate"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
)

func TestSettleLocally(t *testing.T) {
	for _, buckets := range []int{1, 60} {
		c, l := checkerAndLimiter(t, Options{}, rule("r", 20, time.Minute, buckets))
		first, second_ := receipt(t, l, noon, "k", 12), receipt(t, l, noon, "k", 8)
		wantHit(t, l, noon, 1, false, "over the limit, leaves a block")
		mustSettle(t, c, noon, first, 2)
		wantHit(t, l, noon, 1, true, "10 are given back")
		err := atTime(noon, c).Settle(first, 1)
		expect(t, errors.Is(err, ErrSettled), "again: %v", err)
		wantLeft(t, l, noon, 9, "10 given back and 1 taken")
		mustSettle(t, c, noon+second, second_, 30) // more than the limit
		wantLeft(t, l, noon+second, 0, "far over the limit")
		late := receipt(t, l, noon+4*int64(time.Minute), "k", 20)
		mustSettle(t, c, noon+9*int64(time.Minute), late, 0)
		wantLeft(t, l, noon+9*int64(time.Minute), 20, "a bucket that is gone")
	}
}

func TestSettleErrors(t *testing.T) {
	c, l := checkerAndLimiter(t, Options{}, rule("r", 20, time.Hour, 1))
	good := receipt(t, l, noon, "k", 5)
	const hours = int64(time.Hour)
	for _, row := range []struct {
		why, receipt string
		at, cost     int64
		want         error
	}{
		{"a negative cost", good, 0, -1, ErrCost},
		{"a huge cost", good, 0, events.MaxCount + 1, ErrCost},
		{"no receipt", "", 0, 1, ErrReceipt},
		{"not one", "kristie", 0, 1, ErrReceipt},
		{"cut off", good[:len(good)-4], 0, 1, ErrReceipt},
		{"too old", good, 20*hours + 1, 1, ErrReceiptAge},
		{"of the future", good, -hours, 1, ErrReceiptAge},
		{"the last moment, and the largest cost", good, 20 * hours, events.MaxCount, nil},
		{"again", good, 0, 1, ErrSettled},
	} {
		err := atTime(noon+row.at, c).Settle(row.receipt, row.cost)
		expect(t, errors.Is(err, row.want) && (err == nil) == (row.want == nil), "%s: %v, want %v", row.why, err, row.want)
	}
	settlementStats(t, c, 1, 1, 0)
}

// TestForgedReceipts: what a client makes up, or another fleet's checker has made, settles nothing.
func TestForgedReceipts(t *testing.T) {
	keys := events.NewReceiptKeys()
	of := func(keys events.ReceiptKeys) Options {
		return Options{ReceiptKeys: func() events.ReceiptKeys { return keys }}
	}
	c, l := checkerAndLimiter(t, of(keys), rule("r", 5, time.Hour, 1))
	m, err := keys.Decode(receipt(t, l, noon, "k", 5))
	must(t, err)
	elsewhere, other := checkerAndLimiter(t, Options{}, rule("r", 5, time.Hour, 1))
	passed := 5
	for range 40 {
		m.Number++
		forged, err := events.NewReceiptKeys().Encode(m)
		must(t, err)
		for _, text := range []string{forged, receipt(t, other, noon, "k", 1)} {
			err := atTime(noon, c).Settle(text, 0)
			expect(t, errors.Is(err, ErrReceipt), "%v", err)
			_ = atTime(noon, elsewhere).Settle(text, 0) // it is its own, or refused too
		}
		passed += hit(l, noon, "k", 1)
	}
	equal(t, passed, 5, "passed under a limit of 5")
	another := of(keys)
	another.Epoch = testEpoch + 1
	twin, _ := fleetAndLimiter(t, another, rule("r", 5, time.Hour, 1))
	m.Number++
	genuine, err := keys.Encode(m)
	must(t, err)
	must(t, atTime(noon, twin).Settle(genuine, 0))
}

// TestAloneEachSettlesItsOwn: checkers with one key and no fleet, who cannot know what others have
// settled, take no receipt of another's: each would give it back once, of hits that were charged
// there.
func TestAloneEachSettlesItsOwn(t *testing.T) {
	keys := events.NewReceiptKeys()
	var checkers []*Checker
	var limiters []*Limiter
	for epoch := range uint64(3) {
		o := Options{Epoch: epoch + 1, ReceiptKeys: func() events.ReceiptKeys { return keys }}
		c, l := checkerAndLimiter(t, o, rule("r", 5, time.Hour, 1))
		checkers, limiters = append(checkers, c), append(limiters, l)
	}
	text := receipt(t, limiters[0], noon, "k", 5)
	hit(limiters[1], noon, "k", 5)
	hit(limiters[2], noon, "k", 5)
	for i, c := range checkers {
		err := atTime(noon, c).Settle(text, 0)
		expect(t, errors.Is(err, ErrReceipt) == (i > 0), "%d: %v", i, err)
		equal(t, hit(limiters[i], noon, "k", 10), []int{5, 0, 0}[i], "%d: passed afterwards", i)
	}
}

// TestKeysThatAreNone: without a key, or with one that can be guessed, anybody could make receipts.
// There is no checker with such, and one that is given them later goes on with those of before.
func TestKeysThatAreNone(t *testing.T) {
	for why, bad := range map[string]events.ReceiptKeys{
		"none":        {},
		"empty":       {nil},
		"short":       {[]byte("secret")},
		"short later": {events.NewReceiptKeys()[0], []byte("secret")},
		"too many":    {events.NewReceiptKeys()[0], events.NewReceiptKeys()[0], events.NewReceiptKeys()[0]},
	} {
		given := bad
		o := Options{ReceiptKeys: func() events.ReceiptKeys { return given }}
		o.Rules = setOf(t, rule("r", 20, time.Hour, 1))
		_, err := New(o)
		expect(t, err != nil, "%s: a checker is made", why)
		given = events.NewReceiptKeys()
		c, err := New(o)
		must(t, err)
		l := limiter(t, c, "r")
		before := receipt(t, l, noon, "k", 5)
		given = bad
		mustSettle(t, c, noon, before, 0)
		mustSettle(t, c, noon, receipt(t, l, noon, "k", 5), 0)
		for _, key := range bad {
			if len(key) >= events.MinReceiptKey {
				continue
			}
			forged, err := events.ReceiptKeys{key}.Encode(&events.Receipt{Epoch: c.o.Epoch, Number: 9, Made: noon})
			must(t, err)
			err = atTime(noon, c).Settle(forged, 0)
			expect(t, errors.Is(err, ErrReceipt), "%s: forged: %v", why, err)
		}
	}
}

// TestSettleWhileTheRuleIsAway: a checker alone remembers what is withdrawn of a rule that is not
// in force, or has another window for a while.
func TestSettleWhileTheRuleIsAway(t *testing.T) {
	was, longer := rule("r", 20, time.Hour, 1), rule("r", 20, 2*time.Hour, 1)
	for why, between := range map[string]rules.Rule{"away": rule("s", 20, time.Hour, 1), "another": longer} {
		for _, cost := range []int64{0, 1, 9} {
			c, l := checkerAndLimiter(t, Options{}, was)
			text := receipt(t, l, noon, "k", 5)
			reload(t, c, noon, between)
			mustSettle(t, c, noon, text, cost)
			reload(t, c, noon, was)
			equal(t, left(limiter(t, c, "r"), noon, "k"), 20-cost, "%s, settled at %d: left of 20", why, cost)
		}
	}
}

// countOf calls f in several goroutines at once, and returns how many succeed.
func countOf(callers int, f func() bool) (n int64) {
	var all sync.WaitGroup
	var count atomic.Int64
	for range callers {
		all.Go(func() {
			if f() {
				count.Add(1)
			}
		})
	}
	all.Wait()
	return count.Load()
}

// TestSettleOnceAtTheSameTime: of many callers who settle one receipt at the same time, one does.
func TestSettleOnceAtTheSameTime(t *testing.T) {
	c, l := checkerAndLimiter(t, Options{}, rule("r", 1000, time.Hour, 1))
	for range 50 {
		text := receipt(t, l, noon, "k", 10)
		n := countOf(4, func() bool { return atTime(noon, c).Settle(text, 0) == nil })
		require(t, n == 1, "settled %d times", n)
		wantLeft(t, l, noon, 1000, "settled once")
	}
}

// kindsOf lists a report's rows: a letter for the kind of hits, the key and its hits.
func kindsOf(r *events.Report) string {
	var all []string
	text, at := r.Hits.KeyText, 0
	for i, n := range r.Hits.KeyLength {
		row := [counter.Kinds]string{"", "denied ", "refunded "}[r.Hits.Rules[r.Hits.KeyRule[i]].Kind] + string(text[:n])
		for range r.Hits.KeyCells[i] {
			row += fmt.Sprint(" ", r.Hits.Value[at])
			at++
		}
		all, text = append(all, row), text[n:]
	}
	return strings.Join(all, ", ")
}

// answerAll answers the last report: a total of the newest bucket for each row, 0 for the rest, and
// of its settlements.
func (f *fleet) answerAll(now int64, settlements int, totals ...uint64) {
	f.t.Helper()
	m := f.refresh(append(totals, make([]uint64, f.last().Hits.Keys()-len(totals))...)...)
	m.Settlements = uint32(settlements)
	f.receive(now, events.KindRefresh, m)
}

// settlements are those of the last report, which has rows.
func (f *fleet) settlements(rows string, want ...int64) []*events.Settlement {
	f.t.Helper()
	m := f.last()
	var got []int64
	for _, s := range m.Settlements {
		got = append(got, s.Hits)
	}
	require(f.t, kindsOf(m) == rows && slices.Equal(got, want),
		"reported %s, settled %v; want %s, %v", kindsOf(m), got, rows, want)
	return m.Settlements
}

// settlementStats fails the test unless Stats counts as many settlements.
func settlementStats(t testing.TB, c *Checker, taken, answered, lost int64) {
	t.Helper()
	s := c.Stats()
	got := [...]int64{s.SettlementsTaken, s.SettlementsAnswered, s.SettlementsLost}
	equal(t, got, [...]int64{taken, answered, lost}, "settlements taken, answered, lost")
}

func TestSettlementsAreReported(t *testing.T) {
	f, l := fleetAndLimiter(t, Options{}, rule("r", 20, time.Minute, 1))
	now := noon
	text, other := receipt(t, l, now, "k", 12), receipt(t, l, now, "k", 8)
	atTime(now, l).Check("k", 1) // a block
	now += 50 * ms
	atTime(now, f).Step()
	f.settlements("refunded k, k 20") // where there are receipts, refunds are asked for
	f.answerAll(now, 0, 0, 20)
	mustSettle(t, f.Checker, now, text, 2)
	mustSettle(t, f.Checker, now, other, 9)
	wantHit(t, l, now, 1, false, "before the store has heard of it")
	now += 50 * ms
	atTime(now, f).Step()
	s := f.settlements("refunded k, k", -10, 1)
	expect(t, s[0].Number != s[1].Number && s[0].Epoch == f.o.Epoch, "%v", s)
	f.answerAll(now, 2, 10, 21)
	d := atTime(now, l).Check("k", 1)
	expect(t, d.Allowed && d.Remaining == 8, "21 less 10, and one more: %+v", d)
	settlementStats(t, f.Checker, 2, 2, 0)
	hit, then := f.reportsAt(now+50*ms), f.reportsAt(now+100*ms)
	expect(t, len(hit) == 1 && len(hit[0].Settlements) == 0 && len(then) == 0, "the hit: %v, and then %v", hit, then)
}

// TestSettlementsAreSentAgain until an answer counts them; aggregators of before settlements ignore
// them.
func TestSettlementsAreSentAgain(t *testing.T) {
	f, l := fleetAndLimiter(t, Options{}, rule("r", 20, time.Minute, 1))
	text := receipt(t, l, noon, "k", 12)
	now := noon + 50*ms
	atTime(now, f).Step()
	f.answerAll(now, 0, 0, 12)
	mustSettle(t, f.Checker, now, text, 2)
	for range 3 {
		now += 50 * ms
		atTime(now, f).Step()
		s := f.last().Settlements
		require(t, len(s) == 1 && s[0].Hits == -10, "%v", s)
		f.answerAll(now, 0)
	}
	now += 50 * ms
	atTime(now, f).Step()
	for range 2 { // the second gives up what is in flight
		f.receive(now, events.KindWelcome, &events.Welcome{Epoch: f.o.Epoch, Shards: 3, Time: now - 50*ms, Sent: now - 50*ms})
	}
	now += 50 * ms
	atTime(now, f).Step()
	m := f.last()
	require(t, len(m.Settlements) == 1 && m.Shards == 3 && m.Shard == events.Shard("r", "k", 3), "with other shards: %v", m)
	f.answerAll(now, 1)
	settlementStats(t, f.Checker, 1, 1, 0)
}

// TestUncoveredSettlementsWait: what gives back hits that the store has not heard of is sent again,
// and in the end given up; others of the same report are not.
func TestUncoveredSettlementsWait(t *testing.T) {
	f, l := fleetAndLimiter(t, Options{}, rule("r", 20, time.Hour, 1))
	texts := [...]string{receipt(t, l, noon, "k", 5), receipt(t, l, noon, "k", 6), receipt(t, l, noon, "k", 7)}
	for _, text := range texts {
		mustSettle(t, f.Checker, noon, text, 0)
	}
	now, sent := noon, 0
	answer := func(uncovered ...uint32) {
		t.Helper()
		m := f.refresh(make([]uint64, f.last().Hits.Keys())...)
		m.Settlements, m.Uncovered = uint32(len(f.last().Settlements)), uncovered
		f.receive(now, events.KindRefresh, m)
	}
	next := func(wait int64) []*events.Settlement {
		now += wait
		if sent := f.reportsAt(now); len(sent) > 0 {
			return sent[0].Settlements
		}
		return nil
	}
	require(t, len(next(50*ms)) == 3, "%v", f.last().Settlements)
	require(t, f.last().Hits.Rules[1].Settles, "a rule with receipts does not say so: %v", f.last().Hits.Rules)
	answer(1, 2, 2, 99)
	settlementStats(t, f.Checker, 3, 1, 0)
	require(t, len(next(50*ms-1)) == 0, "at once: %v", f.last().Settlements)
	again := next(50 * ms)
	require(t, len(again) == 2 && again[0].Hits == -6 && again[1].Hits == -7, "again: %v", again)
	answer(1)
	for deadline := now + 65*second + second; now < deadline; {
		if list := next(50 * ms); len(list) > 0 {
			sent++
			answer(0)
		}
	}
	expect(t, sent > 15 && sent < 25, "sent again %d times", sent) // twice as long each time, until every 5 s
	settlementStats(t, f.Checker, 3, 2, 1)
}

// TestSettlementsAreGivenUp: those that no aggregator takes do not keep others from being sent.
func TestSettlementsAreGivenUp(t *testing.T) {
	f, l := fleetAndLimiter(t, Options{}, rule("r", 20, time.Minute, 1))
	refused, old := receipt(t, l, noon, "k", 2), receipt(t, l, noon, "k", 2)
	mustSettle(t, f.Checker, noon, refused, 1)
	now := noon + 50*ms
	atTime(now, f).Step()
	f.refuse(now, f.last().Sequence)
	now += int64(refusalsFor)
	for range refusalsTaken - 1 {
		f.refuse(now, f.last().Sequence)
	}
	settlementStats(t, f.Checker, 1, 0, 1)
	equal(t, f.Stats().ReportsGivenUp, 1, "reports given up")
	mustSettle(t, f.Checker, now, old, 1)
	atTime(now+50*ms, f).Step()
	f.answerAll(now+50*ms, 0) // not taken
	reports := len(f.tape.reports)
	now += 21 * int64(time.Hour)
	atTime(now, f).Step() // the rule of the refused report has a report of its own
	f.receive(now, events.KindRefresh, f.refresh(make([]uint64, f.last().Hits.Keys())...))
	for _, m := range f.tape.reports[reports:] {
		expect(t, len(m.Settlements) == 0, "too old: %v", m.Settlements)
	}
	settlementStats(t, f.Checker, 2, 0, 2)
}

func TestSettlementsAreBounded(t *testing.T) {
	f, l := fleetAndLimiter(t, Options{MaxSettling: 2}, rule("r", 20, time.Minute, 1))
	one, two, three := receipt(t, l, noon, "k", 1), receipt(t, l, noon, "k", 1), receipt(t, l, noon, "k", 1)
	mustSettle(t, f.Checker, noon, one, 0)
	mustSettle(t, f.Checker, noon, two, 0)
	err := atTime(noon, f).Settle(three, 0)
	expect(t, errors.Is(err, ErrSettling), "a third: %v", err)
	atTime(noon+50*ms, f).Step()
	f.answerAll(noon+50*ms, 2, 2, 3)
	mustSettle(t, f.Checker, noon+50*ms, three, 0) // it was not used up
	settlementStats(t, f.Checker, 3, 2, 0)
}

// TestSettlementsEndDeferrals: hits of a deferred key wait for their report no longer than their
// settlement does.
func TestSettlementsEndDeferrals(t *testing.T) {
	f, l := fleetAndLimiter(t, Options{}, rule("r", 100_000, time.Hour, 1))
	f.welcomeOf(noon, 3)
	inform(l, "k")
	text := receipt(t, l, noon, "k", 5)
	f.steps(50, 101, 50)
	require(t, len(f.tape.reports) == 0, "a deferred key is reported: %v", f.tape.reports)
	mustSettle(t, f.Checker, noon+100*ms, text, 1)
	atTime(noon+150*ms, f).Step()
	f.settlements("refunded k, k 5", -4)
}

// TestSettlementsNearTheLimitAreSentSoon, those of other keys later.
func TestSettlementsNearTheLimitAreSentSoon(t *testing.T) {
	for _, cost := range []int64{5, 20} {
		f := newFleet(t, Options{}, rule("r", 20, time.Hour, 1))
		text := receipt(t, limiter(t, f.Checker, "r"), noon, "k", cost)
		for len(f.Wake()) > 0 {
			<-f.Wake()
		}
		f.host.Rounds.Wanted.Store(0)
		mustSettle(t, f.Checker, noon, text, 1)
		hurry := len(f.Wake()) > 0
		expect(t, hurry == (cost == 20), "%d of 20: in a hurry: %v", cost, hurry)
	}
}

// TestStopDeliversSettlements: Run does not return before settlements are answered, or reports
// failure.
func TestStopDeliversSettlements(t *testing.T) {
	for _, answers := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			f, stop, done := runFleet(t, Options{}, rule("r", 1000, time.Hour, 1))
			text := receipt(t, limiter(t, f.Checker, "r"), fleetstate.SystemTime(), "k", 5)
			mustSettle(t, f.Checker, fleetstate.SystemTime(), text, 1)
			stop()
			settled, answered := 0, 0
			err := f.ends(done, func() {
				f.reporter.Lock() // which Run sends under
				reports := f.tape.reports[answered:]
				f.reporter.Unlock()
				for _, m := range reports {
					answered++
					if answers {
						settled += len(m.Settlements)
						f.answerAll(fleetstate.SystemTime(), len(m.Settlements))
					} else {
						f.answerAll(fleetstate.SystemTime(), 0)
					}
				}
			})
			expect(t, (!answers || err == nil && settled == 1) && (answers || errors.Is(err, ErrUnreported)),
				"answers: %v; %d settled: %v", answers, settled, err)
		})
	}
}

// BenchmarkReceipt checks a hit, and settles it.
func BenchmarkReceipt(b *testing.B) {
	c, l := checkerAndLimiter(b, Options{}, rule("r", 1e15, time.Hour, 1))
	b.ReportAllocs()
	for b.Loop() {
		_, text := atTime(noon, l).tryReceipt("user:123456", 100)
		must(b, atTime(noon, c).Settle(text, 30))
	}
}

// receipt checks a hit that has to pass, and returns its receipt.
func receipt(t testing.TB, l *Limiter, now int64, key string, cost int64) string {
	t.Helper()
	d, text := atTime(now, l).tryReceipt(key, cost)
	require(t, d.Allowed && text != "", "a cost of %d of %q: %+v, receipt %q", cost, key, d, text)
	return text
}

func mustSettle(t testing.TB, c *Checker, now int64, text string, cost int64) {
	t.Helper()
	must(t, atTime(now, c).Settle(text, cost))
}

// TestReceipts: a receipt names what was charged, by every rule, and in which bucket.
func TestReceipts(t *testing.T) {
	list := []rules.Rule{rule("requests", 3, time.Minute, 60), rule("spent", 100, time.Minute, 1)}
	f := newFleet(t, Options{Epoch: 9}, list...)
	now := noon + 90*second
	atTime(now, f).Step()
	d, text := atTime(now, f).tryReceipt(user("kristie"), 2)
	m, err := f.o.ReceiptKeys().Decode(text)
	require(t, err == nil && d.Allowed && m.Epoch == 9 && m.Number == 1 && m.Made == now && len(m.Charges) == 2,
		"%+v, %v, %v", d, m, err)
	for i, want := range []string{"requests", "spent"} {
		c := m.Charges[i]
		expect(t, c.Rule.Name == want && string(c.Key) == "kristie" && c.Cost == 2 && !c.Permits && c.Rule.Newest == list[i].Window.Bucket(now),
			"%v", c)
	}
	d, text = atTime(now, f).tryReceipt(user("kristie"), 2)
	expect(t, !d.Allowed && text == "", "one rule denies: %+v, %q", d, text)
	equal(t, left(limiter(t, f.Checker, "spent"), now, "kristie"), 98, "left by the rule that did not deny")
	d, text = atTime(now, f).tryReceipt(identity.Attributes{{Name: "animal", Value: "cat"}}, 1)
	m, err = f.o.ReceiptKeys().Decode(text)
	expect(t, err == nil && d.Allowed && len(m.Charges) == 0 && m.Number == 3, "no rule matches: %+v, %v, %v", d, m, err)
	mustSettle(t, f.Checker, now, text, 7) // nothing to do
	err = atTime(now, f).Settle(text, 7)
	expect(t, errors.Is(err, ErrSettled), "twice: %v", err)
}

// TestReceiptsOfRulesWithACost: a receipt is about the rules that have a cost of their own, also
// for callers of an override; the others stay as they are.
func TestReceiptsOfRulesWithACost(t *testing.T) {
	requests, cost := rule("requests", 100, time.Minute, 1), rule("tokens", 1000, time.Minute, 1)
	cost.Cost = "tokens"
	cost.Overrides = []rules.Override{{Match: []rules.Condition{{Name: "tier", Value: "gold"}}, Factor: 10}}
	for _, list := range [][]rules.Rule{{requests, cost}, {cost, requests}} {
		c := newChecker(t, Options{}, list...)
		for tier, name := range map[string]string{"none": cost.Name, "gold": cost.WireName(0)} {
			_, text := atTime(noon, c).tryReceipt(request("user="+tier+" tier="+tier+" tokens=400"), 1)
			m, err := c.o.ReceiptKeys().Decode(text)
			require(t, err == nil && len(m.Charges) == 1 && m.Charges[0].Rule.Name == name && m.Charges[0].Cost == 400,
				"%s: %v, %v", tier, m, err)
			mustSettle(t, c, noon, text, 301)
			equal(t, left(limiter(t, c, "requests"), noon, tier), 99, "%s: requests left", tier)
			l := limiter(t, c, name)
			equal(t, left(l, noon, tier), l.Rule().Limit-301, "%s: left", tier)
		}
	}
}

// TestBarredRequestsGetNoReceipt: a rule that denies a caller whatever its counts are denies by
// receipt as well, and the other rules that match charge nothing, and keep no key of his.
func TestBarredRequestsGetNoReceipt(t *testing.T) {
	c := ofYAML(t, Options{}, `
rules:
  - {name: per-user, key: [user], limit: 10/minute}
  - {name: lists, key: [user], limit: 100/minute, deny: {user: [eve]}}
`)
	d, receipt := atTime(noon, c).tryReceipt(request("user=eve"), 1)
	expect(t, !d.Allowed && d.Rule == "lists" && receipt == "" && c.Stats().LiveKeys == 0, "%+v, receipt %q, %+v", d, receipt, c.Stats())
	equal(t, left(limiter(t, c, "per-user"), noon, "eve"), 10, "hits left")
}
