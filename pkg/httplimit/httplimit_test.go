package httplimit_test

import (
	"context"
	"net/http"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/check/checktest"
	"github.com/offpath-io/offpath/pkg/httplimit"
	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/identity/httpidentity"
	"github.com/offpath-io/offpath/pkg/rules"
)

var (
	_ httplimit.Checker = (*check.Checker)(nil)
	_ httplimit.Checker = (*checktest.Checker)(nil)
)

func byHeader(r *http.Request) string { return r.Header.Get("X-User") }

// A request is read as the rules need, and no further: who the user is, is asked once and only if a
// rule wants to know. It may take a look at a token.
func TestReadsWhatTheRulesAskFor(t *testing.T) {
	trusted, err := httpidentity.ParseProxies("192.0.2.0/24")
	must(t, err)
	from := httpidentity.Options{TrustedProxies: trusted, Sources: map[string]httpidentity.Source{"plan": httpidentity.FromHeader("X-Plan")}}
	r := request("GET", "/a//b?c=d", "X-User", "kristie", "X-Plan", "gold", "X-Forwarded-For", "6.6.6.6, 2001:db8::7")
	for _, tt := range []struct {
		why  string
		keys []string
		o    httplimit.Options
		want identity.Attributes
	}{
		{"nothing", nil, httplimit.Options{User: byHeader, Identity: from}, nil},
		{"the user", []string{"user"}, httplimit.Options{User: byHeader}, identity.Attributes{{Name: "user", Value: "kristie"}}},
		{"no user without who knows", []string{"user"}, httplimit.Options{}, nil},
		{"nobody is no user", []string{"user"}, httplimit.Options{User: func(*http.Request) string { return "" }}, nil},
		{"the client", []string{"ip"}, httplimit.Options{Identity: from}, identity.Attributes{{Name: "ip", Value: "2001:db8::/64"}}},
		{"the proxy, if it is not trusted", []string{"ip"}, httplimit.Options{}, identity.Attributes{{Name: "ip", Value: "192.0.2.1"}}},
		{"a source", []string{"plan", "path"}, httplimit.Options{Identity: from}, identity.Attributes{{Name: "path", Value: "/a/b"}, {Name: "plan", Value: "gold"}}},
	} {
		asked, want := 0, 0
		if user := tt.o.User; user != nil {
			tt.o.User = func(r *http.Request) string { asked++; return user(r) }
			want = strings.Count(strings.Join(tt.keys, " "), "user")
		}
		c := checktest.Allow().For(tt.keys...)
		if w := answer(newLimit(t, c, tt.o).Handler(hello), r); w.Code != 200 || w.Body.String() != "hello" {
			t.Errorf("%s: %d %s", tt.why, w.Code, w.Body)
		}
		if asked != want {
			t.Errorf("%s: asked who the user is %d times, want %d", tt.why, asked, want)
		}
		got := c.Asked()
		if len(got) != 1 || got[0].Method != "Check" || got[0].Cost != 1 || got[0].Decision != checktest.Allowed(99) ||
			!slices.Equal(got[0].Attributes, tt.want) {
			t.Errorf("%s: asked %+v, want %+v", tt.why, got, tt.want)
		}
	}
}

// What http.ServeMux takes for a path below /api/, and a rule for another one, does not reach the
// handler, by any way of asking. It is refused where paths count, and nowhere else.
func TestAmbiguousPaths(t *testing.T) {
	const byPath = "{name: api, match: {path: /api/*}, key: [], limit: 1/day}, {name: failed, match: {outcome: failed, path: /api/*}, key: [], limit: 1/day}"
	for rule, want := range map[string]int{byPath: 400, "{name: per-ip, key: [ip], limit: 9/day}": 200} {
		limit := newLimit(t, checker(t, "rules: ["+rule+"]"), httplimit.Options{})
		charge, err := limit.ChargeOn(identity.Attribute{Name: "outcome", Value: "failed"}, 401)
		must(t, err)
		served := 0
		mux := http.NewServeMux()
		mux.HandleFunc("/api/", func(http.ResponseWriter, *http.Request) { served++ })
		for _, h := range []http.Handler{limit.Handler(mux), charge(mux)} {
			for _, path := range []string{"/api/..%2fx", "/api/a%2f%2e%2e%2f%2e%2e/x"} {
				w := answer(h, request("GET", path))
				if w.Code != want || want == 400 && (w.Header().Get("Retry-After") != "" || !strings.Contains(w.Body.String(), `"about:blank"`)) {
					t.Errorf("%s: %s: %d %v %s, want %d", rule, path, w.Code, w.Header(), w.Body, want)
				}
			}
		}
		d := limit.Decide(request("GET", "/api/..%2fx"))
		if d.Allowed != (want == 200) || served != map[int]int{400: 0, 200: 4}[want] {
			t.Errorf("%s: %+v, and %d served", rule, d, served)
		}
	}
}

