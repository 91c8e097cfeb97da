package httplimit_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/offpath-io/offpath"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/check/checktest"
	"github.com/offpath-io/offpath/pkg/httplimit"
	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/limitheaders"
	"github.com/offpath-io/offpath/pkg/rules"
)

func ok(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello\n") }

// userOf stands for what your service knows of a request when it has checked who sent it.
func userOf(r *http.Request) string { return r.Header.Get("X-User") }

// Two an hour for each user.
func Example() {
	participant, err := offpath.Start(context.Background(), offpath.Options{
		NATS:  "none", // or a URL, to share the limit
		Rules: "rules: [{name: per-user, key: [user], limit: 2/hour}]",
	})
	if err != nil {
		log.Fatal(err)
	}
	defer participant.Close()

	limit, err := httplimit.New(participant.Checker(), httplimit.Options{User: userOf})
	if err != nil {
		log.Fatal(err)
	}
	server := httptest.NewServer(limit.Handler(http.HandlerFunc(ok)))
	defer server.Close()

	for range 3 {
		r, _ := http.NewRequest("GET", server.URL, nil)
		r.Header.Set("X-User", "kristie")
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			log.Fatal(err)
		}
		answer.Body.Close()
		fmt.Println(answer.StatusCode, answer.Header.Get("RateLimit-Policy"), answer.Header.Get("Retry-After") != "")
	}
	// Output:
	// 200 "per-user";q=2;w=3600 false
	// 200 "per-user";q=2;w=3600 false
	// 429 "per-user";q=2;w=3600 true
}

// A test of your service, without rules and without waiting: what does it make of a denial?
func Example_test() {
	checker := checktest.ByAttribute("user", map[string]check.Decision{"kristie": checktest.Denied(3e9)})
	limit, err := httplimit.New(checker, httplimit.Options{User: userOf})
	if err != nil {
		log.Fatal(err)
	}
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("X-User", "kristie")
	w := httptest.NewRecorder()
	limit.Handler(http.HandlerFunc(ok)).ServeHTTP(w, r)
	fmt.Println(w.Code, w.Header()["Retry-After"], w.Header()["Ratelimit"])
	fmt.Println(w.Body)
	fmt.Println(checker.Asked()[0].Attributes)
	// Output:
	// 429 [3] ["checktest";r=0;t=3]
	// {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota exceeded","status":429,"detail":"Try again in 3 seconds.","violated-policies":["checktest"]}
	// [{user kristie}]
}

// Who answers in a way of his own, such as for a proxy that knows no 429, takes the parts.
func ExampleLimit_Decide() {
	limit, err := httplimit.New(checktest.Deny(3e9), httplimit.Options{Headers: limitheaders.XTriple})
	if err != nil {
		log.Fatal(err)
	}
	auth := func(w http.ResponseWriter, r *http.Request) {
		d := limit.Decide(r)
		if limit.Write(w.Header(), d); !d.Allowed {
			httplimit.WriteProblem(w, http.StatusForbidden, d)
		}
	}
	w := httptest.NewRecorder()
	auth(w, httptest.NewRequest("GET", "/", nil))
	fmt.Println(w.Code, w.Header()["X-Ratelimit-Remaining"], w.Header()["Retry-After"])
	// Output:
	// 403 [0] [3]
}

// Only logins that fail are charged. The rest of the service has the other rules of the same set.
func ExampleLimit_ChargeOn() {
	set, err := rules.Parse([]byte(`
rules:
  - {name: failures, match: {api: login}, key: [user], limit: 1/day, replaces: [per-user]}
  - {name: per-user, key: [user], limit: 100/second}`))
	if err != nil {
		log.Fatal(err)
	}
	checker, err := check.New(check.Options{Rules: set})
	if err != nil {
		log.Fatal(err)
	}
	limit, err := httplimit.New(checker, httplimit.Options{User: userOf})
	if err != nil {
		log.Fatal(err)
	}
	failures, err := limit.ChargeOn(identity.Attribute{Name: "api", Value: "login"}, http.StatusUnauthorized)
	if err != nil {
		log.Fatal(err)
	}
	login := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Password") != "secret" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	mux := http.NewServeMux()
	mux.Handle("POST /login", failures(login))
	service := limit.Handler(mux)

	for _, password := range []string{"secret", "secret", "guess", "secret"} {
		r := httptest.NewRequest("POST", "/login", nil)
		r.Header.Set("X-User", "kristie")
		r.Header.Set("Password", password)
		w := httptest.NewRecorder()
		service.ServeHTTP(w, r)
		fmt.Println(password, w.Code)
	}
	// Output:
	// secret 200
	// secret 200
	// guess 401
	// secret 429
}
