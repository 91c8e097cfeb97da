package door

import (
	"bytes"
	"encoding/json"
	"maps"
	"testing"

	"github.com/offpath-io/offpath/pkg/window"
)

// FuzzCheckRequest holds the decoder against encoding/json: what it takes must be JSON, and mean the
// same there.
func FuzzCheckRequest(f *testing.F) {
	for _, seed := range []string{
		`{"attributes":{"user":"kristie","ip":"203.0.113.9","api":"createURL"},"cost":1}`,
		`{"rule":"per-user","key":"kristie"}`,
		`{"rule":"per-user","key":"kr\u00edstie\ud83d","cost":1000000000000000}`,
		`{"attributes":{}}`,
		`{"attributes":{"":""},"cost":01}`,
		`{"attributes":{"a":"b",}}`,
		`{"attributes":{"a":"b"}} `,
		`{"cost":-1,"rule":"","key":""}`,
		"\xef\xbb\xbf{}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		q, err := decode(body)
		if err != nil {
			if err.Error() == "" {
				t.Error("an error without a reason")
			}
			return
		}
		var want struct {
			Attributes map[string]string `json:"attributes"`
			Rule       *string           `json:"rule"`
			Key        *string           `json:"key"`
			Cost       *int64            `json:"cost"`
		}
		d := json.NewDecoder(bytes.NewReader(body))
		d.DisallowUnknownFields()
		if err := d.Decode(&want); err != nil || !json.Valid(body) {
			t.Fatalf("took %q, which encoding/json refuses: %v", body, err)
		}
		got := make(map[string]string)
		for _, a := range q.attributes {
			got[a.Name] = a.Value
		}
		if !maps.Equal(got, want.Attributes) || len(got) != len(q.attributes) || q.hasAttributes != (want.Attributes != nil) {
			t.Errorf("%q: attributes %v, want %v", body, q.attributes, want.Attributes)
		}
		if q.hasRule == q.hasAttributes || q.hasRule != q.hasKey {
			t.Errorf("%q: %+v", body, q)
		}
		if q.hasRule && (q.rule != *want.Rule || q.key != *want.Key) {
			t.Errorf("%q: rule %q, key %q", body, q.rule, q.key)
		}
		cost := int64(1)
		if want.Cost != nil {
			cost = *want.Cost
		}
		if q.cost != cost || cost < 1 || cost > window.MaxCount {
			t.Errorf("%q: cost %d", body, q.cost)
		}
	})
}
