package check

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/offpath-io/offpath/internal/testing/alloctest"
	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/rules"
)

// Health of single shards: a fleet of eight checkers and two shards, whose levels begin 2, 5 and 20
// s after a shard falls silent.

var healthOptions = Options{
	HelloEvery: time.Second, StaleAfter: 2 * time.Second, ShareAfter: 5 * time.Second, OutageAfter: 20 * time.Second,
	Tuning: tuning{NoForecast: true},
}

// fleetOfTwoShards returns a checker in a fleet of two shards, and a key of each.
func fleetOfTwoShards(t testing.TB, list ...rules.Rule) (f *fleet, keys [2]string) {
	t.Helper()
	f = unwelcomed(t, healthOptions, list...)
	atTime(noon, f).Step()
	f.hear(noon)
	return f, [2]string{keyOf(list[0].Name, 0), keyOf(list[0].Name, 1)}
}

// hear welcomes the checker.
func (f *fleet) hear(now int64) {
	f.t.Helper()
	f.welcomed(now, now, &events.Welcome{Shards: 2, Time: now, Checkers: 8})
}

// tick has the checker take a step, and welcomes it once a second.
func (f *fleet) tick(now int64) {
	f.t.Helper()
	if now%second == 0 {
		f.hear(now)
	}
	atTime(now, f).Step()
}

// hit checks a key of shard 1 by each of these rules.
func (f *fleet) hit(now int64, names ...string) {
	f.t.Helper()
	for _, name := range names {
		atTime(now, limiter(f.t, f.Checker, name)).Check(keyOf(name, 1), 1)
	}
}

// freshness returns what a look at a key says.
func freshness(l *Limiter, now int64, key string) Freshness {
	return atTime(now, l.checker()).Do(Request{Limiter: l, Key: key, Mode: Peek}).Freshness
}

// TestSilenceIsOfAShard: shard 0 answers and shard 1 does not, while welcomes come.
func TestSilenceIsOfAShard(t *testing.T) {
	closed := rule("r", 80, time.Hour, 1)
	closed.OnOutage = rules.Closed
	f, keys := fleetOfTwoShards(t, closed, rule("other", 1000, time.Hour, 1))
	l, allowed := limiter(t, f.Checker, "r"), [2]int{}
	answer := f.answering(true, func(m sent) reply { return []reply{count, silence}[m.shard] })
	for now := noon; now <= noon+30*second; now += 100 * ms {
		f.tick(now)
		answer(now)
		want := Fresh
		switch silent := now - noon - 100*ms; {
		case silent > 20*second:
			want = Outage
		case silent > 5*second:
			want = LocalShare
		case silent > 2*second:
			want = Stale
		}
		equal(t, freshness(l, now, keys[0]), Fresh, "shard 0, %v on", time.Duration(now-noon))
		equal(t, freshness(l, now, keys[1]), want, "shard 1, %v on", time.Duration(now-noon))
		s := f.Stats()
		byShard := map[Freshness]int{Fresh: 1}
		byShard[want]++
		expect(t, s.Freshness == want && fmt.Sprint(s.ShardFreshness) == fmt.Sprint(byShard) && s.Heard <= time.Second,
			"%v on: %+v", time.Duration(now-noon), s)
		for s, key := range keys {
			if now%second == 0 && atTime(now, l).Check(key, 1).Allowed {
				allowed[s]++
			}
		}
		d := atTime(now, f).Do(Request{Attributes: user(keys[0]), Mode: Peek})
		both := max(freshness(l, now, keys[0]), freshness(limiter(t, f.Checker, "other"), now, keys[0]))
		equal(t, d.Freshness, both, "the worst of two rules, %v on", time.Duration(now-noon))
	}
	// The share is ten, and of the rest an eighth: one hit is in flight.
	expect(t, allowed[0] == 31 && allowed[1] >= 10 && allowed[1] <= 11, "of 31 hits each shard lets %v pass", allowed)
	now := noon + 31*second
	for _, m := range f.tape.reports {
		if m.Shard == 1 { // they are repeats of one
			f.receive(now, events.KindRefresh, answerTo(m))
		}
	}
	equal(t, freshness(l, now, keys[1]), Fresh, "shard 1, once it is answered")
	f.tape.hellos = nil
	atTime(now+second, f).Step()
	expect(t, f.lastHello().Asks, "no hello asks for the alarms that were missed")
}

