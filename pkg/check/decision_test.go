package check

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

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
			peek, d := atTime(now, c).try(Peek, attrs, cost).Decision, atTime(now, c).Check(attrs, cost)
			require(rt, peek.Remaining <= peek.Limit && d.Remaining <= d.Limit,
				"%s\n%v costs %d: peeked %+v, decided %+v", text, attrs, cost, peek, d)
			trail = append(trail, fmt.Sprint(now-noon, attrs, cost, d))
			if d.Allowed || d.RetryAfter == Never || shifting {
				continue
			}
			after := atTime(now+int64(d.RetryAfter), c).try(Peek, attrs, cost).Decision
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
			if d := atTime(now, l).Check("k", 1); !d.Allowed {
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
	d = atTime(noon+ms, l).Check("k", 20)
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
