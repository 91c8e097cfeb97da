package check

import (
	"fmt"
	"strings"
	"sync"
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
	for name, test := range map[string]struct {
		o     Options
		fleet bool
		rules []rules.Rule
		block string
	}{
		"a small limit":  {rules: several[:1]},
		"two rules":      {rules: several},
		"a forecast":     {rules: []rules.Rule{rule("r", 200, time.Hour, 1)}, fleet: true},
		"no room":        {rules: []rules.Rule{{Name: "r", Key: []string{"user"}, Limit: 5, Window: several[0].Window, OnOutage: rules.Closed}}, o: Options{MaxLiveKeys: 1}},
		"a block":        {rules: several[:1], block: "a"},
		"a block of one": {rules: several, block: "a"},
		"a deny list":    {rules: []rules.Rule{listed}},
		"shadow":         {rules: []rules.Rule{shadow}},
		"hashed keys":    {rules: several[:1], o: Options{KeyHash: hasher(t, "a secret of enough bytes")}},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			told := map[string]int64{}
			test.o.OnDenied = func(rule, key string, decisions int64) {
				mu.Lock()
				defer mu.Unlock()
				told[rule+" "+strings.Clone(key)] += decisions
			}
			c := newChecker(t, test.o, test.rules...)
			if test.fleet {
				c = newFleet(t, test.o, test.rules...).Checker
			}
			if test.block != "" {
				c.SetBlocks([]Block{{test.block, "k", time.Unix(0, noon+second)}})
			}
			key := "k"
			if test.o.KeyHash != nil {
				key = test.o.KeyHash.Hash("k")
			}
			c.CheckAt(noon, user("first"), 1)
			for range 300 {
				c.CheckAt(noon, user("k"), 1)
				limiter(t, c, test.rules[0].Name).CheckAt(noon, "k", 1)
			}
			c.Step(noon + second)
			any := false
			for _, s := range c.Stats().Rules {
				want := fmt.Sprintf("%s %s", s.Rule, key)
				if told[want] != s.Denied {
					t.Errorf("rule %s: told of %d, counted %d: %v", s.Rule, told[want], s.Denied, told)
				}
				any = any || s.Denied > 0
			}
			if !any {
				t.Error("nothing was denied")
			}
		})
	}
}
