package httpidentity

import (
	"net/http"
	"testing"

	"github.com/offpath-io/offpath/pkg/identity"
)

// What is read without being made does not allocate.
func TestAppendDoesNotAllocate(t *testing.T) {
	o := Options{TrustedProxies: proxies(t, trustedNets...), Sources: map[string]Source{"user": FromHeader("x-tenant")}}
	r := request()
	r.URL.Path = "/v1/users/"
	dst := make(identity.Attributes, 0, 8)
	for _, tt := range []struct {
		names []string
		most  float64
	}{
		{[]string{"method", "path", "route", "header:x-tenant", "header:host", "user", "api"}, 0},
		{[]string{"ip"}, 1},
		{[]string{"ip", "address"}, 2},
	} {
		rd := reader(t, o, tt.names...)
		if n := testing.AllocsPerRun(100, func() { rd.Append(dst, r) }); n > tt.most {
			t.Errorf("%q: %v allocations, want at most %v", tt.names, n, tt.most)
		}
	}
	for _, f := range []Forwarding{XForwardedFor, Forwarded} {
		b := builder(t, Options{TrustedProxies: proxies(t, trustedNets...), Forwarding: f})
		h := chain(f)
		if n := testing.AllocsPerRun(100, func() { b.ClientIP("10.0.0.1:80", h) }); n != 0 {
			t.Errorf("%v: %v allocations", f, n)
		}
	}
}

// chain is a header with two hops, and something of the client's before them.
func chain(f Forwarding) http.Header {
	if f == XForwardedFor {
		return http.Header{"X-Forwarded-For": {"6.6.6.6, 203.0.113.9, 10.0.0.2"}}
	}
	return http.Header{"Forwarded": {`for=6.6.6.6, for=203.0.113.9;proto=https, for="10.0.0.2:4711";host="a.example.com"`}}
}
