package api

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
)

// TestWaiting sends more requests than the limit, and is answered at the turn of each.
func TestWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := apiOf(t, `
rules:
  - {name: line, match: {api: line}, key: [user], limit: 8/second, algorithm: leaky_bucket, burst: 3, on_limit: queue, max_wait: 5s}
  - {name: quick, match: {api: quick}, key: [user], limit: 1/100ms, on_limit: queue, max_wait: 5s}
  - {name: no, match: {api: no}, key: [user], limit: 1/day}
`)
		for _, test := range []struct {
			ask      string
			statuses [3]int
		}{
			{`{"attributes":{"user":"a","api":"line"},"mode":"wait"}`, [3]int{200, 200, 200}},
			{`{"rule":"line","key":"b","mode":"wait"}`, [3]int{200, 200, 200}},
			{`{"attributes":{"user":"a","api":"quick"},"mode":"wait"}`, [3]int{200, 200, 200}},
			{`{"rule":"quick","key":"b","mode":"wait"}`, [3]int{200, 200, 200}},
			{`{"attributes":{"user":"a","api":"no"},"mode":"wait"}`, [3]int{200, 429, 429}},
			{`{"attributes":{"user":"c","api":"line"}}`, [3]int{200, 429, 429}}, // without waiting
		} {
			for _, want := range test.statuses {
				says(t, post(api, test.ask), want, "")
			}
		}
	})
}

// TestReserving: the answer says when the caller's turn is, and settling at 0 gives it back.
func TestReserving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := apiOf(t, `
rules:
  - {name: line, match: {api: line}, key: [user], limit: 1/minute, algorithm: leaky_bucket, burst: 3, on_limit: queue, max_wait: 1h}
  - {name: day, key: [user], limit: 5/day}
  - {name: no, match: {api: no}, key: [user], limit: 1/day, algorithm: token_bucket, burst: 1}
`)
		for i, step := range []struct {
			ask              string
			status           int
			delay            int64 // in milliseconds
			remaining        int64 // of the day, afterwards
			user, settleText string
		}{
			{ask: `{"attributes":{"user":"a","api":"line"},"mode":"reserve"}`, status: 200, remaining: 4, user: "a"},
			{ask: `{"attributes":{"user":"a","api":"line"},"mode":"reserve"}`, status: 200, delay: 60_000, remaining: 3, user: "a"},
			{ask: `{"attributes":{"user":"a","api":"line"},"mode":"reserve","settle":true}`, status: 200, delay: 120_000, remaining: 3, user: "a",
				settleText: `,"cost":0}`},
			{ask: `{"attributes":{"user":"a","api":"no"},"mode":"reserve"}`, status: 200, remaining: 2, user: "a"},
			{ask: `{"attributes":{"user":"a","api":"no"},"mode":"reserve"}`, status: 429, remaining: 2, user: "a"}, // it lets nobody wait
			{ask: `{"rule":"no","key":"b","mode":"reserve"}`, status: 200, remaining: 5, user: "b"},
			{ask: `{"rule":"line","key":"b","mode":"reserve","settle":true}`, status: 200, remaining: 5, user: "b"},
			{ask: `{"attributes":{"user":"c"},"mode":"reserve"}`, status: 200, remaining: 4, user: "c"},
		} {
			w := post(api, step.ask)
			var a Answer
			must(t, json.Unmarshal(w.Body.Bytes(), &a))
			switch {
			case w.Code != step.status || (a.DelayMS != nil) != (step.status == 200):
				t.Errorf("step %d: %d %s", i, w.Code, w.Body)
			case a.DelayMS != nil && *a.DelayMS != step.delay:
				t.Errorf("step %d: %s, want %d ms", i, w.Body, step.delay)
			case (a.Receipt != "") != strings.Contains(step.ask, "settle"):
				t.Errorf("step %d: %s", i, w.Body)
			}
			if step.settleText != "" {
				says(t, settle(api, `{"receipt":"`+a.Receipt+`"`+step.settleText), 204, "")
			}
			w = post(api, `{"rule":"day","key":"`+step.user+`","mode":"peek"}`)
			if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil || *a.Remaining != step.remaining {
				t.Errorf("step %d: %s, want %d left", i, w.Body, step.remaining)
			}
		}
	})
}

