package check

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestRetryAfterWithoutRoom: who is denied after one who was denied although there was room has to wait for longer.
func TestRetryAfterWithoutRoom(t *testing.T) {
	use := 0.0
	c := ofYAML(t, Options{Signals: map[string]func() float64{"cpu": func() float64 { return use }}},
		`rules: [{name: r, key: [user], limit: 4/second, throttle: elastic, elastic: {up_to: 200%, while: {signal: cpu, below: 50%}}}]`)
	attrs := request("user=a")
	c.CheckAt(noon, attrs, 8)
	if d := c.CheckAt(noon, attrs, 1); d.Allowed || d.RetryAfter != 1125*time.Millisecond {
		t.Errorf("with room: %+v, want 1/8 of the 8 to have left", d)
	}
	use = 1
	if d := c.CheckAt(noon, attrs, 1); d.Allowed || d.RetryAfter != 1625*time.Millisecond {
		t.Errorf("without: %+v, want 5/8 of them to have left", d)
	}
}

// TestRetryAfterCountsTheDenied: where denied hits count, the denied one has to leave, too.
func TestRetryAfterCountsTheDenied(t *testing.T) {
	c := ofYAML(t, Options{}, `rules: [{name: r, key: [user], limit: 4/second, count: all}]`)
	attrs := request("user=a")
	c.CheckAt(noon, attrs, 4)
	d := c.CheckAt(noon, attrs, 1)
	if d.Allowed || d.RetryAfter != 1400*time.Millisecond {
		t.Errorf("%+v, want 2/5 of 5 to have left", d)
	}
	if d := c.CheckAt(noon+int64(d.RetryAfter), attrs, 1); !d.Allowed {
		t.Errorf("who comes when he was told to: %+v", d)
	}
}

// TestRetryAfterIsLongEnough: whatever the rules, a request that has been denied passes when RetryAfter is over, if no other
// comes; also where denied hits count, and where an elastic rule had room for the one before, and has none for this one.
func TestRetryAfterIsLongEnough(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		text := anyClauses(rt)
		if strings.Contains(text, "elastic") { // a denied hit may take the room elsewhere, if it counts there
			text = strings.ReplaceAll(text, "  count: all\n", "")
		}
		c := ofYAML(t, Options{}, text)
		var trail []string
		now := noon
		for range rapid.IntRange(1, 60).Draw(rt, "requests") {
			now += rapid.SampledFrom([]int64{0, 1, 5 * ms, 50 * ms, 333 * ms, 1100 * ms}).Draw(rt, "pause")
			attrs, cost := anyRequest(rt), rapid.SampledFrom([]int64{1, 1, 2, 7, 30}).Draw(rt, "cost")
			d := c.CheckAt(now, attrs, cost)
			trail = append(trail, fmt.Sprint(now-noon, attrs, cost, d))
			if d.Allowed || d.RetryAfter == Never {
				continue
			}
			if after := c.PeekAt(now+int64(d.RetryAfter), attrs, cost); !after.Allowed {
				rt.Fatalf("%s\n%v costs %d\ndenied  %+v\nand then %+v\n%s", text, attrs, cost, d, after, strings.Join(trail, "\n"))
			}
		}
	})
}
