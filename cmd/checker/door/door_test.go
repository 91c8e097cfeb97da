package door

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/rules"
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

func newDoor(t testing.TB) http.Handler { return described(t, plainDoor(t)) }

// plainDoor is one that nobody looks at.
func plainDoor(t testing.TB) http.Handler {
	t.Helper()
	set, err := rules.Parse([]byte(testRules))
	if err != nil {
		t.Fatal(err)
	}
	checker, err := check.New(check.Options{Rules: set, MaxIdleKeys: 1000})
	if err != nil {
		t.Fatal(err)
	}
	return New(checker, time.Second)
}

func post(handler http.Handler, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, Path, strings.NewReader(body)))
	return w
}

// TestAnswers asks one door in turn. Times in the answers depend on the clock: T stands for any
// positive number.
func TestAnswers(t *testing.T) {
	door := newDoor(t)
	steps := []struct {
		ask        string
		status     int
		answer     string
		retryAfter bool
	}{
		{`{"attributes":{"user":"a"}}`, 200,
			`{"allowed":true,"rule":"per-user","limit":3,"remaining":2,"retry_after_ms":0,"reset_ms":T,"freshness":"local"}`, false},
		{`{"attributes":{"user":"a"},"cost":2}`, 200,
			`{"allowed":true,"rule":"per-user","limit":3,"remaining":0,"retry_after_ms":0,"reset_ms":T,"freshness":"local"}`, false},
		{`{"attributes":{"user":"a"}}`, 429,
			`{"allowed":false,"rule":"per-user","limit":3,"remaining":0,"retry_after_ms":T,"reset_ms":T,"freshness":"local"}`, true},
		{`{"rule":"per-user","key":"a"}`, 429, // the same key by its name
			`{"allowed":false,"rule":"per-user","limit":3,"remaining":0,"retry_after_ms":T,"reset_ms":T,"freshness":"local"}`, true},
		{` { "key" : "b" , "cost" : 3 , "rule" : "per-user" } `, 200,
			`{"allowed":true,"rule":"per-user","limit":3,"remaining":0,"retry_after_ms":0,"reset_ms":T,"freshness":"local"}`, false},
		{`{"rule":"per-user","key":""}`, 200, // an empty key is one
			`{"allowed":true,"rule":"per-user","limit":3,"remaining":2,"retry_after_ms":0,"reset_ms":T,"freshness":"local"}`, false},
		{`{"rule":"per-user","key":"c","cost":4}`, 429, // more than the limit: never
			`{"allowed":false,"rule":"per-user","limit":3,"remaining":3,"retry_after_ms":null,"reset_ms":T,"freshness":"local"}`, false},
		{`{"rule":"per-user","key":"c","cost":1000000000000000}`, 429,
			`{"allowed":false,"rule":"per-user","limit":3,"remaining":3,"retry_after_ms":null,"reset_ms":T,"freshness":"local"}`, false},
		{`{"attributes":{"user":"d","api":"upload"},"cost":2}`, 200, // the tighter of two rules
			`{"allowed":true,"rule":"uploads","limit":2,"remaining":0,"retry_after_ms":0,"reset_ms":T,"freshness":"local"}`, false},
		{`{"attributes":{"user":"d","api":"upload"}}`, 429,
			`{"allowed":false,"rule":"uploads","limit":2,"remaining":0,"retry_after_ms":T,"reset_ms":T,"freshness":"local"}`, true},
		{`{"attributes":{"api":"secret"}}`, 429, // a rule that denies who has no session
			`{"allowed":false,"rule":"signed-in","limit":5,"remaining":0,"retry_after_ms":null,"reset_ms":T,"freshness":"local"}`, false},
		{`{"attributes":{"ip":"203.0.113.9"}}`, 200, // no rule
			`{"allowed":true,"rule":null,"limit":null,"remaining":null,"retry_after_ms":0,"reset_ms":null,"freshness":"local"}`, false},
		{`{"attributes":{}}`, 200,
			`{"allowed":true,"rule":null,"limit":null,"remaining":null,"retry_after_ms":0,"reset_ms":null,"freshness":"local"}`, false},
	}
	for i, step := range steps {
		t.Run(fmt.Sprintf("%d %s", i, step.ask), func(t *testing.T) {
			w := post(door, step.ask)
			if w.Code != step.status {
				t.Errorf("status %d, want %d", w.Code, step.status)
			}
			if got := withoutTimes(t, w.Body.String()); got != step.answer {
				t.Errorf("\ngot  %s\nwant %s", got, step.answer)
			}
			if got := w.Header().Get("Retry-After"); (got != "") != step.retryAfter || got == "0" {
				t.Errorf("Retry-After %q", got)
			}
			if got := w.Header().Get("Content-Type"); got != "application/json" {
				t.Errorf("Content-Type %q", got)
			}
		})
	}
}

