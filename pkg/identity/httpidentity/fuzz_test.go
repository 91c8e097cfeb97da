package httpidentity

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// seeds are headers that mean something, and some that nearly do.
var seeds = []string{
	"", "192.0.2.1", "6.6.6.6, 192.0.2.1:80, [fd00::1]:80", "192.0.2.1,\n10.0.0.2", "unknown, _hidden", ",,,",
	`for=192.0.2.1;proto=https;by="[fd00::1]:_x"`, `for="[2001:db8::1]:4711", for=10.0.0.2`, `for=1.2.3.4;host="a\",b"`, `for="`, `",`, `\"`,
}

// FuzzForwarded: what an element is read as is there, after a "for=", and written well it is read
// again.
func FuzzForwarded(f *testing.F) {
	for _, element := range seeds {
		f.Add(element)
	}
	f.Fuzz(func(t *testing.T, element string) {
		node, ok := forwardedFor(element)
		if !ok {
			return
		}
		if node == "" || strings.ContainsAny(node, `"\`) || !strings.Contains(strings.ToLower(element), "for=") || !strings.Contains(element, node) {
			t.Fatalf("%q: %q", element, node)
		}
		if again, ok := forwardedFor(`proto=https;for="` + node + `";host="a\"b"`); !ok || again != node {
			t.Fatalf("%q: %q, written well: %q, %v", element, node, again, ok)
		}
	})
}

// FuzzAppend: no request makes it panic, no attribute is there that was not asked for, and none
// twice.
func FuzzAppend(f *testing.F) {
	f.Add("POST", "/v1//users/../x", "192.0.2.1:80", "6.6.6.6", "session=a; b=c", "header:Cookie", "cookie:session")
	f.Add("", "*", "", "", "", "ip", "ip")
	f.Fuzz(func(t *testing.T, method, path, peer, header, cookies, a, b string) {
		rd, err := builder(t, Options{TrustedProxies: proxies(t, "0.0.0.0/0", "::/0")}).Reader([]string{a, b, "ip", "path"})
		if err != nil {
			return
		}
		r := &http.Request{
			Method: method, URL: &url.URL{Path: path}, RemoteAddr: peer,
			Header: http.Header{"X-Forwarded-For": {header}, "Cookie": {cookies}},
		}
		seen := map[string]bool{}
		for _, attribute := range rd.Append(nil, r) {
			if name := attribute.Name; seen[name] || name != a && name != b && name != "ip" && name != "path" {
				t.Fatalf("attribute %q", attribute)
			} else {
				seen[name] = true
			}
			if attribute.Name == "path" && strings.HasPrefix(path, "/") && (strings.Contains(attribute.Value, "//") || !strings.HasPrefix(attribute.Value, "/")) {
				t.Fatalf("path %q of %q", attribute.Value, path)
			}
		}
	})
}