// A header of which servers may take the first or the last is refused where rules go by it: who has
// used up the limit of his API key could write another one before it.
func TestAmbiguousHeaders(t *testing.T) {
	limit := newLimit(t, checker(t, "rules: [{name: per-key, key: ['header:x-api-key'], limit: 2/day}]"), httplimit.Options{})
	for _, tt := range []struct {
		why  string
		keys []string
		want int
	}{
		{"one", []string{"mine"}, 200},
		{"the same twice", []string{"mine", "mine"}, 200},
		{"used up", []string{"mine"}, 429},
		{"another one first", []string{"made-up", "mine"}, 400},
		{"another one last", []string{"mine", "mine", "made-up"}, 400},
	} {
		r := request("GET", "/")
		r.Header["X-Api-Key"], r.Header["X-Other"] = tt.keys, []string{"a", "b"}
		if w := answer(limit.Handler(hello), r); w.Code != tt.want || tt.want == 400 && !strings.Contains(w.Body.String(), "twice") {
			t.Errorf("%s: %d %s, want %d", tt.why, w.Code, w.Body, tt.want)
		}
	}
}

// The next request after a change of the rules is read as the new ones ask.
func TestRulesChange(t *testing.T) {
	c := checker(t, "rules: [{name: per-user, key: [user], limit: 1/hour}]")
	limit := newLimit(t, c, httplimit.Options{User: byHeader})
	h := limit.Handler(hello)
	step := func(why string, want int, policy string, headers ...string) {
		t.Helper()
		if w := answer(h, request("GET", "/", headers...)); w.Code != want || w.Header().Get("RateLimit-Policy") != policy {
			t.Errorf("%s: %d %v, want %d %s", why, w.Code, w.Header(), want, policy)
		}
	}
	step("the first", 200, `"per-user";q=1;w=3600`, "X-User", "kristie")
	step("the second", 429, `"per-user";q=1;w=3600`, "X-User", "kristie")
	must(t, c.SetRules(parse(t, "rules: [{name: per-plan, key: ['header:x-plan'], on_missing: deny, limit: 2/minute}]"), 2))
	step("of another kind", 200, `"per-plan";q=2;w=60`, "X-Plan", "gold")
	step("without it", 429, `"per-plan";q=2;w=60`)
	// What cannot be a header's name, or nothing provides, is missing, and the others are read.
	const odd = "{name: odd, key: ['header:a(b'], limit: 1/day}, {name: o, key: [org], limit: 1/day}"
	must(t, c.SetRules(parse(t, "rules: [{name: per-user, key: [user], limit: 1/minute}, "+odd+"]"), 3))
	step("with an odd rule beside", 200, `"per-user";q=1;w=60`, "X-User", "bob")
	if got := limit.Unknown(); !reflect.DeepEqual(got, []string{"header:a(b", "org"}) {
		t.Errorf("unknown: %q", got)
	}
}

// Rules may change while requests come in: each is decided by the one set or the other, and read
// for it.
func TestRulesChangeUnderLoad(t *testing.T) {
	sets := []*rules.Set{parse(t, "rules: [{name: a, key: [user], on_missing: deny, limit: 1000000/hour}]"), parse(t, "rules: [{name: b, key: [ip], on_missing: deny, limit: 1000000/hour}]")}
	c, err := check.New(check.Options{Rules: sets[0]})
	must(t, err)
	h := newLimit(t, c, httplimit.Options{User: byHeader}).Handler(hello)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 200 {
				answer(h, request("GET", "/", "X-User", "kristie"))
			}
		})
	}
	for i := range 100 {
		if err := c.SetRules(sets[i%2], uint64(i+1)); err != nil {
			t.Error(err)
		}
	}
	all.Wait()
	if w := answer(h, request("GET", "/", "X-User", "kristie")); w.Code != 200 || !strings.HasPrefix(w.Header().Get("RateLimit"), `"b"`) {
		t.Errorf("%d %v", w.Code, w.Header())
	}
}