// withoutTimes puts T for positive times.
func withoutTimes(t *testing.T, body string) string {
	t.Helper()
	var a Answer
	if err := json.Unmarshal([]byte(body), &a); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	for name, ms := range map[string]*int64{"retry_after_ms": a.RetryAfterMS, "reset_ms": a.ResetMS} {
		if ms != nil && *ms > 0 {
			body = strings.Replace(body, fmt.Sprintf("%q:%d", name, *ms), fmt.Sprintf("%q:T", name), 1)
		}
	}
	return strings.TrimSuffix(body, "\n")
}

func TestRounding(t *testing.T) {
	tests := []struct {
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
	}
	for _, test := range tests {
		w := httptest.NewRecorder()
		answer(w, 429, NewAnswer(check.Decision{Rule: "r", RetryAfter: test.retry, Reset: test.reset}))
		var a Answer
		if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil {
			t.Fatal(err)
		}
		if *a.RetryAfterMS != test.ms || *a.ResetMS != test.resetInMilli || w.Header().Get("Retry-After") != test.header {
			t.Errorf("retry after %v, reset %v: %s, Retry-After %s", test.retry, test.reset, w.Body, w.Header().Get("Retry-After"))
		}
	}
}

func TestRefusals(t *testing.T) {
	door := newDoor(t)
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
	tests := []struct {
		body   string
		status int
		want   string // in the reason
	}{
		{``, 400, "ends early"},
		{`{`, 400, "ends early"},
		{`{"attributes":{"user":"a"}`, 400, "ends early"},
		{`{"attributes"`, 400, "ends early"},
		{`nonsense`, 400, "not JSON"},
		{`{'attributes':{}}`, 400, "not JSON"},
		{`{"attributes":{},}`, 400, "not JSON"},
		{`{"attributes":{} "cost":1}`, 400, "not JSON"},
		{`{"attributes" {}}`, 400, "not JSON"},
		{`{"attributes":{}]`, 400, "not JSON"},
		{`{"attributes":{"user":"a` + "\n" + `"}}`, 400, "not JSON"},
		{"{\"attributes\":{\"user\":\"\xff\"}}", 400, "UTF-8"},
		{`{"attributes":{}}{"attributes":{}}`, 400, "goes on"},
		{`{"attributes":{}} x`, 400, "goes on"},
		{`{"attributes":{}}]`, 400, "goes on"},
		{`null`, 400, "want an object"},
		{`[]`, 400, "want an object"},
		{`"attributes"`, 400, "want an object"},
		{`{}`, 400, "neither"},
		{`{"cost":1}`, 400, "neither"},
		{`{"rule":"per-user"}`, 400, "want both"},
		{`{"key":"a"}`, 400, "want both"},
		{`{"attributes":{},"rule":"per-user","key":"a"}`, 400, "want either"},
		{`{"attributes":{},"rule":"per-user"}`, 400, "want either"},
		{`{"attributes":{},"key":"a"}`, 400, "want either"},
		{`{"attributes":{},"user":"a"}`, 400, `unknown field "user"`},
		{`{"Attributes":{}}`, 400, `unknown field "Attributes"`},
		{`{"attributes":{},"attributes":{}}`, 400, `"attributes" twice`},
		{`{"attributes":{"user":"a","user":"b"}}`, 400, `"user" twice`},
		{`{"attributes":{},"cost":1,"cost":2}`, 400, `"cost" twice`},
		{`{"attributes":null}`, 400, `"attributes": want an object`},
		{`{"attributes":[]}`, 400, `"attributes": want an object`},
		{`{"attributes":"user"}`, 400, `"attributes": want an object`},
		{`{"attributes":{"user":1}}`, 400, `attribute "user": want a string`},
		{`{"attributes":{"user":null}}`, 400, `attribute "user": want a string`},
		{`{"attributes":{"user":true}}`, 400, `attribute "user": want a string`},
		{`{"attributes":{"user":{"id":"a"}}}`, 400, `attribute "user": want a string`},
		{`{"attributes":{"user":["a"]}}`, 400, `attribute "user": want a string`},
		{`{"rule":1,"key":"a"}`, 400, `"rule": want a string`},
		{`{"rule":"per-user","key":null}`, 400, `"key": want a string`},
		{`{"rule":"per-usr","key":"a"}`, 400, `rule "per-usr": there is no such rule`},
		{`{"rule":"","key":"a"}`, 400, `there is no such rule`},
		{`{"attributes":{},"cost":0}`, 400, `"cost": want a whole number from 1`},
		{`{"attributes":{},"cost":-1}`, 400, `"cost"`},
		{`{"attributes":{},"cost":1.5}`, 400, `"cost"`},
		{`{"attributes":{},"cost":1e3}`, 400, `"cost"`},
		{`{"attributes":{},"cost":"1"}`, 400, `"cost"`},
		{`{"attributes":{},"cost":null}`, 400, `"cost"`},
		{`{"attributes":{},"cost":1000000000000001}`, 400, `not 1000000000000001`},
		{`{"attributes":{},"cost":9223372036854775808}`, 400, `"cost"`},
		{many(maxAttributes + 1), 400, `"attributes": more than 128`},
		{strings.Repeat("[", 40_000), 400, "want an object"},
		{`{"attributes":{"user":` + strings.Repeat("[", 40_000), 400, "want a string"},
		{long(MaxBody + 1), 413, "longer than 65536 bytes"},
		{strings.Repeat(" ", MaxBody+1), 413, "longer than"},
	}
	for _, test := range tests {
		t.Run(fmt.Sprintf("%.60s", test.body), func(t *testing.T) {
			w := post(door, test.body)
			var refusal map[string]string
			if err := json.Unmarshal(w.Body.Bytes(), &refusal); err != nil {
				t.Fatalf("%v: %s", err, w.Body)
			}
			if w.Code != test.status || len(refusal) != 1 || !strings.Contains(refusal["error"], test.want) {
				t.Errorf("%d %v, want %d with %q", w.Code, refusal, test.status, test.want)
			}
			if got := w.Header().Get("Content-Type"); got != "application/json" {
				t.Errorf("Content-Type %q", got)
			}
		})
	}
	for _, body := range []string{many(maxAttributes), long(MaxBody)} {
		if w := post(door, body); w.Code != 200 {
			t.Errorf("the most there may be: %d %.200s", w.Code, w.Body)
		}
	}
}

