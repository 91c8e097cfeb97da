package httplimit_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/check/checktest"
	"github.com/offpath-io/offpath/pkg/httplimit"
	"github.com/offpath-io/offpath/pkg/identity"
)

var asLogin = identity.Attribute{Name: "api", Value: "login"}

// guard is the middleware that charges for failed logins.
func guard(t testing.TB, l *httplimit.Limit) func(http.Handler) http.Handler {
	t.Helper()
	failures, err := l.ChargeOn(asLogin, http.StatusUnauthorized, http.StatusForbidden)
	must(t, err)
	return failures
}

// login lets in who knows the password.
var login = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Password") != "secret" {
		http.Error(w, "no", http.StatusUnauthorized)
	}
})

// The shipped rules of a login do what they say: three failures a day, for a user and for an
// address, and successes are free.
func TestLogin(t *testing.T) {
	yaml, err := os.ReadFile("../../deploy/rules/login.yaml")
	must(t, err)
	h := guard(t, newLimit(t, checker(t, string(yaml)), httplimit.Options{User: byHeader}))(login)
	for i, step := range []struct {
		user, addr, password string
		times, want          int
		rule                 string
	}{
		{"kristie", "192.0.2.1", "secret", 20, 200, ""},
		{"kristie", "192.0.2.1", "guess", 2, 401, ""},
		{"kristie", "192.0.2.1", "secret", 20, 200, ""},
		{"kristie", "192.0.2.1", "guess", 1, 401, ""},
		{"kristie", "192.0.2.2", "secret", 5, 429, "login-failures-per-user"}, // also when it would be right, from elsewhere
		{"bob", "192.0.2.1", "secret", 5, 429, "login-failures-per-ip"},
		{"bob", "192.0.2.2", "secret", 1, 200, ""},
		{"", "192.0.2.3", "secret", 1, 429, "login-failures-per-user"}, // on_missing: deny
		{"eve", "203.0.113.7", "guess", 3, 401, ""},
		{"mallory", "203.0.113.7", "guess", 3, 401, ""}, // the office has 10x
	} {
		for range step.times {
			r := request("POST", "/login", "X-User", step.user, "Password", step.password)
			r.RemoteAddr = step.addr + ":4711"
			w := answer(h, r)
			if w.Code != step.want || !strings.Contains(w.Header().Get("RateLimit"), step.rule) {
				t.Errorf("step %d: %d %v, want %d by %q", i, w.Code, w.Header(), step.want, step.rule)
			}
		}
	}
}

// Who waits for each answer gets no attempt more than the limit, although the service is not done
// when the answer has come.
func TestChargedBeforeTheAnswerLeaves(t *testing.T) {
	for name, begin := range map[string]func(http.ResponseWriter){
		"status": func(w http.ResponseWriter) { w.WriteHeader(http.StatusForbidden) },
		"hint first": func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusForbidden)
		},
		"body":   func(w http.ResponseWriter) { fmt.Fprint(w, "no") },
		"string": func(w http.ResponseWriter) { _, _ = io.WriteString(w, "no") },
		"flush":  func(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() },
		"file":   func(w http.ResponseWriter) { _, _ = io.Copy(w, struct{ io.Reader }{strings.NewReader("no")}) },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLimit(t, checker(t, "rules: [{name: failures, match: {api: login}, key: [ip], limit: 1/day}]"), httplimit.Options{})
			failures, err := l.ChargeOn(asLogin, http.StatusOK, http.StatusForbidden)
			must(t, err)
			done := make(chan struct{})
			server := httptest.NewServer(failures(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				begin(w)
				_ = http.NewResponseController(w).Flush()
				<-done
			})))
			defer server.Close()
			defer close(done)
			for _, denied := range []bool{false, true} {
				response, err := http.Get(server.URL)
				must(t, err)
				defer response.Body.Close()
				if got := response.StatusCode == http.StatusTooManyRequests; got != denied {
					t.Errorf("%d; want it denied: %v", response.StatusCode, denied)
				}
			}
		})
	}
}

