package api

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/rulestest"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/events"
)

const testRules = `
rules:
  - name: per-user
    key: [user]
    limit: 3/hour
  - name: uploads
    match: {api: upload}
    key: [user, api]
    limit: 2/week
    algorithm: fixed_window
  - name: signed-in
    match: {api: secret}
    key: [session]
    on_missing: deny
    limit: 5/minute
`

var must = daemontest.Must

func newAPI(t testing.TB) http.Handler { return apiOf(t, testRules) }

// apiOf is an API with these rules. Its answers are checked against the description.
func apiOf(t testing.TB, text string) http.Handler { return described(t, plainAPI(t, text)) }

var receiptKeys = events.NewReceiptKeys()

// plainAPI is one whose answers are not checked.
func plainAPI(t testing.TB, text string) http.Handler {
	t.Helper()
	return New(newChecker(t, text, check.Options{ReceiptKeys: func() events.ReceiptKeys { return receiptKeys }}), time.Second)
}

// newChecker is one with these rules, and else with these options.
func newChecker(t testing.TB, text string, o check.Options) *check.Checker {
	t.Helper()
	o.Rules, o.MaxIdleKeys = rulestest.Parse(t, text), 1000
	checker, err := check.New(o)
	must(t, err)
	return checker
}

func post(api http.Handler, body string) *httptest.ResponseRecorder { return postTo(api, Path, body) }

func postTo(api http.Handler, path, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	api.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, strings.NewReader(body)))
	return w
}

// says fails the test unless an answer has a status and contains this text, quoted or not.
func says(t *testing.T, w *httptest.ResponseRecorder, status int, want string) {
	t.Helper()
	if w.Code != status || !strings.Contains(strings.ReplaceAll(w.Body.String(), `\"`, `"`), want) {
		t.Errorf("%d %.300s, want %d %s", w.Code, w.Body, status, want)
	}
}

// TestAnswers sends requests to one API in turn.
func TestAnswers(t *testing.T) {
	api := newAPI(t)
	const none = "" // rule
	for i, step := range []struct {
		ask              string
		status           int
		rule             string
		limit, remaining int
		retry            string // T for any positive time; null for never
	}{
		{`{"attributes":{"user":"a"}}`, 200, "per-user", 3, 2, "0"},
		{`{"attributes":{"user":"a"},"cost":2}`, 200, "per-user", 3, 0, "0"},
		{`{"attributes":{"user":"a"}}`, 429, "per-user", 3, 0, "T"},
		{`{"rule":"per-user","key":"a"}`, 429, "per-user", 3, 0, "T"}, // the same key by its name
		{` { "key" : "b" , "cost" : 3 , "rule" : "per-user" } `, 200, "per-user", 3, 0, "0"},
		{`{"rule":"per-user","key":""}`, 200, "per-user", 3, 2, "0"},              // an empty key is one
		{`{"rule":"per-user","key":"c","cost":4}`, 429, "per-user", 3, 3, "null"}, // more than the limit: never
		{`{"rule":"per-user","key":"c","cost":1000000000000000}`, 429, "per-user", 3, 3, "null"},
		{`{"attributes":{"user":"d","api":"upload"},"cost":2}`, 200, "uploads", 2, 0, "0"}, // the tighter of two rules
		{`{"attributes":{"user":"d","api":"upload"}}`, 429, "uploads", 2, 0, "T"},
		{`{"attributes":{"api":"secret"}}`, 429, "signed-in", 5, 0, "null"}, // a rule that denies who has no session
		{`{"attributes":{"ip":"203.0.113.9"}}`, 200, none, 0, 0, "0"},
		{`{"attributes":{}}`, 200, none, 0, 0, "0"},
	} {
		w := post(api, step.ask)
		want := fmt.Sprintf(`{"allowed":%v,"rule":%q,"limit":%d,"remaining":%d,"retry_after_ms":%s,"reset_ms":T,"freshness":"local"}`,
			step.status == 200, step.rule, step.limit, step.remaining, step.retry)
		if step.rule == none {
			want = `{"allowed":true,"rule":null,"limit":null,"remaining":null,"retry_after_ms":0,"reset_ms":null,"freshness":"local","unmatched":true}`
		}
		if got := withoutTimes(t, w.Body.String()); got != want || w.Code != step.status {
			t.Errorf("%d, %s:\ngot  %d %s\nwant %d %s", i, step.ask, w.Code, got, step.status, want)
		}
		if got := w.Header().Get("Retry-After"); (got != "") != (step.retry == "T") || got == "0" {
			t.Errorf("%d, %s: Retry-After %q", i, step.ask, got)
		}
		if got := w.Header().Get("Content-Type"); got != "application/json" {
			t.Errorf("%d, %s: Content-Type %q", i, step.ask, got)
		}
	}
}