func TestPathsAndMethods(t *testing.T) {
	door := newDoor(t)
	tests := []struct {
		method, target string
		status         int
		allow          string
	}{
		{"GET", "/v1/check", 405, "POST"},
		{"HEAD", "/v1/check", 405, "POST"},
		{"PUT", "/v1/check", 405, "POST"},
		{"DELETE", "/v1/check", 405, "POST"},
		{"OPTIONS", "/v1/check", 405, "POST"},
		{"GET", "/", 404, ""},
		{"POST", "/", 404, ""},
		{"POST", "/v1/check/", 404, ""},
		{"POST", "/v1/checks", 404, ""},
		{"POST", "/V1/check", 404, ""},
		{"POST", "/v2/check", 404, ""},
		{"POST", "/metrics", 404, ""},
		{"POST", "/v1/check?1", 200, ""}, // as the command to try at the start asks
	}
	for _, test := range tests {
		w := httptest.NewRecorder()
		door.ServeHTTP(w, httptest.NewRequest(test.method, test.target, strings.NewReader(`{"attributes":{}}`)))
		if w.Code != test.status || w.Header().Get("Allow") != test.allow {
			t.Errorf("%s %s: %d, Allow %q", test.method, test.target, w.Code, w.Header().Get("Allow"))
		}
		if !json.Valid(w.Body.Bytes()) {
			t.Errorf("%s %s: not JSON: %s", test.method, test.target, w.Body)
		}
	}
}

// TestEveryPath asks each path for what it does not do.
func TestEveryPath(t *testing.T) {
	for path, to := range routes {
		ask := func(door http.Handler, method, body string) int {
			w := httptest.NewRecorder()
			described(t, door).ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
			return w.Code
		}
		if got := ask(newDoor(t), http.MethodPatch, ""); got != 405 {
			t.Errorf("PATCH %s: %d", path, got)
		}
		if to.method != http.MethodPost {
			continue
		}
		if got := ask(newDoor(t), http.MethodPost, strings.Repeat(" ", MaxBody+1)); got != 413 {
			t.Errorf("%s, too long: %d", path, got)
		}
		if got := ask(newDoor(t), http.MethodPost, strings.Repeat(" ", MaxBatchBody+1)); got != 413 {
			t.Errorf("%s, much too long: %d", path, got)
		}
		if got := ask(NoRules(), http.MethodPost, `{"attributes":{}}`); got != 503 {
			t.Errorf("%s, without rules: %d", path, got)
		}
	}
}

// TestBodyEndsEarly has a client that goes away in the middle of its body.
func TestBodyEndsEarly(t *testing.T) {
	w := httptest.NewRecorder()
	body := io.MultiReader(strings.NewReader(`{"attributes"`), brokenReader{})
	newDoor(t).ServeHTTP(w, httptest.NewRequest(http.MethodPost, Path, body))
	if w.Code != 400 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// BenchmarkDoor is what the door itself takes, without the server around it.
func BenchmarkDoor(b *testing.B) {
	door := plainDoor(b)
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
				door.ServeHTTP(w, r)
			}
		})
	}
}

// nowhere is where answers go.
type nowhere struct{ header http.Header }

func (w nowhere) Header() http.Header            { return w.header }
func (w nowhere) Write(text []byte) (int, error) { return len(text), nil }
func (w nowhere) WriteHeader(int)                {}
