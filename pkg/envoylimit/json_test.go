package envoylimit

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
)

// postJSON asks with this body, and returns the status and the answer.
func postJSON(t *testing.T, service *Service, method, body string) (int, http.Header, string) {
	t.Helper()
	w := httptest.NewRecorder()
	JSON(service).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, JSONPath, strings.NewReader(body)))
	return w.Code, w.Header(), w.Body.String()
}

func TestJSON(t *testing.T) {
	service := New(newChecker(t, `{domain: d, descriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1, name: n}}]}`), Options{})
	const body = `{"domain": "d", "descriptors": [{"entries": [{"key": "a", "value": "1"}]}, {"entries": [{"key": "b"}]}]}`
	limit := map[string]any{"requestsPerUnit": 1.0, "unit": "DAY", "name": "n"}
	for i, want := range []map[string]any{
		{"overallCode": "OK", "statuses": []any{map[string]any{"code": "OK", "currentLimit": limit}, map[string]any{"code": "OK"}}},
		{"overallCode": "OVER_LIMIT", "statuses": []any{map[string]any{"code": "OVER_LIMIT", "currentLimit": limit}, map[string]any{"code": "OK"}}},
	} {
		code, header, text := postJSON(t, service, http.MethodPost, body)
		var got map[string]any
		must(t, json.Unmarshal([]byte(text), &got))
		for _, s := range got["statuses"].([]any) {
			delete(s.(map[string]any), "durationUntilReset")
		}
		if code != [...]int{200, 429}[i] || header.Get("Content-Type") != "application/json" || !reflect.DeepEqual(got, want) {
			t.Errorf("%d: %d %v %s", i, code, header, text)
		}
	}
}

func TestJSONRefusals(t *testing.T) {
	service := New(newChecker(t, `{domain: d}`), Options{})
	for _, test := range []struct {
		method, body string
		code         int
		says         string
	}{
		{http.MethodGet, "", 405, "want POST"},
		{http.MethodPost, "", 400, "not a rate limit request"},
		{http.MethodPost, "{", 400, "not a rate limit request"},
		{http.MethodPost, `{"domain": "d", "descriptors": [{}], "extra": 1}`, 400, "extra"},
		{http.MethodPost, `{"descriptors": [{}]}`, 400, "rate limit domain must not be empty"},
		{http.MethodPost, `{"domain": "d"}`, 400, "rate limit descriptor list must not be empty"},
		{http.MethodPost, `{"domain": "` + strings.Repeat("d", MaxMessage) + `"}`, 413, "longer than"},
	} {
		if code, _, text := postJSON(t, service, test.method, test.body); code != test.code || !strings.Contains(text, test.says) {
			t.Errorf("%s %.80s: %d %s", test.method, test.body, code, text)
		}
	}
}