// TestNewsOfAShard is its answers, grants and alarms; not those of another shard, refusals,
// welcomes, or answers that make no sense.
func TestNewsOfAShard(t *testing.T) {
	now := noon + 3*second
	answer := func(change func(*events.Refresh)) func(*fleet, *events.Report) {
		return func(f *fleet, m *events.Report) {
			a := answerTo(m)
			change(a)
			f.receive(now, events.KindRefresh, a)
		}
	}
	alarm := func(shard uint32, made int64) func(*fleet, *events.Report) {
		return func(f *fleet, _ *events.Report) {
			a := alarmOf(&limiter(t, f.Checker, "r").core.Group, now, 1, "a", admitted(60))
			a.Shard, a.Made = shard, made
			f.receive(now, events.KindAlarm, a)
		}
	}
	for _, test := range []struct {
		why  string
		send func(f *fleet, m *events.Report)
		want Freshness
	}{
		{"nothing", func(*fleet, *events.Report) {}, Stale},
		{"a welcome", func(f *fleet, _ *events.Report) { f.hear(now) }, Stale},
		{"a refusal", answer(func(a *events.Refresh) {
			*a = events.Refresh{Epoch: a.Epoch, Shard: a.Shard, Sequence: a.Sequence, Error: "no"}
		}), Stale},
		{"the answer to another report", answer(func(a *events.Refresh) { a.Sequence += 7 }), Stale},
		{"an answer without its keys", answer(func(a *events.Refresh) { a.KeyCells, a.Age, a.Total = nil, nil, nil }), Stale},
		{"an alarm of the other shard", alarm(0, now), Stale},
		{"an alarm that an aggregator repeats from memory", alarm(1, 0), Stale},
		{"an alarm", alarm(1, now), Fresh},
		{"its answer", answer(func(*events.Refresh) {}), Fresh},
	} {
		f, keys := fleetOfTwoShards(t, rule("r", 80, time.Hour, 1))
		l := limiter(t, f.Checker, "r")
		atTime(noon, l).Check(keys[1], 1)
		atTime(noon+100*ms, f).Step()
		f.hear(now)
		atTime(now, f).Step()
		equal(t, freshness(l, now, keys[1]), Stale, "%s: before", test.why)
		test.send(f, f.last())
		equal(t, freshness(l, now, keys[1]), test.want, "%s: after", test.why)
		equal(t, freshness(l, now, keys[0]), Fresh, "%s: the other shard", test.why)
	}
}

// TestQuietShardsGoByWelcomes: of which nothing waits. A shard that was stale when aggregators fell
// silent does not become fresh by a new report.
func TestQuietShardsGoByWelcomes(t *testing.T) {
	f, keys := fleetOfTwoShards(t, rule("r", 80, time.Hour, 1))
	l := limiter(t, f.Checker, "r")
	for now := noon; now <= noon+60*second; now += 500 * ms {
		f.hear(now)
		atTime(now, f).Step()
		equal(t, freshness(l, now, keys[1]), Fresh, "%v without a hit", time.Duration(now-noon))
	}
	now := noon + 63*second
	atTime(now, f).Step()
	equal(t, freshness(l, now, keys[1]), Stale, "3 s after the last welcome")
	atTime(now, l).Check(keys[1], 1)
	atTime(now+100*ms, f).Step()
	equal(t, len(f.tape.reports), 1, "reports")
	equal(t, freshness(l, now+100*ms, keys[1]), Stale, "after a new report")
}

