package upstream

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/offpath-io/offpath/pkg/identity/httpidentity"
)

// rewritten passes a request from this peer through the proxy's rewriting, as httputil.ReverseProxy
// does it.
func rewritten(p *proxy, peer string, headers ...string) *http.Request {
	in := httptest.NewRequest("GET", "http://example.com/a", nil)
	in.RemoteAddr, in.TLS = peer, nil
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		in.Header.Add(name, value)
	}
	out := in.Clone(in.Context())
	for _, name := range []string{forwarded, xForwardedFor, xForwardedHost, xForwardedProto} {
		out.Header.Del(name)
	}
	p.rewrite(&httputil.ProxyRequest{In: in, Out: out})
	return out
}

// Trusted is 10.0.0.0/8.
func TestForwardingHeaders(t *testing.T) {
	spoofed := []string{
		"X-Forwarded-For: 6.6.6.6", "X-Forwarded-Host: evil", "X-Forwarded-Proto: https", "X-Forwarded-Port: 1", "X-Forwarded: for=6.6.6.6",
		"X-Real-Ip: 6.6.6.6", "Forwarded: for=6.6.6.6", "X_Forwarded_For: 6.6.6.6", "X-Original-Url: /admin", "True-Client-Ip: 6.6.6.6",
		"X-Rewrite-Url: /admin", "Cf-Connecting-Ip: 6.6.6.6", "Cf-Connecting-Ipv6: 6::6", "Client_ip: 6.6.6.6", "X-Cluster-Client-Ip: 6.6.6.6", "Fastly-Client-Ip: 6.6.6.6",
		"X-Envoy-External-Address: 6.6.6.6", "X-Envoy-Internal: true", "X-Envoy-Original-Path: /admin", "Fly-Client-Ip: 6.6.6.6", "X-Azure-Clientip: 6.6.6.6", "X-Azure-Socketip: 6.6.6.6",
		"Forwarded-For: 6.6.6.6", "X-Vercel-Forwarded-For: 6.6.6.6", "Proxy-Client-Ip: 6.6.6.6", "Wl-Proxy-Client-Ip: 6.6.6.6", "X-Appengine-User-Ip: 6.6.6.6",
		"X-Remote-Ip: 6.6.6.6", "X-Remote-Addr: 6.6.6.6", "X-Originating-Ip: 6.6.6.6", "Do-Connecting-Ip: 6.6.6.6", "Cf-Pseudo-Ipv4: 6.6.6.6", "X-Host: evil",
	}
	const example = " | X-Forwarded-Host: example.com | X-Forwarded-Proto: http"
	const xff, rfc = httpidentity.XForwardedFor, httpidentity.Forwarded
	for _, tt := range []struct {
		why        string
		forwarding httpidentity.Forwarding
		peer       string
		headers    []string
		want       string // all forwarding headers
	}{
		{"a client", xff, "192.0.2.1:80", nil, "X-Forwarded-For: 192.0.2.1" + example},
		{"a client with claims", xff, "192.0.2.1:80", spoofed, "X-Forwarded-For: 192.0.2.1" + example},
		{"IPv6", xff, "[2001:db8::1]:80", nil, "X-Forwarded-For: 2001:db8::1" + example},
		{
			"a trusted proxy", xff, "10.0.0.1:80",
			[]string{"X-Forwarded-For: 6.6.6.6, 192.0.2.1", "X-Forwarded-Host: outside.example", "X-Forwarded-Proto: https", "X-Real-Ip: 192.0.2.1"},
			"X-Forwarded-For: 6.6.6.6, 192.0.2.1, 10.0.0.1 | X-Forwarded-Host: outside.example | X-Forwarded-Proto: https | X-Real-Ip: 192.0.2.1",
		},
		{"a trusted proxy that tells nothing", xff, "10.0.0.1:80", nil, "X-Forwarded-For: 10.0.0.1" + example},
		{"the other header", xff, "10.0.0.1:80", []string{"Forwarded: for=6.6.6.6"}, "X-Forwarded-For: 10.0.0.1" + example},
		{
			"a client, RFC 7239", rfc, "192.0.2.1:80", spoofed,
			`Forwarded: for=192.0.2.1;host="example.com";proto=http | X-Forwarded-For: 192.0.2.1` + example,
		},
		{
			"a trusted proxy, RFC 7239", rfc, "10.0.0.1:80", []string{"Forwarded: for=6.6.6.6", "Forwarded: for=192.0.2.1", "X-Forwarded-For: 6.6.6.6", "X-Forwarded-Host: evil"},
			`Forwarded: for=6.6.6.6, for=192.0.2.1, for=10.0.0.1;host="example.com";proto=http | X-Forwarded-For: 192.0.2.1, 10.0.0.1` + example,
		},
		{
			"IPv6, RFC 7239", rfc, "[2001:db8::1%eth0]:80", nil,
			`Forwarded: for="[2001:db8::1]";host="example.com";proto=http | X-Forwarded-For: 2001:db8::1%eth0` + example,
		},
	} {
		o := options(t, "http://127.0.0.1:3000")
		o.Forwarding, o.Identity = tt.forwarding, trusting(t, httpidentity.Options{Forwarding: tt.forwarding}, "10.0.0.0/8")
		out := rewritten(&proxy{options: o}, tt.peer, tt.headers...)
		var got []string
		for name, values := range out.Header {
			got = append(got, name+": "+strings.Join(values, ", "))
		}
		slices.Sort(got)
		if text := strings.Join(got, " | "); text != tt.want {
			t.Errorf("%s:\ngot  %s\nwant %s", tt.why, text, tt.want)
		}
		if out.Host != "example.com" || out.URL.String() != "http://127.0.0.1:3000/a" {
			t.Errorf("%s: %s at %s", tt.why, out.Host, out.URL)
		}
	}
}

