package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/offpath-io/offpath/internal/testing/rulestest"
	"github.com/offpath-io/offpath/pkg/check"
)

// batchOf sends several requests as a batch.
func batchOf(t interface{ Fatalf(string, ...any) }, api http.Handler, requests ...string) []BatchAnswer {
	w := post(api, `{"checks":[`+strings.Join(requests, ",")+`]}`)
	var got Answers
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != 200 || len(got.Answers) != len(requests) ||
		w.Header().Get("Retry-After") != "" {
		t.Fatalf("%d %.300s, Retry-After %q", w.Code, w.Body, w.Header().Get("Retry-After"))
	}
	return got.Answers
}

func TestBatch(t *testing.T) {
	api := apiOf(t, testRules+"  - {name: failures, match: {api: login}, key: [user], limit: 1/day, status: 503}\n")
	rows := []struct {
		ask       string
		status    int
		rule      string // "" is none
		remaining int64
		receipt   bool
	}{
		{`{"attributes":{"user":"a"},"cost":2}`, 200, "per-user", 1, false},
		{`{"rule":"per-user","key":"a","mode":"peek","cost":2}`, 429, "per-user", 1, false},
		{`{"rule":"per-user","key":"a"}`, 200, "per-user", 0, false}, // the same key, of the same batch
		{`{"attributes":{"user":"a"}}`, 429, "per-user", 0, false},
		{`{"attributes":{"user":"b"},"settle":true}`, 200, "per-user", 2, true}, // one denial does not deny others
		{`{"attributes":{"user":"b"},"mode":"record","cost":3}`, 200, "per-user", 0, false},
		{`{"attributes":{"user":"b"}}`, 429, "per-user", 0, false},
		{`{"attributes":{"user":"c","api":"login"}}`, 200, "failures", 0, false},
		{`{"attributes":{"user":"c","api":"login"}}`, 503, "failures", 0, false},
		{`{"attributes":{}}`, 200, "", 0, false},
	}
	requests := make([]string, len(rows))
	for i, row := range rows {
		requests[i] = row.ask
	}
	for i, a := range batchOf(t, api, requests...) {
		want := rows[i]
		if a.Status != want.status || (a.Rule != nil) != (want.rule != "") || (a.Receipt != "") != want.receipt {
			t.Errorf("%d, %s: %+v", i, want.ask, a)
		}
		if a.Rule != nil && (*a.Rule != want.rule || *a.Remaining != want.remaining) {
			t.Errorf("%d, %s: rule %s, %d remain", i, want.ask, *a.Rule, *a.Remaining)
		}
	}
}

// TestBatchRefusals: one invalid request refuses all, and none is charged.
func TestBatchRefusals(t *testing.T) {
	api := newAPI(t)
	const good = `{"attributes":{"user":"a"}}`
	list := func(requests ...string) string { return `{"checks":[` + strings.Join(requests, ",") + `]}` }
	many := func(n int) string {
		return list(strings.Split(strings.Repeat(good+" ", n)[:n*(len(good)+1)-1], " ")...)
	}
	for _, row := range []struct {
		body   string
		status int
		want   string
	}{
		{`{"checks":[]}`, 400, `"checks": want 1 to 1000`},
		{`{"checks":{}}`, 400, `"checks": want an array`},
		{`{"checks":[` + good, 400, "ends early"},
		{`{"checks":[` + good + `}`, 400, `not JSON`},
		{`{"checks":[` + good + `,]}`, 400, `not JSON`},
		{`{"checks":[` + good + `],"checks":[` + good + `]}`, 400, `body: "checks" twice`},
		{`{"checks":[` + good + `],"cost":2}`, 400, `"checks" and something else`},
		{`{"attributes":{"user":"a"},"checks":[` + good + `]}`, 400, `"checks" and something else`},
		{list(good) + `{}`, 400, `goes on`},
		{list(good, `null`), 400, `"checks"[1]: request: want an object`},
		{list(good, good, `{"cost":1}`), 400, `"checks"[2]: neither`},
		{list(`{"checks":[` + good + `]}`), 400, `"checks"[0]: unknown field "checks"`},
		{list(good, `{"attributes":{},"cost":0}`), 400, `"checks"[1]: "cost"`},
		{list(good, `{"rule":"none","key":"a"}`), 400, `"checks"[1]: rule "none": there is no such rule`},
		{list(good, `{"attributes":{},"mode":"wait"}`), 400, `"checks"[1]: "mode": "wait" is for a request that comes alone`},
		{list(good, `{"attributes":{},"mode":"peek","settle":true}`), 400, `"checks"[1]: "settle"`},
		{many(MaxBatch + 1), 400, `"checks": more than 1000`},
		{strings.Repeat(" ", MaxBatchBody-MaxBody) + many(MaxBatch), 200, ``},
		{list(good) + strings.Repeat(" ", MaxBatchBody-len(list(good))), 200, ``},
		{list(good) + strings.Repeat(" ", MaxBatchBody-len(list(good))+1), 413, `longer than 1048576 bytes`},
		{good + strings.Repeat(" ", MaxBody), 413, `longer than 65536 bytes`}, // it is no batch
		{strings.Repeat("[", MaxBatchBody), 413, `longer than 65536 bytes`},
		{`{"checks":[` + strings.Repeat("[", MaxBody), 400, `"checks"[0]: request: want an object`},
	} {
		at := api
		if row.status == 200 { // it is charged, at an API of its own
			at = newAPI(t)
		}
		says(t, post(at, row.body), row.status, row.want)
	}
	if a := batchOf(t, api, `{"attributes":{"user":"a"},"mode":"peek"}`); *a[0].Remaining != 3 {
		t.Errorf("refused requests were charged: %+v", a[0])
	}
}