// TestReportsAreRepeatedWhenAggregatorsComeBack: at the first welcome after a silence, not after
// the back-off.
func TestReportsAreRepeatedWhenAggregatorsComeBack(t *testing.T) {
	f, keys := fleetOfTwoShards(t, rule("r", 80, time.Hour, 1))
	l, now := limiter(t, f.Checker, "r"), noon
	atTime(now, l).Check(keys[1], 1)
	for ; now < noon+30*second; now += 10 * ms {
		atTime(now, f).Step()
	}
	for n := len(f.tape.reports); len(f.tape.reports) == n; now += 10 * ms { // the next repeat is 2 s away then
		atTime(now, f).Step()
	}
	n := len(f.tape.reports)
	f.hear(now)
	equal(t, freshness(l, now, keys[0]), Fresh, "the shard of which nothing waits")
	equal(t, freshness(l, now, keys[1]), Outage-1, "the one whose report waits")
	atTime(now+ms, f).Step()
	equal(t, len(f.tape.reports), n+1, "reports sent")
	expect(t, strings.HasSuffix(f.tape.to[n], "to its owner"), "the report goes %s", f.tape.to[n])
	f.answer(now+2*ms, 1)
	equal(t, freshness(l, now+2*ms, keys[1]), Fresh, "once it is answered")
	f.hear(now + 2*second)
	atTime(now+2*second, f).Step()
	equal(t, len(f.tape.reports), n+1, "reports sent, after another welcome")
}

// sent is a report or a lease request, as the aggregator sees it that it has reached.
type sent struct {
	at             int64
	shard          uint32
	lease, toOwner bool // toOwner is of reports
	rules          []*events.Rule
}

// reply is what an aggregator does with a request.
type reply int

const (
	count reply = iota
	refuse
	silence
)

// refusing is what an aggregator does that takes nothing with a rule of this name.
func refusing(name string) func(sent) reply {
	return func(m sent) reply {
		return refusedIf(slices.ContainsFunc(m.rules, func(r *events.Rule) bool { return r.Name == name }))
	}
}

func refusedIf(refused bool) reply { return map[bool]reply{true: refuse, false: count}[refused] }

// answering answers the reports and lease requests that were sent since its last call, each of the
// latter by five permits more; at once also those that are sent when an answer comes.
func (f *fleet) answering(atOnce bool, does func(sent) reply) (answer func(now int64)) {
	reports, leases, granted := 0, 0, uint64(0)
	return func(now int64) {
		f.t.Helper()
		for n := len(f.tape.reports); reports < n || atOnce && reports < len(f.tape.reports); reports++ {
			m := f.tape.reports[reports]
			switch does(sent{now, m.Shard, false, strings.HasSuffix(f.tape.to[reports], "to its owner"), m.Hits.Rules}) {
			case count:
				f.receive(now, events.KindRefresh, answerTo(m))
			case refuse:
				f.receive(now, events.KindRefresh, refusalOf(m))
			}
		}
		for ; leases < len(f.tape.leases); leases++ {
			m := f.tape.leases[leases]
			switch does(sent{now, m.Shard, true, false, m.Keys.Rules}) {
			case count:
				granted += 5
				f.grant(now, m, func(int) (uint64, time.Duration) { return granted, 0 })
			case refuse:
				f.receive(now, events.KindGrant, &events.Grant{Epoch: m.Epoch, Shard: m.Shard, Sequence: m.Sequence, Error: "no"})
			}
		}
	}
}

// keyOf returns a key of a rule in a shard of two.
func keyOf(rule string, shard uint32) string {
	for i := 0; ; i++ {
		if key := fmt.Sprint("k", i); events.Shard(rule, key, 2) == shard {
			return key
		}
	}
}