func TestNewSays(t *testing.T) {
	fine := checktest.Allow()
	source := map[string]httpidentity.Source{"user": httpidentity.FromHeader("X-User")}
	for _, tt := range []struct {
		c    httplimit.Checker
		o    httplimit.Options
		want string
	}{
		{nil, httplimit.Options{}, "no checker"},
		{checktest.Allow().WithRules(nil), httplimit.Options{}, "no rules"},
		{fine, httplimit.Options{Headers: 12}, "draft 12: want 4 to 11"},
		{fine, httplimit.Options{Headers: 3}, "draft 3: want 4 to 11"},
		{fine, httplimit.Options{User: byHeader, Identity: httpidentity.Options{Sources: source}}, "want one of them"},
		{fine, httplimit.Options{Identity: httpidentity.Options{TrustedProxies: []netip.Prefix{{}}}}, "trusted proxy 1"},
		{checktest.Allow().For("header:a(b"), httplimit.Options{}, `"header:a(b"`},
	} {
		if _, err := httplimit.New(tt.c, tt.o); err == nil || !strings.HasPrefix(err.Error(), "httplimit: ") || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want %q", tt.o, err, tt.want)
		}
	}
	if _, err := httplimit.New(fine, httplimit.Options{Identity: httpidentity.Options{Sources: source}}); err != nil {
		t.Error(err)
	}
}

// By which method the checker is asked, and for how long it may take.
func TestHowItAsks(t *testing.T) {
	const queue, strict = ", on_limit: queue, max_wait: 300ms", ", enforcement: strict"
	later := checktest.Denied(time.Second)
	later.Queue, later.MaxWait = true, 300*time.Millisecond
	for _, tt := range []struct {
		why    string
		clause string
		o      httplimit.Options
		answer check.Decision
		want   []string
	}{
		{"at once", "", httplimit.Options{}, later, []string{"Check forever"}},
		{"where callers may wait", queue, httplimit.Options{}, later, []string{"turn 1h0m0s"}},
		{"where permits are needed", strict, httplimit.Options{}, later, []string{"permit 20ms", "turn 320ms"}},
		{"for longer", strict, httplimit.Options{Acquire: time.Second}, later, []string{"permit 1s", "turn 1.3s"}},
		{"not at all", strict, httplimit.Options{Acquire: -1}, later, []string{"Check forever", "turn 300ms"}},
		{"with a permit", strict, httplimit.Options{}, checktest.Allowed(1), []string{"permit 20ms"}},
		{"with a denial that stays", strict, httplimit.Options{}, checktest.Denied(1), []string{"permit 20ms"}},
	} {
		c := &timed{Checker: checktest.Script(tt.answer).WithRules(parse(t, "rules: [{name: r, key: [user], limit: 1/hour"+tt.clause+"}]"))}
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour) // that of a client who hangs up then
			defer cancel()
			newLimit(t, c, tt.o).Decide(request("GET", "/").WithContext(ctx))
		})
		if !slices.Equal(c.calls, tt.want) {
			t.Errorf("%s: %q, want %q", tt.why, c.calls, tt.want)
		}
	}
}

// timed notes how long its callers' contexts last, to the nanosecond where time stands still.
type timed struct {
	*checktest.Checker
	calls []string
}

func (c *timed) note(method string, ctx context.Context) {
	left := "forever"
	if deadline, ok := ctx.Deadline(); ok {
		left = time.Until(deadline).String()
	}
	c.calls = append(c.calls, method+" "+left)
}

func (c *timed) Check(attrs identity.Attributes, cost int64) check.Decision {
	c.note("Check", context.Background())
	return c.Checker.Check(attrs, cost)
}

func (c *timed) Wait(ctx context.Context, r check.Request) (check.Result, error) {
	c.note(map[check.Mode]string{check.Charge: "permit", check.Reserve: "turn"}[r.Mode], ctx)
	return c.Checker.Wait(ctx, r)
}
