package api

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"testing"

	"github.com/offpath-io/offpath/pkg/window"
)

// asEncodingJSON is a request as encoding/json reads it. That accepts more than the API does.
type asEncodingJSON struct {
	Attributes map[string]string `json:"attributes"`
	Rule       *string           `json:"rule"`
	Key        *string           `json:"key"`
	Cost       *int64            `json:"cost"`
	Mode       *string           `json:"mode"`
	Settle     bool              `json:"settle"`
}

// FuzzCheckRequest compares the decoder with encoding/json: a body that it accepts must be JSON,
// and mean the same there.
func FuzzCheckRequest(f *testing.F) {
	for _, seed := range []string{
		`{"attributes":{"user":"kristie","ip":"203.0.113.9","api":"createURL"},"cost":1}`,
		`{"rule":"per-user","key":"kristie"}`,
		`{"rule":"per-user","key":"kr\u00edstie\ud83d","cost":1000000000000000}`,
		`{"rule":"per-user","key":"kr\u00edstie\ud83d\ude00","mode":"peek","settle":false}`,
		`{"attributes":{}}`,
		`{"attributes":{"":""},"cost":01}`,
		`{"attributes":{"a":"b",}}`,
		`{"attributes":{"a":"b"}} `,
		`{"cost":-1,"rule":"","key":""}`,
		`{"checks":[{"rule":"","key":""},{"attributes":{"user":"a"},"cost":2}]}`,
		`{"checks":[]}`,
		`{"checks":[{"checks":[]}]}`,
		"\xef\xbb\xbf{}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		q, batch, err := decode(body, "checks", "check", blankRequest)
		if isRefused(t, err) {
			return
		}
		var want struct {
			asEncodingJSON
			Checks []asEncodingJSON `json:"checks"`
		}
		readJSON(t, body, &want)
		if batch == nil {
			q.mustBe(t, want.asEncodingJSON)
			return
		}
		if len(batch) != len(want.Checks) || len(batch) == 0 {
			t.Fatalf("%q: %d requests, want %d", body, len(batch), len(want.Checks))
		}
		for i, q := range batch {
			q.mustBe(t, want.Checks[i])
		}
	})
}

func (q request) mustBe(t *testing.T, want asEncodingJSON) {
	t.Helper()
	got := make(map[string]string)
	for _, a := range q.attributes {
		got[a.Name] = a.Value
	}
	if !maps.Equal(got, want.Attributes) || len(got) != len(q.attributes) || q.hasAttributes != (want.Attributes != nil) {
		t.Errorf("attributes %v, want %v", q.attributes, want.Attributes)
	}
	if q.hasRule == q.hasAttributes || q.hasRule != q.hasKey || q.settle != want.Settle {
		t.Errorf("%+v, want %+v", q, want)
	}
	if q.hasRule && (q.rule != *want.Rule || q.key != *want.Key) {
		t.Errorf("rule %q, key %q", q.rule, q.key)
	}
	if cost := *cmp.Or(want.Cost, new(int64(1))); q.cost != cost || cost < 1 || cost > window.MaxCount {
		t.Errorf("cost %d, want %d", q.cost, cost)
	}
	if want.Mode == nil && q.mode != modeCheck || want.Mode != nil && string(q.mode) != *want.Mode {
		t.Errorf("mode %q, want %v", q.mode, want.Mode)
	}
}

// isRefused reports whether there is an error, which has a reason.
func isRefused(t *testing.T, err error) bool {
	t.Helper()
	if err != nil && err.Error() == "" {
		t.Error("an error without a reason")
	}
	return err != nil
}

// readJSON reads an accepted body with encoding/json.
func readJSON(t *testing.T, body []byte, into any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil || !json.Valid(body) {
		t.Fatalf("took %q, which encoding/json refuses: %v", body, err)
	}
}

// FuzzSettleRequest does the same with settlements.
func FuzzSettleRequest(f *testing.F) {
	for _, seed := range []string{
		`{"receipt":"AQ","cost":317}`,
		`{"settlements":[{"receipt":"AQ","cost":0},{"cost":1,"receipt":""}]}`,
		`{"settlements":[],"receipt":"A"}`,
		`{"receipt":null,"cost":1}`,
	} {
		f.Add([]byte(seed))
	}
	type one struct {
		Receipt *string `json:"receipt"`
		Cost    *int64  `json:"cost"`
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		b, batch, err := decode(body, "settlements", "settlement", settlement{})
		if isRefused(t, err) {
			return
		}
		var want struct {
			one
			Settlements []one `json:"settlements"`
		}
		readJSON(t, body, &want)
		if batch == nil {
			batch, want.Settlements = []settlement{b}, []one{want.one}
		}
		if len(batch) != len(want.Settlements) || len(batch) == 0 {
			t.Fatalf("%q: %d settlements, want %d", body, len(batch), len(want.Settlements))
		}
		for i, b := range batch {
			if w := want.Settlements[i]; b.receipt != *w.Receipt || b.cost != *w.Cost || b.cost < 0 || b.cost > window.MaxCount {
				t.Errorf("%q: %+v", body, b)
			}
		}
	})
}
