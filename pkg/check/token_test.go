package check

import (
	"errors"
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
	require(t, d.Allowed && text != "", "a cost of %d of %q: %+v, token %q", cost, key, d, text)
	return text
}

func mustSettle(t testing.TB, c *Checker, now int64, text string, cost int64) {
	t.Helper()
	must(t, c.SettleAt(now, text, cost))
}

// TestTokens: a token names what was charged, by every rule, and in which bucket.
func TestTokens(t *testing.T) {
	list := []rules.Rule{rule("requests", 3, time.Minute, 60), rule("spent", 100, time.Minute, 1)}
	f := newFleet(t, Options{Epoch: 9}, list...)
	now := noon + 90*second
	f.Step(now)
	d, text := f.CheckTokenAt(now, user("kristie"), 2)
	m, err := events.DecodeToken(text)
	require(t, err == nil && d.Allowed && m.Epoch == 9 && m.Number == 1 && m.Made == now && len(m.Charges) == 2,
		"%+v, %v, %v", d, m, err)
	for i, want := range []string{"requests", "spent"} {
		c := m.Charges[i]
		if c.Rule.Name != want || string(c.Key) != "kristie" || c.Cost != 2 || c.Permits || c.Rule.Newest != list[i].Window.Bucket(now) {
			t.Errorf("%v", c)
		}
	}
	d, text = f.CheckTokenAt(now, user("kristie"), 2)
	expect(t, !d.Allowed && text == "", "one rule denies: %+v, %q", d, text)
	equal(t, left(limiter(t, f.Checker, "spent"), now, "kristie"), 98, "left by the rule that did not deny")
	d, text = f.CheckTokenAt(now, identity.Attributes{{Name: "animal", Value: "cat"}}, 1)
	m, err = events.DecodeToken(text)
	expect(t, err == nil && d.Allowed && len(m.Charges) == 0 && m.Number == 3, "no rule matches: %+v, %v, %v", d, m, err)
	mustSettle(t, f.Checker, now, text, 7) // nothing to do
	err = f.SettleAt(now, text, 7)
	expect(t, errors.Is(err, ErrSettled), "twice: %v", err)
}

// TestTokensOfRulesWithACost: a token is about the rules that have a cost of their own, also for
// callers of an override; the others stay as they are.
func TestTokensOfRulesWithACost(t *testing.T) {
	requests, cost := rule("requests", 100, time.Minute, 1), rule("tokens", 1000, time.Minute, 1)
	cost.Cost = "tokens"
	cost.Overrides = []rules.Override{{Match: []rules.Condition{{Name: "tier", Value: "gold"}}, Factor: 10}}
	for _, list := range [][]rules.Rule{{requests, cost}, {cost, requests}} {
		c := newChecker(t, Options{}, list...)
		for tier, name := range map[string]string{"none": cost.Name, "gold": cost.WireName(0)} {
			_, text := c.CheckTokenAt(noon, request("user="+tier+" tier="+tier+" tokens=400"), 1)
			m, err := events.DecodeToken(text)
			require(t, err == nil && len(m.Charges) == 1 && m.Charges[0].Rule.Name == name && m.Charges[0].Cost == 400,
				"%s: %v, %v", tier, m, err)
			mustSettle(t, c, noon, text, 301)
			equal(t, left(limiter(t, c, "requests"), noon, tier), 99, "%s: requests left", tier)
			l := c.program.Load().byName[name]
			equal(t, left(l, noon, tier), l.Rule().Limit-301, "%s: left", tier)
		}
	}
}

// TestUsedTokensAreRemembered: the last ones at least, in bounded memory.
func TestUsedTokensAreRemembered(t *testing.T) {
	var u used
	const (
		least  = usedChunk * usedChunks
		stride = 37 // meets every place of a chunk, and every chunk
	)
	for n := uint64(1); n < 3*least; n += stride {
		require(t, !u.has(7, n), "%d before it was settled", n)
		u.add(7, n)
		require(t, !u.has(7, n+1), "%d is taken for its neighbour", n)
		for _, back := range []uint64{0, 1, 13, 14, 27, least/stride - 1} {
			require(t, back*stride >= n || u.has(7, n-back*stride), "at %d: %d is forgotten", n, n-back*stride)
		}
	}
	n := len(u.young) + len(u.old)
	expect(t, n <= 2*usedChunks, "%d chunks in memory", n)
	expect(t, !u.has(8, 1) && !u.has(7, 1), "it remembers what it should not")
}