// TestWaitsForPermits: no aggregator grants any, so a request waits as long as it may, and a whole
// batch no longer. Under other rules none waits, and a change of rules takes effect.
func TestWaitsForPermits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := func(enforcement string) string {
			return `rules: [{name: r, key: [user], limit: 10/hour, enforcement: ` + enforcement + `}]`
		}
		checker := newChecker(t, set("async"), check.Options{Link: nobody{}})
		api := described(t, New(checker, time.Second))
		for i, enforcement := range []string{"async", "strict", "async"} {
			must(t, checker.SetRules(rulestest.Parse(t, set(enforcement)), uint64(i+1)))
			want, status := time.Duration(0), 200
			if enforcement == "strict" {
				want, status = time.Second, 429
			}
			began := time.Now()
			one := post(api, `{"rule":"r","key":"a"}`)
			if took := time.Since(began); took != want || one.Code != status {
				t.Errorf("%d, %s: %v, %d %s", i, enforcement, took, one.Code, one.Body)
			}
			began = time.Now()
			batch := batchOf(t, api, `{"rule":"r","key":"b"}`, `{"rule":"r","key":"c"}`, `{"attributes":{"user":"d"}}`)
			if took := time.Since(began); took != want || batch[0].Status != status || batch[2].Status != status {
				t.Errorf("%d, %s: a batch took %v, %+v", i, enforcement, took, batch)
			}
		}
	})
}

func TestSettleBatch(t *testing.T) {
	api := newAPI(t)
	asked := batchOf(t, api, `{"attributes":{"user":"a"},"cost":3,"settle":true}`, `{"attributes":{"user":"b"},"cost":3,"settle":true}`)
	a, b := asked[0].Receipt, asked[1].Receipt
	one := func(receipt string, cost int) string { return fmt.Sprintf(`{"receipt":%q,"cost":%d}`, receipt, cost) }
	w := settle(api, `{"settlements":[`+one(a, 1)+`,`+one("nonsense", 1)+`,`+one(a, 1)+`,`+one(b, 0)+`]}`)
	var got Settled
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != 200 || len(got.Answers) != 4 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	for i, want := range []int{204, 400, 409, 204} {
		if a := got.Answers[i]; a.Status != want || (a.Error == "") != (want == 204) {
			t.Errorf("%d: %+v, want %d", i, a, want)
		}
	}
	left := batchOf(t, api, `{"rule":"per-user","key":"a","mode":"peek"}`, `{"rule":"per-user","key":"b","mode":"peek"}`)
	if *left[0].Remaining != 2 || *left[1].Remaining != 3 {
		t.Errorf("remaining: %d and %d, want 2 and 3", *left[0].Remaining, *left[1].Remaining)
	}
}