// What counts is the status that the client gets, however the handler comes to it. A panic is 500,
// and goes on.
func TestOutcomeStatuses(t *testing.T) {
	write := func(w http.ResponseWriter) { _, _ = io.WriteString(w, "hello") }
	for _, tt := range []struct {
		why    string
		h      func(w http.ResponseWriter)
		status int
		panics any
	}{
		{"a status", func(w http.ResponseWriter) { w.WriteHeader(401) }, 401, nil},
		{"none", func(http.ResponseWriter) {}, 200, nil},
		{"a body without one", write, 200, nil},
		{"the second does not count", func(w http.ResponseWriter) { w.WriteHeader(200); w.WriteHeader(401) }, 200, nil},
		{"nor one after the body", func(w http.ResponseWriter) { write(w); w.WriteHeader(401) }, 200, nil},
		{"an early hint is not the answer", func(w http.ResponseWriter) { w.WriteHeader(103); w.WriteHeader(401) }, 401, nil},
		{"and then the body", func(w http.ResponseWriter) { w.WriteHeader(401); write(w) }, 401, nil},
		{"a panic", func(http.ResponseWriter) { panic("oops") }, 500, "oops"},
		{"a panic after a status", func(w http.ResponseWriter) { w.WriteHeader(401); panic("oops") }, 401, "oops"},
		{"a panic after a body", func(w http.ResponseWriter) { write(w); panic(http.ErrAbortHandler) }, 200, http.ErrAbortHandler},
	} {
		for _, charged := range []int{200, 401, 500} {
			c := checktest.Allow().WithRules(parse(t, "rules: [{name: failures, match: {api: login}, key: [user], limit: 3/day}]"))
			on := []int{403, charged}
			charge, err := newLimit(t, c, httplimit.Options{User: byHeader}).ChargeOn(asLogin, on...)
			must(t, err)
			on[1] = 404 // it has its own
			h := charge(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { tt.h(w) }))
			panicked := func() (p any) {
				defer func() { p = recover() }()
				answer(h, request("POST", "/", "X-User", "kristie"))
				return nil
			}()
			want := []string{"peek [{api login} {user kristie}]"}
			if charged == tt.status {
				want = append(want, "record [{api login} {user kristie}]")
			}
			if got := asked(c); !slices.Equal(got, want) || panicked != tt.panics {
				t.Errorf("%s, %d: asked %q, want %q; panic %v", tt.why, charged, got, want, panicked)
			}
		}
	}
}

var modes = map[check.Mode]string{check.Charge: "check", check.Peek: "peek", check.Record: "record"}

func asked(c *checktest.Checker) (all []string) {
	for _, a := range c.Asked() {
		all = append(all, fmt.Sprint(modes[a.Mode], " ", a.Attributes))
	}
	return all
}

// Without a rule that asks for the attribute nothing is asked and nothing wrapped; and when such a
// rule comes, it holds.
func TestOutcomesWithoutRules(t *testing.T) {
	c := checktest.Allow().For("user")
	h := guard(t, newLimit(t, c, httplimit.Options{}))(login)
	if w := answer(h, request("POST", "/")); w.Code != 401 || len(c.Asked()) != 0 {
		t.Errorf("%d, asked %v", w.Code, c.Asked())
	}
	c.WithRules(parse(t, "rules: [{name: failures, match: {api: login}, key: [], limit: 3/day}]"))
	if w := answer(h, request("POST", "/")); w.Code != 401 || len(c.Asked()) != 2 {
		t.Errorf("%d, asked %v", w.Code, c.Asked())
	}
}

func TestChargeOnSays(t *testing.T) {
	limit := newLimit(t, checktest.Allow(), httplimit.Options{User: byHeader})
	for _, tt := range []struct {
		name     string
		statuses []int
		want     string
	}{
		{"api", nil, "no status"},
		{"api", []int{401, 100}, "status 100"},
		{"api", []int{1000}, "status 1000"},
		{"", []int{401}, "empty"},
		{"user", []int{401}, `"user": requests have it anyway`},
		{"header:a b", []int{401}, "no header"},
	} {
		_, err := limit.ChargeOn(identity.Attribute{Name: tt.name}, tt.statuses...)
		if err == nil || !strings.HasPrefix(err.Error(), "httplimit: charge by outcome: ") || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q, %v: %v, want %q", tt.name, tt.statuses, err, tt.want)
		}
	}
}