// TestUnmatched: a request that no rule matches is denied where that is wanted.
func TestUnmatched(t *testing.T) {
	api := described(t, New(newChecker(t, testRules, check.Options{DenyUnmatched: true}), time.Second))
	says(t, post(api, `{"attributes":{}}`), http.StatusForbidden, `"unmatched":true`)
	says(t, post(api, `{"attributes":{"user":"a"}}`), http.StatusOK, `"rule":"per-user"`)
}

// withoutTimes replaces positive times by T.
func withoutTimes(t *testing.T, body string) string {
	t.Helper()
	var a Answer
	must(t, json.Unmarshal([]byte(body), &a))
	for name, ms := range map[string]*int64{"retry_after_ms": a.RetryAfterMS, "reset_ms": a.ResetMS} {
		if ms != nil && *ms > 0 {
			body = strings.Replace(body, fmt.Sprintf("%q:%d", name, *ms), fmt.Sprintf("%q:T", name), 1)
		}
	}
	return strings.TrimSuffix(body, "\n")
}

func TestRounding(t *testing.T) {
	for _, test := range []struct {
		retry        time.Duration
		ms           int64
		header       string
		reset        time.Duration
		resetInMilli int64
	}{
		{1, 1, "1", 0, 0},
		{time.Millisecond, 1, "1", time.Millisecond, 1},
		{time.Millisecond + 1, 2, "1", time.Millisecond + 1, 2},
		{time.Second, 1000, "1", -time.Second, 0},
		{time.Second + 1, 1001, "2", time.Hour, 3_600_000},
		{check.Never - 1, 9_223_372_036_855, "9223372037", check.Never, 9_223_372_036_855},
		{0, 0, "1", 0, 0}, // a denial always says at least one second
	} {
		w := httptest.NewRecorder()
		writeAnswer(w, 429, NewAnswer(check.Decision{Rule: "r", RetryAfter: test.retry, Reset: test.reset}))
		var a Answer
		must(t, json.Unmarshal(w.Body.Bytes(), &a))
		if *a.RetryAfterMS != test.ms || *a.ResetMS != test.resetInMilli || w.Header().Get("Retry-After") != test.header {
			t.Errorf("retry after %v, reset %v: %s, Retry-After %s", test.retry, test.reset, w.Body, w.Header().Get("Retry-After"))
		}
	}
}

func TestRefusals(t *testing.T) {
	api := newAPI(t)
	many := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `"a%d":"",`, i)
		}
		return `{"attributes":{` + strings.TrimSuffix(b.String(), ",") + `}}`
	}
	long := func(n int) string {
		body := `{"attributes":{"user":""}}`
		return strings.Replace(body, `""`, `"`+strings.Repeat("x", n-len(body))+`"`, 1)
	}
	for _, test := range []struct {
		status int
		want   string // in the reason
		bodies []string
	}{
		{400, "ends early", []string{``, `{`, `{"attributes":{"user":"a"}`, `{"attributes"`}},
		{400, "not JSON", []string{
			`nonsense`, `{'attributes':{}}`, `{"attributes":{},}`, `{"attributes":{} "cost":1}`, `{"attributes" {}}`,
			`{"attributes":{}]`, `{"attributes":{"user":"a` + "\n" + `"}}`,
		}},
		{400, "UTF-8", []string{"{\"attributes\":{\"user\":\"\xff\"}}"}},
		{400, "goes on", []string{`{"attributes":{}}{"attributes":{}}`, `{"attributes":{}} x`, `{"attributes":{}}]`}},
		{400, "want an object", []string{`null`, `[]`, `"attributes"`}},
		{400, "neither", []string{`{}`, `{"cost":1}`}},
		{400, "want both", []string{`{"rule":"per-user"}`, `{"key":"a"}`}},
		{400, "want either", []string{
			`{"attributes":{},"rule":"per-user","key":"a"}`, `{"attributes":{},"rule":"per-user"}`,
			`{"attributes":{},"key":"a"}`,
		}},
		{400, `unknown field "user"`, []string{`{"attributes":{},"user":"a"}`}},
		{400, `unknown field "Attributes"`, []string{`{"Attributes":{}}`}},
		{400, `"attributes" twice`, []string{`{"attributes":{},"attributes":{}}`}},
		{400, `"user" twice`, []string{`{"attributes":{"user":"a","user":"b"}}`}},
		{400, `"cost" twice`, []string{`{"attributes":{},"cost":1,"cost":2}`}},
		{400, `"attributes": want an object`, []string{`{"attributes":null}`, `{"attributes":[]}`, `{"attributes":"user"}`}},
		{400, `attribute "user": want a string`, []string{
			`{"attributes":{"user":1}}`, `{"attributes":{"user":null}}`, `{"attributes":{"user":true}}`,
			`{"attributes":{"user":{"id":"a"}}}`, `{"attributes":{"user":["a"]}}`,
		}},
		{400, `"rule": want a string`, []string{`{"rule":1,"key":"a"}`}},
		{400, `"key": want a string`, []string{`{"rule":"per-user","key":null}`}},
		{400, `rule "per-usr": there is no such rule`, []string{`{"rule":"per-usr","key":"a"}`}},
		{400, `there is no such rule`, []string{`{"rule":"","key":"a"}`}},
		{400, `"cost": want a whole number from 1`, []string{`{"attributes":{},"cost":0}`}},
		{400, `"cost"`, []string{
			`{"attributes":{},"cost":-1}`, `{"attributes":{},"cost":1.5}`, `{"attributes":{},"cost":1e3}`,
			`{"attributes":{},"cost":"1"}`, `{"attributes":{},"cost":null}`,
		}},
		{400, `not 1000000000000001`, []string{`{"attributes":{},"cost":1000000000000001}`}},
		{400, `"cost"`, []string{`{"attributes":{},"cost":9223372036854775808}`}},
		{400, `"attributes": more than 128`, []string{many(maxAttributes + 1)}},
		{400, "want an object", []string{strings.Repeat("[", 40_000)}},
		{400, "want a string", []string{`{"attributes":{"user":` + strings.Repeat("[", 40_000)}},
		{413, "longer than 65536 bytes", []string{long(MaxBody + 1)}},
		{413, "longer than", []string{strings.Repeat(" ", MaxBody+1)}},
	} {
		for _, body := range test.bodies {
			w := post(api, body)
			var refusal map[string]string
			must(t, json.Unmarshal(w.Body.Bytes(), &refusal))
			if w.Code != test.status || len(refusal) != 1 || !strings.Contains(refusal["error"], test.want) {
				t.Errorf("%.60s: %d %v, want %d with %q", body, w.Code, refusal, test.status, test.want)
			}
			if got := w.Header().Get("Content-Type"); got != "application/json" {
				t.Errorf("%.60s: Content-Type %q", body, got)
			}
		}
	}
	for _, body := range []string{many(maxAttributes), long(MaxBody)} {
		says(t, post(api, body), 200, "")
	}
}

