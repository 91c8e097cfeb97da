package httplimit_test

import (
	"net/http"
	"testing"

	"github.com/offpath-io/offpath/internal/testing/alloctest"
	"github.com/offpath-io/offpath/pkg/httplimit"
	"github.com/offpath-io/offpath/pkg/identity/httpidentity"
	"github.com/offpath-io/offpath/pkg/limitheaders"
)

// sink is a writer that costs nothing: an httptest.ResponseRecorder takes longer than what is
// measured. Headers go after each request, as a server's do.
type sink struct{ header http.Header }

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) Write(p []byte) (int, error) { return len(p), nil }
func (s *sink) WriteHeader(int)             {}

var bare = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})

// costs are middlewares around a handler that does nothing, and how often they may allocate.
var costs = []struct {
	name, rules string
	o           httplimit.Options
	most        float64
}{
	{"newest", "[{name: r, key: [user], limit: 1000000000/hour}]", httplimit.Options{}, 2}, // the values, and a text
	{"triple", "[{name: r, key: [user], limit: 1000000000/hour}]", httplimit.Options{Headers: limitheaders.Triple}, 4},
	{"none", "[{name: r, key: [user], limit: 1000000000/hour}]", httplimit.Options{Headers: limitheaders.None}, 0},
	{"ip", "[{name: r, key: [ip], limit: 1000000000/hour}]", httplimit.Options{Headers: limitheaders.None}, 1}, // the address as text
	{"three-rules", "[{name: a, key: [user], limit: 1000000000/hour}, {name: b, key: [], limit: 1000000000/second}, {name: c, key: [method], limit: 1000000000/minute}]", httplimit.Options{}, 2},
	{"no-rule", "[{name: r, match: {path: /other}, key: [user], limit: 1/hour}]", httplimit.Options{}, 0},
}

func costly(t testing.TB, i int) http.Handler {
	o := costs[i].o
	o.Identity.Sources = map[string]httpidentity.Source{"user": httpidentity.FromHeader("X-User")}
	return newLimit(t, checker(t, "rules: "+costs[i].rules), o).Handler(bare)
}

func TestAllocations(t *testing.T) {
	for i, tt := range costs {
		h, w, r := costly(t, i), &sink{http.Header{}}, request("GET", "/v1/users", "X-User", "kristie")
		alloctest.AtMost(t, tt.most, tt.name, func() { h.ServeHTTP(w, r) })
	}
}

func BenchmarkHandler(b *testing.B) {
	run := func(b *testing.B, h http.Handler) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			w, r := &sink{http.Header{}}, request("GET", "/v1/users", "X-User", "kristie")
			for pb.Next() {
				h.ServeHTTP(w, r)
				clear(w.header)
			}
		})
	}
	b.Run("bare", func(b *testing.B) { run(b, bare) })
	for i, tt := range costs {
		b.Run(tt.name, func(b *testing.B) { run(b, costly(b, i)) })
	}
	b.Run("denied", func(b *testing.B) {
		c := checker(b, "rules: [{name: r, key: [user], limit: 1/hour}]")
		run(b, newLimit(b, c, httplimit.Options{User: byHeader}).Handler(bare))
	})
	b.Run("outcome", func(b *testing.B) {
		limit := newLimit(b, checker(b, "rules: [{name: r, match: {api: login}, key: [user], limit: 1/hour}]"), httplimit.Options{User: byHeader})
		run(b, guard(b, limit)(bare))
	})
}
