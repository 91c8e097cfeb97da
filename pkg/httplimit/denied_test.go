package httplimit_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/check/checktest"
	"github.com/offpath-io/offpath/pkg/httplimit"
)

func TestDenied(t *testing.T) {
	busy := checktest.Denied(1500 * time.Millisecond)
	busy.Status = 503
	givenUp := checktest.Denied(time.Second)
	givenUp.Status = 0
	nameless := checktest.Denied(time.Second)
	nameless.Rule = ""
	accented := checktest.Denied(time.Second)
	accented.Rule = "grün%"
	unmatched := check.Decision{Unmatched: true, Status: 403, RetryAfter: check.Never}
	long := "Such a request is not served, however long you wait."
	policies := []string{checktest.Rule}
	quota := func(detail string) httplimit.Problem {
		return httplimit.Problem{httplimit.QuotaExceeded, "Quota exceeded", 429, detail, policies}
	}
	for _, tt := range []struct {
		why   string
		d     check.Decision
		retry string
		want  httplimit.Problem
	}{
		{"in 3 s", checktest.Denied(3 * time.Second), "3", quota("Try again in 3 seconds.")},
		{"rounded up", checktest.Denied(3*time.Second + 1), "4", quota("Try again in 4 seconds.")},
		{"a second at least", checktest.Denied(time.Millisecond), "1", quota("Try again in 1 second.")},
		{"also at once", checktest.Denied(0), "1", quota("Try again in 1 second.")},
		{"never", checktest.Denied(check.Never), "", quota(long)},
		{"no room", busy, "2", httplimit.Problem{httplimit.TemporaryReducedCapacity, "Temporary reduced capacity", 503, "Try again in 2 seconds.", policies}},
		{"given up", givenUp, "1", quota("Try again in 1 second.")},
		{"as the headers write it", accented, "1", httplimit.Problem{httplimit.QuotaExceeded, "Quota exceeded", 429, "Try again in 1 second.", []string{"gr%C3%BCn%25"}}},
		{"no rule matches", unmatched, "", httplimit.Problem{"about:blank", "Forbidden", 403, "No rule matches the request, and only requests that a rule matches are served.", nil}},
		{"by no rule", nameless, "1", httplimit.Problem{httplimit.QuotaExceeded, "Quota exceeded", 429, "Try again in 1 second.", nil}},
	} {
		t.Run(tt.why, func(t *testing.T) {
			limit := newLimit(t, checktest.Script(tt.d), httplimit.Options{})
			reached := false
			w := answer(limit.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true })), request("GET", "/"))
			if reached || w.Code != tt.want.Status || w.Header().Get("Retry-After") != tt.retry {
				t.Errorf("reached %v, status %d, Retry-After %q", reached, w.Code, w.Header()["Retry-After"])
			}
			if got := w.Header().Get("Content-Type") + " " + w.Header().Get("Cache-Control"); got != "application/problem+json no-store" {
				t.Errorf("type and caching %q", got)
			}
			var got httplimit.Problem
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || !reflect.DeepEqual(got, tt.want) {
				t.Errorf("%s, %v", w.Body, err)
			}
		})
	}
}

// Who answers in a way of his own has the headers already, and a status to go by.
func TestDeniedIsReplaced(t *testing.T) {
	givenUp := checktest.Denied(3 * time.Second)
	givenUp.Status = 0
	limit := newLimit(t, checktest.Script(givenUp), httplimit.Options{Denied: func(w http.ResponseWriter, r *http.Request, d check.Decision) {
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, fmt.Sprint(r.URL.Path, " ", d.Rule, " ", d.Status))
	}})
	w := answer(limit.Handler(hello), request("GET", "/tea"))
	if w.Code != http.StatusTeapot || w.Body.String() != "/tea checktest 429" || w.Header().Get("Retry-After") != "3" || w.Header().Get("RateLimit") != `"checktest";r=0;t=3` {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
}