// TestPathsAndMethods tries each path with other methods, and unknown paths.
func TestPathsAndMethods(t *testing.T) {
	asks := func(api http.Handler, method, target, body string, status int, allow string) {
		t.Helper()
		w := httptest.NewRecorder()
		api.ServeHTTP(w, httptest.NewRequest(method, target, strings.NewReader(body)))
		if w.Code != status || allow != "" && w.Header().Get("Allow") != allow || !json.Valid(w.Body.Bytes()) {
			t.Errorf("%s %s, %d bytes: %d, Allow %q, %s", method, target, len(body), w.Code, w.Header().Get("Allow"), w.Body)
		}
	}
	api := newAPI(t)
	for _, target := range []string{"/", "/v1/check/", "/v1/checks", "/V1/check", "/v2/check", "/metrics"} {
		asks(api, http.MethodPost, target, `{"attributes":{}}`, 404, "")
	}
	asks(api, http.MethodGet, "/", "", 404, "")
	asks(api, http.MethodPost, "/v1/check?1", `{"attributes":{}}`, 200, "") // like the command that the demo prints
	for path, to := range routes {
		if to.method != http.MethodPost {
			asks(api, http.MethodPatch, path, "", 405, "")
			continue
		}
		for _, method := range []string{"GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS"} {
			asks(api, method, path, `{"attributes":{}}`, 405, "POST")
		}
		asks(api, http.MethodPost, path, strings.Repeat(" ", MaxBody+1), 413, "")
		asks(api, http.MethodPost, path, strings.Repeat(" ", MaxBatchBody+1), 413, "")
		asks(described(t, NoRules()), http.MethodPost, path, `{"attributes":{}}`, 503, "")
	}
}

// TestBodyEndsEarly: a client goes away in the middle of its body.
func TestBodyEndsEarly(t *testing.T) {
	w := httptest.NewRecorder()
	body := io.MultiReader(strings.NewReader(`{"attributes"`), iotest.ErrReader(io.ErrUnexpectedEOF))
	newAPI(t).ServeHTTP(w, httptest.NewRequest(http.MethodPost, Path, body))
	says(t, w, 400, "")
}

// BenchmarkAPI measures the API itself, without the server around it.
func BenchmarkAPI(b *testing.B) {
	api := plainAPI(b, testRules)
	const body = `{"attributes":{"user":"kristie","ip":"203.0.113.9","api":"createURL"},"cost":1}`
	for name, text := range map[string]string{
		"one":   body,
		"batch": `{"checks":[` + strings.Repeat(body+",", 99) + body + `]}`,
	} {
		b.Run(name, func(b *testing.B) {
			text := strings.NewReader(text)
			r := httptest.NewRequest(http.MethodPost, Path, nil)
			r.Body = io.NopCloser(text)
			w := nowhere{make(http.Header)}
			b.ReportAllocs()
			for b.Loop() {
				_, _ = text.Seek(0, io.SeekStart)
				api.ServeHTTP(w, r)
			}
		})
	}
}

// nowhere discards answers.
type nowhere struct{ header http.Header }

func (w nowhere) Header() http.Header            { return w.header }
func (w nowhere) Write(text []byte) (int, error) { return len(text), nil }
func (w nowhere) WriteHeader(int)                {}