// TestModes sends requests to one API in turn: a peek does not charge, and a record always does.
func TestModes(t *testing.T) {
	api := apiOf(t, `
rules:
  - {name: failures, match: {api: login}, key: [user], limit: 3/day, status: 503, on_limit: queue, max_wait: 200ms}
  - {name: soft, match: {api: soft}, key: [user], limit: 1/day, throttle: soft, soft: {exceed: 100%}}
  - {name: dark, match: {api: dark}, key: [user], limit: 1/day, shadow: true}
`)
	const queued = `{"allowed":false,"rule":"failures","limit":3,"remaining":0,"retry_after_ms":T,"reset_ms":T,"freshness":"local",` +
		`"queue":true,"max_wait_ms":200}`
	for i, step := range []struct {
		ask    string
		status int
		answer string
	}{
		{`{"attributes":{"user":"a","api":"login"},"mode":"peek","cost":3}`, 200,
			`{"allowed":true,"rule":"failures","limit":3,"remaining":3,"retry_after_ms":0,"reset_ms":T,"freshness":"local"}`},
		{`{"attributes":{"user":"a","api":"login"},"mode":"record","cost":2}`, 200,
			`{"allowed":true,"rule":"failures","limit":3,"remaining":1,"retry_after_ms":0,"reset_ms":T,"freshness":"local"}`},
		{`{"rule":"failures","key":"a","mode":"record","cost":2}`, 200, queued}, // beyond the limit, and so the next one would be denied
		{`{"rule":"failures","key":"a","mode":"peek"}`, 503, queued},
		{`{"attributes":{"user":"a","api":"login"},"mode":"check"}`, 503, queued},
		{`{"attributes":{"user":"a","api":"soft"},"cost":2}`, 200,
			`{"allowed":true,"rule":"soft","limit":2,"remaining":0,"retry_after_ms":0,"reset_ms":T,"freshness":"local","exceeded":true}`},
		{`{"attributes":{"user":"a","api":"dark"},"cost":2}`, 200,
			`{"allowed":true,"rule":null,"limit":null,"remaining":null,"retry_after_ms":0,"reset_ms":null,"freshness":"local","shadow":"dark"}`},
	} {
		w := post(api, step.ask)
		if got := withoutTimes(t, w.Body.String()); w.Code != step.status || got != step.answer {
			t.Errorf("step %d, %s:\ngot  %d %s\nwant %d %s", i, step.ask, w.Code, got, step.status, step.answer)
		}
		if got := w.Header().Get("Retry-After"); (got != "") != (step.status == 503) {
			t.Errorf("step %d: Retry-After %q", i, got)
		}
	}
	for body, want := range map[string]string{
		`{"attributes":{},"mode":"look"}`:               `"mode": want "check", "wait", "reserve", "peek" or "record", not "look"`,
		`{"attributes":{},"mode":1}`:                    `"mode": want a string`,
		`{"rule":"none","key":"a","mode":"peek"}`:       "no such rule",
		`{"attributes":{},"mode":"peek","mode":"peek"}`: `"mode" twice`,
	} {
		says(t, post(api, body), 400, want)
	}
}

func TestExplainOverHTTP(t *testing.T) {
	api := newAPI(t)
	ask := func(body string) *httptest.ResponseRecorder { return postTo(api, ExplainPath, body) }
	post(api, `{"attributes":{"user":"a","api":"upload"},"cost":2}`)
	for range 2 { // it changes nothing
		w := ask(`{"attributes":{"user":"a","api":"upload"}}`)
		var got Explained
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != 200 {
			t.Fatalf("%d %s: %v", w.Code, w.Body, err)
		}
		if d := got.Decision; d.Allowed || *d.Rule != "uploads" || len(got.Rules) != 3 {
			t.Fatalf("%s", w.Body)
		}
		perUser, uploads, signedIn := got.Rules[0], got.Rules[1], got.Rules[2]
		if p := perUser.Part; p.Key != "a" || p.Count != 2 || p.Room != 1 || p.Denies || p.Decides || *p.RetryAfterMS != 0 {
			t.Errorf("per-user: %+v", *p)
		}
		if p := uploads.Part; p.Key != "a|upload" || p.Limit != 2 || p.Count != 2 || p.Room != 0 || !p.Denies || !p.Decides || *p.RetryAfterMS == 0 {
			t.Errorf("uploads: %+v", *p)
		}
		if signedIn.Applies || signedIn.Part != nil || signedIn.Why != `api is "upload": want "secret"` {
			t.Errorf("signed-in: %+v", signedIn)
		}
	}
	for body, want := range map[string]string{
		`{"rule":"per-user","key":"a"}`:      "attributes",
		`{"attributes":{},"mode":"record"}`:  "mode",
		`{"attributes":{},"cost":0}`:         "cost",
		strings.Repeat("[", 3):               "want an object",
		`{"attributes":{"user":"a"},"x":""}`: "unknown field",
	} {
		says(t, ask(body), 400, want)
	}
}