// TestRefusedRules: aggregators refuse each report that has a certain rule. Its keys go down to the
// local share and stay there, whatever its OnOutage is; all other rules are reported, in reports of
// their own, and are fresh, but for the first ten seconds. Once the rule is accepted, it is fresh.
func TestRefusedRules(t *testing.T) {
	bad := rule("bad", 80, time.Second, 1)
	bad.OnOutage = rules.Closed
	for _, late := range []bool{false, true} {
		f, _ := fleetOfTwoShards(t, bad, rule("good", 1000, time.Second, 1), rule("fine", 1000, time.Hour, 1))
		answer, name := f.answering(true, refusing("bad")), []string{"bad", "good", "fine"}
		var lost [3]int64
		check := func(now int64, i int) bool {
			return atTime(now, limiter(t, f.Checker, name[i])).Check(keyOf(name[i], 1), 1).Allowed
		}
		level := func(now int64, i int) Freshness {
			return freshness(limiter(t, f.Checker, name[i]), now, keyOf(name[i], 1))
		}
		allowed, now := 0, noon
		for ; now < noon+120*second; now += 50 * ms {
			silent := now - noon
			if late && silent%(5*second) == 0 && silent > 0 { // the machine sleeps: hits become late
				now += 3 * second
			}
			for i := range name {
				if passes := check(now, i); i == 0 && silent > 60*second && !late && passes {
					allowed++
				}
			}
			f.tick(now)
			answer(now + 2*ms)
			for i, r := range f.Stats().Rules {
				if silent < 20*second {
					lost[i] = r.Lost
				} else if i > 0 {
					expect(t, level(now, i) == Fresh && r.Lost == lost[i], "%v on: %s: %v, %+v", time.Duration(silent), name[i], level(now, i), r)
				}
			}
			if silent > 20*second {
				equal(t, level(now, 0), LocalShare, "%v on: the refused rule", time.Duration(silent))
			}
		}
		if !late { // a share of ten a second, and of the rest as pending hits are given up
			expect(t, allowed >= 500 && allowed <= 20*80/2, "%d of the refused rule's hits pass in 60 s", allowed)
		}
		for i, r := range f.Stats().Rules {
			expect(t, r.Lost > 0 && (i > 0 || r.Answered == 0), "%+v", r)
			expect(t, i == 0 || r.Answered > 20*r.Lost, "few hits of a good rule are counted: %+v", r)
		}
		answer = f.answering(true, refusing("another"))
		for until := now + 12*second; now < until; now += 50 * ms {
			f.hit(now, "bad")
			f.hear(now)
			atTime(now, f).Step()
			answer(now + 2*ms)
		}
		equal(t, level(now, 0), Fresh, "the rule, once it is accepted")
	}
}

// TestRefusedInOneShard: the owner of shard 1 refuses a rule that the owner of shard 0 takes. There
// it is reported every 10 s, and keeps to the local share; answers in shard 0 change neither, and
// its keys there are reported and fresh as ever.
func TestRefusedInOneShard(t *testing.T) {
	f, keys := fleetOfTwoShards(t, rule("bad", 80, time.Second, 1))
	l, reports := limiter(t, f.Checker, "bad"), [2]int{}
	answer := f.answering(true, func(m sent) reply {
		if m.at >= noon+30*second {
			reports[m.shard]++
		}
		return refusedIf(m.shard == 1)
	})
	for now := noon; now < noon+90*second; now += 50 * ms {
		for _, key := range keys {
			atTime(now, l).Check(key, 1)
		}
		f.tick(now)
		answer(now + 2*ms)
		if now >= noon+30*second {
			equal(t, freshness(l, now, keys[0]), Fresh, "%v on, where it is accepted", time.Duration(now-noon))
			equal(t, freshness(l, now, keys[1]), LocalShare, "%v on, where it is refused", time.Duration(now-noon))
		}
	}
	expect(t, reports[0] > 500 && reports[1] <= 14, "reports within a minute: %v", reports)
}

