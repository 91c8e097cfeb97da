package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/events"
)

func settle(api http.Handler, body string) *httptest.ResponseRecorder {
	return postTo(api, SettlePath, body)
}

// receiptOf is the receipt of an answer.
func receiptOf(t *testing.T, w *httptest.ResponseRecorder) string {
	t.Helper()
	var a Answer
	must(t, json.Unmarshal(w.Body.Bytes(), &a))
	return a.Receipt
}

func TestSettle(t *testing.T) {
	for _, ask := range []string{
		`{"attributes":{"user":"a"},"cost":3,"settle":true}`,
		`{"settle":true,"rule":"per-user","key":"a","cost":3}`,
	} {
		api := newAPI(t)
		first := post(api, ask)
		receipt := receiptOf(t, first)
		if first.Code != 200 || receipt == "" {
			t.Fatalf("%s: %d %s", ask, first.Code, first.Body)
		}
		if w := post(api, ask); w.Code != 429 || receiptOf(t, w) != "" {
			t.Errorf("over the limit: %d %s", w.Code, w.Body)
		}
		if w := settle(api, fmt.Sprintf(`{"receipt":%q,"cost":1}`, receipt)); w.Code != 204 || w.Body.Len() != 0 {
			t.Errorf("settle: %d %s", w.Code, w.Body)
		}
		w := post(api, `{"attributes":{"user":"a"},"settle":false}`)
		if w.Code != 200 || !strings.Contains(w.Body.String(), `"remaining":1`) || receiptOf(t, w) != "" {
			t.Errorf("then: %d %s", w.Code, w.Body)
		}
		says(t, settle(api, fmt.Sprintf(`{"receipt":%q,"cost":1}`, receipt)), 409, "has been settled")
	}
}

func TestSettleRefusals(t *testing.T) {
	api := newAPI(t)
	receipt := receiptOf(t, post(api, `{"attributes":{"user":"a"},"settle":true}`))
	old, err := receiptKeys.Encode(&events.Receipt{Epoch: 1, Number: 1, Made: time.Now().Add(-21 * time.Hour).UnixNano()})
	must(t, err)
	good := fmt.Sprintf(`{"receipt":%q,"cost":1}`, receipt)
	for _, row := range []struct {
		body   string
		status int
		reason string
	}{
		{``, 400, "not JSON: body ends early"},
		{`[]`, 400, "want an object"},
		{`{}`, 400, `"receipt" and "cost": want both`},
		{fmt.Sprintf(`{"receipt":%q}`, receipt), 400, `want both`},
		{fmt.Sprintf(`{"receipt":%q,"cost":-1}`, receipt), 400, `whole number from 0`},
		{fmt.Sprintf(`{"receipt":%q,"cost":1,"cost":1}`, receipt), 400, `twice`},
		{fmt.Sprintf(`{"receipt":%q,"cost":1,"rule":"x"}`, receipt), 400, `unknown field`},
		{fmt.Sprintf(`{"receipt":%q,"cost":1} {}`, receipt), 400, `goes on`},
		{`{"receipt":7,"cost":1}`, 400, "want a string"},
		{`{"receipt":"kristie","cost":1}`, 400, "not a receipt"},
		{fmt.Sprintf(`{"receipt":%q,"cost":1}`, receipt[1:]), 400, "not a receipt"},
		{"{\"receipt\":\"\xff\",\"cost\":1}", 400, "UTF-8"},
		{fmt.Sprintf(`{"receipt":%q,"cost":1}`, old), 410, "too old"},
		{`{"settlements":[` + good + `,{"receipt":"x"}]}`, 400, `"settlements"[1]: "receipt" and "cost": want both`},
		{`{"settlements":[` + good + `],"cost":1}`, 400, `"settlements" and something else`},
		{`{"settlements":[]}`, 400, `"settlements": want 1 to 1000`},
		{`{"settlements":[7]}`, 400, `"settlements"[0]: settlement: want an object`},
		{`{"settlements":[` + good + `,{"receipt":"x","cost":1,"key":""}]}`, 400, `"settlements"[1]: unknown field "key"`},
		{`{"receipt":"` + strings.Repeat("A", MaxBody) + `"}`, 413, "longer"},
		{fmt.Sprintf(`{"receipt":%q,"cost":0}`, receipt), 204, ""}, // none of these has used it up
	} {
		says(t, settle(api, row.body), row.status, row.reason)
	}
	says(t, post(api, `{"attributes":{"user":"a"},"settle":1}`), 400, "want true or false")
	says(t, post(api, `{"rule":"nobody","key":"a","settle":true}`), 400, "no such rule")
}

// In an outage settlements wait, but not any number of them.
func TestTooManySettlements(t *testing.T) {
	api := described(t, New(newChecker(t, testRules, check.Options{Link: nobody{}, MaxSettling: 1}), 0))
	ask := `{"attributes":{"user":"a"},"settle":true}`
	first, second := receiptOf(t, post(api, ask)), receiptOf(t, post(api, ask))
	says(t, settle(api, fmt.Sprintf(`{"receipt":%q,"cost":0}`, first)), 204, "")
	if w := settle(api, fmt.Sprintf(`{"receipt":%q,"cost":0}`, second)); w.Code != 503 || w.Header().Get("Retry-After") == "" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// nobody is a link to no aggregator.
type nobody struct{ check.Link }

func (nobody) Report(uint32, bool, []byte) error { return nil }
func (nobody) Hello([]byte) error                { return nil }
