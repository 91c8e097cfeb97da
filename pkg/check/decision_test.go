package check

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestDecisionLimit: a decision names as its limit what is allowed at the moment.
func TestDecisionLimit(t *testing.T) {
	const (
		one     = `rules: [{name: r, key: [user], limit: 10/minute, `
		elastic = "throttle: elastic, elastic: {up_to: 150%, while: {signal: cpu, below: 50%}}"
		classes = "priority: {by: class, shares: {default: 100%, low: 50%}}"
	)
	for _, test := range []struct {
		why, rule, attrs string
		use              float64
		want             int64
	}{
		{"a token bucket", "algorithm: token_bucket, burst: 30", "user=a", 0, 30},
		{"a leaky bucket", "algorithm: leaky_bucket, burst: 4", "user=a", 0, 4},
		{"a soft bucket", "algorithm: token_bucket, burst: 30, throttle: soft, soft: {exceed: 10%}", "user=a", 0, 33},
		{"a class of soft", "throttle: soft, soft: {exceed: 100%}, " + classes, "user=a class=low", 0, 10},
		{"elastic with room", elastic, "user=a", 0, 15},
		{"elastic without", elastic, "user=a", 0.9, 10},
	} {
		signals := map[string]func() float64{"cpu": func() float64 { return test.use }}
		c := ofYAML(t, Options{Signals: signals}, one+test.rule+"}]")
		for i := range test.want + 2 {
			d := c.CheckAt(noon, request(test.attrs), 1)
			expect(t, d.Limit == test.want && d.Remaining <= test.want,
				"%s, hit %d: %+v, want limit %d", test.why, i, d, test.want)
		}
		d := c.PeekAt(noon, request(test.attrs), 1)
		expect(t, d.Limit == test.want, "%s: peeked %+v, want limit %d", test.why, d, test.want)
	}
}

// TestRetryAfterWithoutRoom: a hit denied beside an elastic limit's room waits less than one denied without room.
func TestRetryAfterWithoutRoom(t *testing.T) {
	use := 0.0
	c := ofYAML(t, Options{Signals: map[string]func() float64{"cpu": func() float64 { return use }}},
		`rules: [{name: r, key: [user], limit: 4/second, throttle: elastic, elastic: {up_to: 200%, while: {signal: cpu, below: 50%}}}]`)
	l := limiter(t, c, "r")
	l.CheckAt(noon, "k", 8)
	d := wantHit(t, l, noon, 1, false, "with room")
	expect(t, d.RetryAfter == 1125*time.Millisecond, "with room: %+v, want 1/8 of the 8 to have left", d)
	use = 1
	d = wantHit(t, l, noon, 1, false, "without")
	expect(t, d.RetryAfter == 1625*time.Millisecond, "without: %+v, want 5/8 of them to have left", d)
}

// TestRetryAfterCountsTheDenied: where denied hits count, the denied one has to leave, too.
func TestRetryAfterCountsTheDenied(t *testing.T) {
	c := ofYAML(t, Options{}, `rules: [{name: r, key: [user], limit: 4/second, count: all}]`)
	l := limiter(t, c, "r")
	l.CheckAt(noon, "k", 4)
	d := wantHit(t, l, noon, 1, false, "the fifth")
	expect(t, d.RetryAfter == 1400*time.Millisecond, "%+v, want 2/5 of 5 to have left", d)
	wantHit(t, l, noon+int64(d.RetryAfter), 1, true, "after RetryAfter")
}

// TestRetryAfterIsLongEnough: whatever the rules, a request that has been denied passes when
// RetryAfter is over, if no other comes; and Remaining is within the limit.
func TestRetryAfterIsLongEnough(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		text := anyClauses(rt)
		// A denied hit may take an elastic rule's room elsewhere, if it counts there.
		shifting := strings.Contains(text, "elastic") && strings.Contains(text, "count: all")
		c := ofYAML(t, Options{}, text)
		var trail []string
		now := noon
		for range rapid.IntRange(1, 60).Draw(rt, "requests") {
			now += rapid.SampledFrom([]int64{0, 1, 5 * ms, 50 * ms, 333 * ms, 1100 * ms}).Draw(rt, "pause")
			attrs, cost := anyRequest(rt), rapid.SampledFrom([]int64{1, 1, 2, 7, 30}).Draw(rt, "cost")
			peek, d := c.PeekAt(now, attrs, cost), c.CheckAt(now, attrs, cost)
			require(rt, peek.Remaining <= peek.Limit && d.Remaining <= d.Limit,
				"%s\n%v costs %d: peeked %+v, decided %+v", text, attrs, cost, peek, d)
			trail = append(trail, fmt.Sprint(now-noon, attrs, cost, d))
			if d.Allowed || d.RetryAfter == Never || shifting {
				continue
			}
			after := c.PeekAt(now+int64(d.RetryAfter), attrs, cost)
			require(rt, after.Allowed,
				"%s\n%v costs %d\ndenied  %+v\nand then %+v\n%s", text, attrs, cost, d, after, strings.Join(trail, "\n"))
		}
	})
}

// TestRetryAfterOfAHitThatWouldFit: others may have taken what is free by known counts, and
// something leaves the window sooner or later.
func TestRetryAfterOfAHitThatWouldFit(t *testing.T) {
	f, l := newFleetOf(t, 2, Options{}, 1000, 10*time.Second)
	denied := func(now int64) Decision { // the first that is
		for range 20 {
			if d := l.CheckAt(now, "k", 1); !d.Allowed {
				return d
			}
		}
		t.Fatal("nothing was denied")
		return Decision{}
	}
	f.alarm(noon, 1, l, "k", 990)
	d := denied(noon + ms)
	room := left(l, noon+ms, "k")
	expect(t, room >= 1 && d.RetryAfter <= 10*time.Second && d.RetryAfter >= 9*time.Second,
		"nothing leaves before the bucket's end: room for %d, %+v", room, d)
	d = l.CheckAt(noon+ms, "k", 20)
	expect(t, !d.Allowed && d.RetryAfter >= 9*time.Second && d.RetryAfter <= 20*time.Second, "a hit that would not fit: %+v", d)
	// In the next bucket a hundred hits leave per second: one takes ten ms.
	now := noon + 12*second
	for i := range int64(6) { // thirty come in 8 ms
		at := now - (5-i)*8*ms
		f.alarmMade(at, at, l, "k", 190-(5-i)*30)
	}
	d = denied(now)
	room = left(l, now, "k")
	expect(t, room >= 1 && d.RetryAfter >= 9*time.Millisecond && d.RetryAfter <= 11*time.Millisecond,
		"a hundred leave per second: room for %d, %+v", room, d)
}

// TestStandingIsPartOfExplain: it says what Explain does, of the rules that apply.
func TestStandingIsPartOfExplain(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := ofYAML(t, Options{}, anyClauses(rt))
		now, attrs := noon, anyRequest(rt)
		for range rapid.IntRange(0, 30).Draw(rt, "hits") {
			now += rapid.Int64Range(0, 300*ms).Draw(rt, "later")
			c.RecordAt(now, attrs, 1)
		}
		now += rapid.Int64Range(0, 5*second).Draw(rt, "ahead")
		_, all := c.ExplainAt(now, attrs, 1)
		some, _ := c.StandingAt(now, attrs)
		for _, want := range all {
			if want.Why != "" {
				continue
			}
			want.Decides = false
			require(rt, len(some) != 0 && some[0] == want, "got %+v, want %+v", some, want)
			some = some[1:]
		}
		require(rt, len(some) == 0, "beyond what Explain says: %+v", some)
	})
}