// TestRefusedRuleComesBack at the level that it had, since it is refused as before.
func TestRefusedRuleComesBack(t *testing.T) {
	bad, good := rule("bad", 80, time.Second, 1), rule("good", 80, time.Second, 1)
	f, _ := fleetOfTwoShards(t, bad, good)
	answer, now := f.answering(true, refusing("bad")), noon
	run := func(until int64, names ...string) {
		for ; now < until; now += 50 * ms {
			f.hit(now, names...)
			f.tick(now)
			answer(now + 2*ms)
		}
	}
	run(noon+30*second, "bad", "good")
	reload(t, f.Checker, now, good)
	run(noon+32*second, "good")
	reload(t, f.Checker, now, bad, good)
	run(noon+32*second+100*ms, "bad", "good")
	equal(t, freshness(limiter(t, f.Checker, "bad"), now, keyOf("bad", 1)), LocalShare, "the rule")
	equal(t, freshness(limiter(t, f.Checker, "good"), now, keyOf("good", 1)), Fresh, "the other rule")
}

// TestSuspectRefusedByTheOwnerOnly: a rule that all aggregators have refused is accepted by all but
// the shard's owner from 15 s on. Of its hits none is lost after that, except for the report that
// another one refuses as well.
func TestSuspectRefusedByTheOwnerOnly(t *testing.T) {
	f, keys := fleetOfTwoShards(t, rule("bad", 1000, time.Second, 1))
	answer, lost := f.answering(true, func(m sent) reply { return refusedIf(m.at < noon+15*second || m.toOwner) }), int64(0)
	for now := noon; now < noon+120*second; now += 50 * ms {
		f.hit(now, "bad")
		f.tick(now)
		answer(now + 2*ms)
		if now == noon+15*second {
			lost = f.Stats().Rules[0].Lost
		}
	}
	s := f.Stats().Rules[0]
	expect(t, s.Lost == lost && s.Answered > 1900, "lost were %d, now: %+v", lost, s)
	equal(t, freshness(limiter(t, f.Checker, "bad"), noon+120*second, keys[1]), Fresh, "the rule")
}

// TestTwoOwnersOfASuspect: one refuses its report, and the other counts it, a little later, as any
// aggregator does from 15 s on. Its hits are answered, not lost.
func TestTwoOwnersOfASuspect(t *testing.T) {
	f, _ := fleetOfTwoShards(t, rule("bad", 1000, time.Second, 1))
	l, sent, lost := limiter(t, f.Checker, "bad"), 0, int64(0)
	for now := noon; now < noon+60*second; now += 50 * ms {
		atTime(now, l).Check(keyOf("bad", 1), 1)
		f.tick(now)
		for n := len(f.tape.reports); sent < n; sent++ {
			m := f.tape.reports[sent]
			counts := now > noon+15*second
			if !counts || strings.HasSuffix(f.tape.to[sent], "to its owner") {
				f.receive(now+2*ms, events.KindRefresh, refusalOf(m))
			}
			if counts {
				f.receive(now+3*ms, events.KindRefresh, answerTo(m))
			}
		}
		if now == noon+20*second {
			lost = f.Stats().Rules[0].Lost
		}
	}
	s := f.Stats().Rules[0]
	expect(t, s.Lost == lost && s.Answered > 700, "lost were %d, now: %+v", lost, s)
}

// TestPermitsRefusedInOneShard: a rule gets its permits in the other one as ever.
func TestPermitsRefusedInOneShard(t *testing.T) {
	var allowed [2]int
	for refused := range 2 {
		f, keys := fleetOfTwoShards(t, strictRule("r", 1000, time.Hour, 1))
		l, refusals := limiter(t, f.Checker, "r"), 0
		answer := f.answering(true, func(m sent) reply {
			if !m.lease {
				return silence
			}
			refusals += int(m.shard)
			return refusedIf(m.shard == 1)
		})
		for now := noon; now < noon+20*second; now += 5 * ms {
			if refused == 1 {
				f.hit(now, "r")
			}
			allowed[refused] += hit(l, now, keys[0], 1)
			f.tick(now)
			answer(now + 2*ms)
		}
		expect(t, refusals <= 20, "%d requests refused within 20 s", refusals)
	}
	equal(t, allowed[1], allowed[0], "hits allowed in a shard, while requests of the other are refused")
}

