package httplimit_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/dunglas/httpsfv"

	"github.com/offpath-io/offpath/pkg/httplimit"
	"github.com/offpath-io/offpath/pkg/identity/httpidentity"
)

// FuzzHandler: whatever a request holds, it passes, is denied, or is refused for its path alone,
// and what the answer says can be read.
func FuzzHandler(f *testing.F) {
	f.Add("GET", "/v1/users", "192.0.2.1:80", "kristie", "6.6.6.6, 192.0.2.9", "session=a", "gold")
	f.Add("", "*", "@", "\xff\xfe", ",,,", ";=\x00", "-1")
	f.Add("P\nST", "//..//", "", "a|b\\", "unknown", "session=\"", "99999999999999999999")
	trusted, err := httpidentity.ParseProxies("0.0.0.0/0")
	must(f, err)
	c := checker(f, `
rules:
  - {name: per-user, key: [user, path], on_missing: empty, limit: 1/hour}
  - {name: per-ip, key: [ip, method], limit: 2/hour, cost: 'header:x-plan'}
  - {name: per-session, match: {'cookie:session': '*'}, key: ['cookie:session', route], on_missing: deny, limit: 2/day, status: 503}
`)
	h := newLimit(f, c, httplimit.Options{User: byHeader, Identity: httpidentity.Options{TrustedProxies: trusted}}).Handler(hello)
	f.Fuzz(func(t *testing.T, method, path, peer, user, forwarded, cookie, plan string) {
		r := &http.Request{
			Method: method, URL: &url.URL{Path: path}, RemoteAddr: peer,
			Header: http.Header{"X-User": {user}, "X-Forwarded-For": {forwarded}, "Cookie": {cookie}, "X-Plan": {plan}},
		}
		w := answer(h, r)
		if w.Code == 400 {
			segments := strings.FieldsFunc(path, func(c rune) bool { return strings.ContainsRune(`/\;`, c) })
			odd := strings.Contains(path, "\x00") || path == "*" && method != "OPTIONS"
			if !odd && !slices.Contains(segments, ".") && !slices.Contains(segments, "..") {
				t.Errorf("%q is refused", path)
			}
			return
		}
		for _, name := range []string{"Ratelimit-Policy", "Ratelimit"} {
			if list, err := httpsfv.UnmarshalList(w.Header()[name]); err != nil || len(list) != 1 {
				t.Errorf("%s: %q: %v", name, w.Header()[name], err)
			}
		}
		if w.Code == 200 {
			return
		}
		var p httplimit.Problem
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != p.Status || p.Status != 429 && p.Status != 503 || len(p.ViolatedPolicies) != 1 {
			t.Errorf("%d %s: %v", w.Code, w.Body, err)
		}
		if retry := w.Header()["Retry-After"]; len(retry) != 0 {
			if n, err := strconv.Atoi(retry[0]); err != nil || n < 1 {
				t.Errorf("Retry-After: %q", retry)
			}
		}
	})
}
