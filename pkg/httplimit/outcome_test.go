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

// The shipped rules of a login do what they say: three failures a day, for a user and for an address, and successes are free.
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

// Who waits for each answer gets no attempt more than the limit, although the service is not done when the answer has come.
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

// What counts is the status that the client gets, however the handler comes to it.
func TestOutcomeStatuses(t *testing.T) {
	for _, tt := range []struct {
		why     string
		h       http.HandlerFunc
		charged bool
	}{
		{"a status that is charged", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) }, true},
		{"the other one", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(403) }, true},
		{"one that is not", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) }, false},
		{"none, which is 200", func(http.ResponseWriter, *http.Request) {}, false},
		{"a body without one", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }, false},
		{"the second does not count", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200); w.WriteHeader(401) }, false},
		{"nor one after the body", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello"); w.WriteHeader(401) }, false},
		{"an early hint is not the answer", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(103); w.WriteHeader(401) }, true},
		{"and then the body", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401); _, _ = io.WriteString(w, "no") }, true},
		{"a panic is no 401", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, false},
		{"a panic after one is", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401); panic(http.ErrAbortHandler) }, true},
	} {
		c := checktest.Allow().WithRules(parse(t, "rules: [{name: failures, match: {api: login}, key: [user], limit: 3/day}]"))
		limit := newLimit(t, c, httplimit.Options{User: byHeader})
		func() {
			defer func() { _ = recover() }()
			answer(guard(t, limit)(tt.h), request("POST", "/", "X-User", "kristie"))
		}()
		want := []string{"Peek [{api login} {user kristie}] 1"}
		if tt.charged {
			want = append(want, "Record [{api login} {user kristie}] 1")
		}
		if got := asked(c); !slices.Equal(got, want) {
			t.Errorf("%s: asked %q, want %q", tt.why, got, want)
		}
	}
}

// A panic that is not for net/http alone counts as 500.
func TestOutcomeOfAPanic(t *testing.T) {
	c := checktest.Allow().WithRules(parse(t, "rules: [{name: crashes, match: {api: login}, key: [], limit: 3/day}]"))
	statuses := []int{500}
	crashes, err := newLimit(t, c, httplimit.Options{}).ChargeOn(asLogin, statuses...)
	statuses[0] = 200 // it has its own
	must(t, err)
	for why, h := range map[string]http.HandlerFunc{
		"none":      func(http.ResponseWriter, *http.Request) {},
		"before":    func(http.ResponseWriter, *http.Request) { panic("oops") },
		"after 500": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) },
		"in 200":    func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hel"); panic("oops") },
	} {
		before := len(c.Asked())
		panicked := func() (p any) {
			defer func() { p = recover() }()
			answer(crashes(h), request("POST", "/"))
			return nil
		}()
		charged := len(c.Asked())-before == 2
		if charged != (why == "before" || why == "after 500") || (panicked != nil) != (why == "before" || why == "in 200") {
			t.Errorf("%s: charged %v, panic %v", why, charged, panicked)
		}
	}
}

func asked(c *checktest.Checker) (all []string) {
	for _, a := range c.Asked() {
		all = append(all, fmt.Sprint(a.Method, " ", a.Attributes, " ", a.Cost))
	}
	return all
}

// Without a rule that asks for the attribute nothing is asked and nothing wrapped; and when such a rule comes, it holds.
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