// TestRefusedRulesMakeRoom: keys of a rule that no aggregator takes leave when memory is scarce and
// all their hits are late.
func TestRefusedRulesMakeRoom(t *testing.T) {
	o := healthOptions
	o.MaxLiveKeys = 400
	f := unwelcomed(t, o, rule("bad", 80, time.Second, 1))
	atTime(noon, f).Step()
	f.hear(noon)
	for answer, now := f.answering(true, refusing("bad")), noon; now < noon+20*second; now += 50 * ms {
		for i := range map[int64]int{noon: 1, noon + 15*second: 390}[now] { // it is suspect after 10 s
			atTime(now, limiter(t, f.Checker, "bad")).Check(fmt.Sprint("k", i), 1)
		}
		f.hear(now)
		atTime(now, f).Step()
		answer(now + 2*ms)
	}
	expect(t, f.Stats().LiveKeys <= 300, "%d keys of 400 are live", f.Stats().LiveKeys)
}

// TestSuspectRulesTakeTurns: all rules have been refused and are accepted now, and have new hits
// while a report is on its way. Each has as many reports as the others.
func TestSuspectRulesTakeTurns(t *testing.T) {
	names := []string{"bad", "bad2", "bad3"}
	f, _ := fleetOfTwoShards(t, rule("bad", 1e6, time.Hour, 1), rule("bad2", 1e6, time.Hour, 1), rule("bad3", 1e6, time.Hour, 1))
	reports := map[string]int{}
	answer := f.answering(false, func(m sent) reply {
		if m.at > noon+40*second {
			equal(t, len(m.rules), 1, "rules in a report")
			reports[m.rules[0].Name]++
		}
		return refusedIf(m.at < noon+20*second)
	})
	for now := noon; now < noon+60*second; now += 50 * ms {
		answer(now)
		f.hit(now, names...)
		f.tick(now)
	}
	for _, name := range names {
		expect(t, reports[name] > 100, "%d reports of %s: %v", reports[name], name, reports)
	}
}

// TestTrafficDoesNotDelayTheEnd of rules that aggregators refuse, or that they refused minutes ago:
// the last flush gives up the hits that nobody takes, and reports all others.
func TestTrafficDoesNotDelayTheEnd(t *testing.T) {
	for refused, does := range map[string]func(sent) reply{
		"never":       func(sent) reply { return count },
		"minutes ago": func(m sent) reply { return refusedIf(m.at < noon+30*second) },
		"still":       func(sent) reply { return refuse },
		"one still":   refusing("bad"),
	} {
		f, _ := fleetOfTwoShards(t, rule("bad", 1e6, time.Hour, 1), rule("bad2", 1e6, time.Hour, 1))
		answer, now, began := f.answering(false, does), noon, noon+60*second
		for ; now < began; now += 5 * ms {
			f.hit(now, "bad", "bad2")
			atTime(now, f).Step()
			answer(now + 2*ms)
		}
		stats := f.Stats().Rules
		end := f.reporter.BeginShutdown()
		for done := false; !done && now < began+20*second; now += 5 * ms {
			f.hit(now, "bad", "bad2")
			done = end.Done(now)
			answer(now + 2*ms)
		}
		expect(t, now <= began+100*ms, "refused %s: the last flush takes %v", refused, time.Duration(now-began))
		for i, r := range f.Stats().Rules {
			expect(t, r.Answered+r.Lost >= stats[i].Charged, "refused %s: of %d hits %+v", refused, stats[i].Charged, r)
			expect(t, refused != "one still" || i == 0 || r.Lost == stats[i].Lost, "the other rule loses %d hits in the end", r.Lost-stats[i].Lost)
		}
	}
}

