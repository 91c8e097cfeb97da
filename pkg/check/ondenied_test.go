package check

import (
	"strings"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/rules"
)

// TestOnDenied: Options.OnDenied hears of as many denials as are counted, by key, in whichever way.
func TestOnDenied(t *testing.T) {
	several := []rules.Rule{rule("a", 5, time.Hour, 1), rule("b", 3, time.Hour, 1)}
	listed := rule("listed", 5, time.Hour, 1)
	listed.Deny = []rules.List{{Attribute: "user", Values: []string{"k"}}}
	shadow := rule("shadow", 2, time.Hour, 1)
	shadow.Shadow = true
	closed := rule("closed", 5, time.Hour, 1)
	closed.OnOutage = rules.Closed
	h := hasher(t, keySecret)
	for _, test := range []struct {
		why   string
		o     Options
		rules []rules.Rule
		key   string
	}{
		{"a small limit", Options{}, several[:1], "k"},
		{"two rules", Options{}, several, "k"},
		{"a forecast", Options{Link: new(tape)}, []rules.Rule{rule("r", 200, time.Hour, 1)}, "k"},
		{"no room", Options{MaxLiveKeys: 1}, []rules.Rule{closed}, "k"},
		{"a block", Options{}, several[:1], "blocked"},
		{"a block of one", Options{}, several, "blocked"},
		{"a deny list", Options{}, []rules.Rule{listed}, "k"},
		{"shadow", Options{}, []rules.Rule{shadow}, "k"},
		{"hashed keys", Options{KeyHash: h}, several[:1], "k"},
	} {
		heard := map[string]int64{}
		test.o.OnDenied = func(rule, key string, decisions int64) { heard[rule+" "+strings.Clone(key)] += decisions }
		c := newChecker(t, test.o, test.rules...)
		if test.o.Link != nil {
			c = newFleet(t, test.o, test.rules...).Checker
		}
		c.SetBlocks([]Block{{"a", "blocked", time.Unix(0, noon+second)}})
		c.CheckAt(noon, user("first"), 1)
		for range 300 {
			c.CheckAt(noon, user(test.key), 1)
			limiter(t, c, test.rules[0].Name).CheckAt(noon, test.key, 1)
		}
		c.Step(noon + second)
		reported := test.key
		if test.o.KeyHash != nil {
			reported = h.Hash(test.key)
		}
		denied := int64(0)
		for _, s := range c.Stats().Rules {
			if denied += s.Denied; heard[s.Rule+" "+reported] != s.Denied {
				t.Errorf("%s: rule %s: %d counted, heard of %v", test.why, s.Rule, s.Denied, heard)
			}
		}
		if denied == 0 {
			t.Errorf("%s: nothing was denied", test.why)
		}
	}
}
