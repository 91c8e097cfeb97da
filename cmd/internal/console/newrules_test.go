package console

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/offpath-io/offpath/internal/natssource"
	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/signature"
)

// rulesDesk is a console of a fleet whose rules are in the bucket, and someone to ask it.
func rulesDesk(t *testing.T, o Options) (c *Console, post func(path, token string, body any) (int, string)) {
	t.Helper()
	o.Conn, o.Namespace = serverstest.Connect(t, serverstest.JetStream(t).URL()), "test"
	o.Worker, o.Tally = &deskWorker{}, NewTally()
	tokens, err := OpenTokens(nil, "", "kristie:"+good)
	must(t, err)
	o.Tokens = tokens
	c, err = New(o)
	must(t, err)
	runConsole(t, c)
	h := c.Handler(http.NotFoundHandler())
	return c, func(path, token string, body any) (int, string) {
		t.Helper()
		data, err := json.Marshal(body)
		must(t, err)
		answer := ask(t, h, "POST", path, string(data), "Bearer "+token, "application/json")
		return answer.Code, answer.Body.String()
	}
}

const (
	oneRule  = "rules:\n  - {name: a, key: [user], limit: 5/minute}\n"
	twoRules = "rules:\n  - {name: a, key: [user], limit: 9/minute}\n  - {name: b, key: [ip], limit: 1/second}\n"
)

// TestNewRules: a set is compared with the one in force, and written by who has a token, if that is
// still the one that it was compared with; and who did is written down.
func TestNewRules(t *testing.T) {
	c, post := rulesDesk(t, Options{SetRules: func([]storage.Rule) {}})
	order := func(text string, revision int) map[string]any {
		return map[string]any{"text": text, "revision": revision}
	}
	step := func(why, path, token string, body any, want int, says string) {
		t.Helper()
		if got, text := post(path, token, body); got != want || !strings.Contains(text, says) {
			t.Fatalf("%s: %d %s; want %d %s", why, got, text, want, says)
		}
	}
	step("no token", "/api/rules/diff", "", order(oneRule, 0), 401, "token")
	step("no token", "/api/rules/apply", "", order(oneRule, 0), 401, "token")
	step("no rules", "/api/rules/apply", good, order("rules: [{name: 5", 0), 422, "refused")
	step("no rules", "/api/rules/diff", good, order("rules:\n  - name: a\n    limt: 5", 0), 200, `"refused":"refused: `)
	step("the first", "/api/rules/diff", good, order(oneRule, 0), 200, `"what":"added"`)
	step("the first", "/api/rules/apply", good, order(oneRule, 0), 200, `"revision":1`)
	daemontest.Eventually(t, "the console has the set", func() bool { return c.rules.view().Revision == 1 })
	step("the same", "/api/rules/diff", good, order(oneRule, 0), 200, `"same":true,"changes":[]`)
	step("a change", "/api/rules/diff", good, order(twoRules, 0), 200,
		`"changes":[{"rule":"a","what":"changed","fields":[{"field":"limit","old":"5/minute","new":"9/minute"}]},{"rule":"b","what":"added"`)
	step("somebody was quicker", "/api/rules/apply", good, order(twoRules, 7), 409, "somebody else has written")
	step("a change", "/api/rules/apply", good, order(twoRules, 1), 200, `"revision":2`)
	step("a field too many", "/api/rules/apply", good, map[string]any{"text": oneRule, "force": true}, 400, "force")
	daemontest.Eventually(t, "it is written down", func() bool {
		for _, r := range c.diary.latest() {
			if r.What == "rules" && r.Who.Name == "kristie" && r.Error == "" && r.Detail == "revision 2, 2 rules changed" {
				return true
			}
		}
		return false
	})
}

// TestNewRulesOfOthers: rules that are in files, or signed by a key that the console has not, are
// not written by it; those that it can sign are.
func TestNewRulesOfOthers(t *testing.T) {
	body := map[string]any{"text": oneRule}
	_, post := rulesDesk(t, Options{})
	for _, path := range []string{"/api/rules/diff", "/api/rules/apply"} {
		if got, text := post(path, good, body); got != 409 || !strings.Contains(text, "in files") {
			t.Errorf("%s: %d %s", path, got, text)
		}
	}
	key, err := signature.NewKey()
	must(t, err)
	for _, can := range []bool{false, true} {
		v, err := signature.NewVerifier(nil, key.Public())
		must(t, err)
		o := Options{SetRules: func([]storage.Rule) {}, RulesVerifier: v}
		want := "403 --rules-signing-key-file"
		if can {
			o.RulesKey, want = func() *signature.Key { return key }, "200 \"revision\":1"
		}
		c, post := rulesDesk(t, o)
		got, text := post("/api/rules/apply", good, body)
		code, says, _ := strings.Cut(want, " ")
		if fmt.Sprint(got) != code || !strings.Contains(text, says) {
			t.Errorf("%d %s, want %s", got, text, want)
		}
		if can {
			bucket, err := natssource.New(c.o.Conn, "test", natssource.Options{Verifier: v})
			must(t, err)
			if e, err := bucket.Get(t.Context()); err != nil || e.SignedBy != key.Public() {
				t.Errorf("%+v, %v", e, err)
			}
		}
	}
	// Without public keys it does not replace what somebody has signed.
	c, post := rulesDesk(t, Options{SetRules: func([]storage.Rule) {}})
	bucket, err := natssource.New(c.o.Conn, "test", natssource.Options{Key: key})
	must(t, err)
	_, err = bucket.Put(t.Context(), []byte(twoRules), 0)
	must(t, err)
	daemontest.Eventually(t, "the console has the set", c.rules.isSigned)
	if got, text := post("/api/rules/apply", good, map[string]any{"text": oneRule, "revision": 1}); got != 403 {
		t.Errorf("%d %s", got, text)
	}
}

// TestNewRulesAfterRefusedOnes: a set is compared with the rules in force, and the answer names
// their revision, though the bucket has a later one that is refused; which the set then replaces.
func TestNewRulesAfterRefusedOnes(t *testing.T) {
	c, post := rulesDesk(t, Options{SetRules: func([]storage.Rule) {}})
	bucket, err := natssource.New(c.o.Conn, "test", natssource.Options{})
	must(t, err)
	for i, text := range []string{oneRule, "rules: [{name: 5"} {
		_, err = bucket.Put(t.Context(), []byte(text), uint64(i))
		must(t, err)
		daemontest.Eventually(t, "the console has the text", func() bool { return c.rules.view().Revision == uint64(i+1) })
	}
	order := map[string]any{"text": twoRules, "revision": 2}
	code, text := post("/api/rules/diff", good, order)
	if code != 200 || !strings.Contains(text, `"revision":2,"in_force":1,`) || !strings.Contains(text, `"fields":[{"field":"limit","old":"5/minute"`) {
		t.Errorf("%d %s", code, text)
	}
	if code, text := post("/api/rules/apply", good, order); code != 200 || !strings.Contains(text, `"revision":3,`) {
		t.Errorf("%d %s", code, text)
	}
}

// runConsole has a console work until the test ends.
func runConsole(t *testing.T, c *Console) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		must(t, <-done)
	})
}