// TestRefusedStrictRules: requests for their permits do not keep other rules from getting some.
func TestRefusedStrictRules(t *testing.T) {
	f, _ := fleetOfTwoShards(t, strictRule("bad", 80, time.Hour, 1), strictRule("good", 1000, time.Hour, 1))
	answer, allowed := f.answering(true, refusing("bad")), 0
	for now := noon; now < noon+60*second; now += 5 * ms {
		f.hit(now, "bad")
		allowed += hit(limiter(t, f.Checker, "good"), now, keyOf("good", 1), 1)
		f.tick(now)
		answer(now + 2*ms)
	}
	expect(t, allowed > 100, "%d hits of the good rule pass", allowed)
	s := f.Stats()
	expect(t, s.LeasesRefused > 20 && s.LeasesRefused < 200, "%d requests were refused within a minute", s.LeasesRefused)
}

// TestRefusedPermitsDegradeNoNeighbour: a shard of which nothing waits but requests that are
// refused is fresh. One whose report waits meanwhile is not.
func TestRefusedPermitsDegradeNoNeighbour(t *testing.T) {
	for _, waits := range []bool{false, true} {
		bad, worse := strictRule("bad", 80, time.Hour, 1), strictRule("bad2", 80, time.Hour, 1)
		f, _ := fleetOfTwoShards(t, bad, worse, rule("plain", 80, time.Hour, 1))
		plain := limiter(t, f.Checker, "plain")
		answer := f.answering(true, func(m sent) reply { return map[bool]reply{true: refuse, false: silence}[m.lease] })
		for now := noon; now < noon+60*second; now += 5 * ms {
			f.hit(now, "bad", "bad2")
			if waits && now == noon+second {
				f.hit(now, "plain")
			}
			f.tick(now)
			atTime(now+ms, f).Step() // the answer takes a while
			answer(now + 2*ms)
			want := Fresh
			switch silent := now - noon - second; {
			case !waits:
			case silent > 6*second && silent < 19*second:
				want = LocalShare
			case silent > 0:
				continue
			}
			equal(t, freshness(plain, now, keyOf("plain", 1)), want, "%v on", time.Duration(now-noon))
		}
	}
}

// TestLeaseRequestsThatWait make their shard stale: it may have strict rules alone.
func TestLeaseRequestsThatWait(t *testing.T) {
	f, keys := fleetOfTwoShards(t, strictRule("r", 80, time.Hour, 1))
	l, now := limiter(t, f.Checker, "r"), noon
	for now < noon+3*second {
		expect(t, !atTime(now, l).Check(keys[1], 1).Allowed, "allowed without a permit")
		now += 100 * ms
		f.hear(now)
		atTime(now, f).Step()
	}
	equal(t, freshness(l, now, keys[1]), Stale, "after 3 s without a grant")
	equal(t, freshness(l, now, keys[0]), Fresh, "the other shard")
	f.grants(now, 0, 10, 10, 0)
	equal(t, freshness(l, now, keys[1]), Fresh, "after a grant")
	expect(t, atTime(now, l).Check(keys[1], 1).Allowed, "denied with permits")
}

// TestChecksOfAFreshShardTakeNoLock, while another is in an outage: their allowance is valid, and
// they allocate nothing.
func TestChecksOfAFreshShardTakeNoLock(t *testing.T) {
	f, keys := fleetOfTwoShards(t, rule("r", 1e9, time.Hour, 1))
	l := limiter(t, f.Checker, "r")
	atTime(noon, l).Check(keys[1], 1)
	atTime(noon+100*ms, f).Step()
	now := noon + 10*second
	f.hear(now)
	atTime(now, f).Step()
	atTime(now, l).Check(keys[0], 1)
	c := l.core.Group.Lookup([]byte(keys[0]))
	word := c.Allowance.Load()
	require(t, word != 0, "there is no allowance")
	equal(t, atTime(now, l).Check(keys[0], 1).Freshness, Fresh, "freshness of the first key")
	expect(t, c.Allowance.Load() != word && c.Allowance.Load() != 0, "the allowance was not used")
	equal(t, atTime(now, l).Check(keys[1], 1).Freshness, LocalShare, "freshness of the second key")
	alloctest.AtMost(t, 0, "a check while shards differ", func() {
		atTime(now, l).Check(keys[0], 1)
		atTime(now, l).Check(keys[1], 1)
	})
}
