package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
)

// TestPagesOfOtherSites: what a site has a browser on this machine ask is refused, and charged to
// nobody, unless the site is known. At forward-auth the header is the original request's.
func TestPagesOfOtherSites(t *testing.T) {
	d := startChecker(t, "--rules", writeFile(t, daily(2)), "--allow-origin", "https://ops.example:8443, https://b.example")
	base := strings.TrimSuffix(apiOf(d), "/v1/check")
	for _, tt := range []struct {
		method, url, body, origin string
		want                      int
	}{
		{"POST", base + "/v1/check", kristie, "https://evil.example", 403},
		{"POST", base + "/v1/check", kristie, base, 403}, // none of its pages: a site may have given its name this address
		{"POST", base + "/v1/check", kristie, "null", 403},
		{"POST", base + "/v1/check", kristie, "", 403},
		{"POST", base + "/v1/check", kristie, "https://ops.example", 403}, // another port
		{"POST", base + "/v1/settle", `{}`, "https://evil.example", 403},
		{"POST", base + "/v1/check", kristie, "https://ops.example:8443", 200},
		{"POST", base + "/v1/check", kristie, "HTTPS://B.example", 200},
		{"POST", base + "/v1/check", kristie, "https://b.example", 429},
		{"GET", base + "/v1/auth", "", "https://evil.example", 200},
		{"GET", d.Admin() + "/metrics", "", "https://evil.example", 403},
		{"GET", d.Admin() + "/metrics", "", "https://b.example", 200},
	} {
		response, text, err := daemontest.Fetch(t, http.DefaultClient, tt.method, tt.url, tt.body, "Origin: "+tt.origin)
		must(t, err)
		if response.StatusCode != tt.want || tt.want == 403 && !strings.Contains(text, "--allow-origin") {
			t.Errorf("%s %s for a page of %q: %d %.200s, want %d", tt.method, tt.url, tt.origin, response.StatusCode, text, tt.want)
		}
	}
}

// TestAnySite: * stands for all.
func TestAnySite(t *testing.T) {
	d := startChecker(t, "--rules", writeFile(t, daily(2)), "--allow-origin", "*")
	get(t, 200, "GET", d.Admin()+"/metrics", "Origin: https://evil.example")
}