// What is written, the next checker reads again.
func TestElement(t *testing.T) {
	b := trusting(t, httpidentity.Options{Forwarding: httpidentity.Forwarded}, "10.0.0.0/8")
	for _, tt := range []struct{ peer, host, want, client string }{
		{"192.0.2.1:80", "a", `for=192.0.2.1;host="a";proto=http`, "192.0.2.1"},
		{"[::ffff:192.0.2.1]:80", "a", `for=192.0.2.1;host="a";proto=http`, "192.0.2.1"},
		{"[2001:db8::1]:80", `a",for=6.6.6.6;x="\`, `for="[2001:db8::1]";host="a\",for=6.6.6.6;x=\"\\";proto=http`, "2001:db8::1"},
		{"@", "a", `for=unknown;host="a";proto=http`, "10.0.0.1"},
	} {
		got := element(&http.Request{RemoteAddr: tt.peer, Host: tt.host})
		addr, _ := b.ClientIP("10.0.0.1:80", http.Header{forwarded: {"for=6.6.6.6", got}})
		if got != tt.want || addr.String() != tt.client {
			t.Errorf("%s: %s, read as %v", tt.peer, got, addr)
		}
	}
	if got := element(&http.Request{RemoteAddr: "192.0.2.1:80", TLS: new(tls.ConnectionState)}); !strings.HasSuffix(got, ";proto=https") {
		t.Error(got)
	}
}

func TestParseTarget(t *testing.T) {
	for _, text := range []string{"http://127.0.0.1:3000", "https://example.com/base", "h2c://[::1]:50051", "HTTP://a"} {
		if u, err := ParseTarget(text); err != nil || u.Host == "" {
			t.Errorf("%s: %v, %v", text, u, err)
		}
	}
	for text, want := range map[string]string{
		"": "scheme", "localhost:3000": "unknown scheme", "127.0.0.1:3000": "not a URL", "ftp://a": "unknown scheme", "http://": "without a host",
		"http://:80": "without a host", "http://me:geheim@a": "with a user", "http://a/?b": "query", "http://a/?": "query", "http://a/#b": "fragment", "http://a:b": "not a URL",
	} {
		if _, err := ParseTarget(text); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// FuzzForward: whatever a client sends, the service is told the client's own address, and no header
// claims another.
func FuzzForward(f *testing.F) {
	f.Add("X-Forwarded-For", "6.6.6.6", false)
	f.Add("x_forwarded-for", "6.6.6.6", true)
	f.Add("Forwarded", `for="`, true)
	f.Add("Connection", "X-Forwarded-For", false)
	f.Fuzz(func(t *testing.T, name, value string, rfc bool) {
		o := options(t, "http://127.0.0.1:3000")
		if rfc {
			o.Forwarding = httpidentity.Forwarded
		}
		in := &http.Request{URL: &url.URL{Path: "/"}, Host: "a", RemoteAddr: "192.0.2.1:80", Header: http.Header{http.CanonicalHeaderKey(name): {value}}}
		out := in.Clone(t.Context())
		(&proxy{options: o}).rewrite(&httputil.ProxyRequest{In: in, Out: out})
		for name, values := range out.Header {
			if !claims(name) {
				continue
			}
			for _, v := range values {
				if v != "192.0.2.1" && v != "a" && v != "http" && v != `for=192.0.2.1;host="a";proto=http` {
					t.Fatalf("%s: %q", name, v)
				}
			}
		}
	})
}
