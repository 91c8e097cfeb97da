package upstream

import (
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"slices"
	"strings"

	"github.com/offpath-io/offpath/pkg/identity/httpidentity"
)

const (
	xForwardedFor   = "X-Forwarded-For"
	xForwardedHost  = "X-Forwarded-Host"
	xForwardedProto = "X-Forwarded-Proto"
	forwarded       = "Forwarded"
)

// rewrite makes the request to the service from the client's. httputil.ReverseProxy has removed the
// headers of the connection, and the usual forwarding headers.
func (p *proxy) rewrite(pr *httputil.ProxyRequest) {
	target := *p.options.Target
	if target.Scheme == "h2c" {
		target.Scheme = "http" // the transport knows no other name
	}
	pr.Out.URL.RawQuery = pr.In.URL.RawQuery // as it came: no decision depends on it
	pr.SetURL(&target)
	pr.Out.Host = pr.In.Host
	if !strings.EqualFold(pr.Out.Header.Get("Upgrade"), "websocket") {
		delete(pr.Out.Header, "Upgrade")
		delete(pr.Out.Header, "Connection")
	}
	p.forward(pr)
	p.passTrailers(pr)
}

// passTrailers passes the client's trailers on: net/http fills this map at the end of the body, and
// no copy of it. Some services treat trailers as headers. So if one of them claims a client, and no
// trusted proxy sent it, all are dropped.
func (p *proxy) passTrailers(pr *httputil.ProxyRequest) {
	pr.Out.Trailer = pr.In.Trailer
	if p.options.Identity.Trusts(pr.In.RemoteAddr) {
		return
	}
	for name := range pr.In.Trailer {
		if claims(name) {
			pr.Out.Trailer = nil
		}
	}
}

// forward writes the forwarding headers. It keeps those of a trusted proxy, and drops all others.
func (p *proxy) forward(pr *httputil.ProxyRequest) {
	in, out := pr.In.Header, pr.Out.Header
	trusted := p.options.Identity.Trusts(pr.In.RemoteAddr)
	if !trusted {
		for name := range out {
			if claims(name) {
				delete(out, name)
			}
		}
	}
	if p.options.Forwarding == httpidentity.Forwarded {
		p.forwardRFC7239(pr, trusted)
		return
	}
	if trusted {
		out[xForwardedFor] = slices.Clone(in[xForwardedFor])
	}
	pr.SetXForwarded()
	if !trusted {
		return
	}
	for _, name := range []string{xForwardedHost, xForwardedProto} {
		if values := in[name]; len(values) > 0 {
			out[name] = slices.Clone(values)
		}
	}
}

// forwardRFC7239 adds this proxy's element to Forwarded. X-Forwarded-For is the client's address as
// this proxy determined it, for services that read that: a proxy that writes Forwarded has passed
// the other header on as the client sent it.
func (p *proxy) forwardRFC7239(pr *httputil.ProxyRequest, trusted bool) {
	client, ok := p.options.Identity.ClientIP(pr.In.RemoteAddr, pr.In.Header)
	if ok && trusted {
		pr.Out.Header.Set(xForwardedFor, client.String())
	}
	pr.SetXForwarded()
	own := element(pr.In)
	if trusted {
		if before := pr.In.Header[forwarded]; len(before) > 0 {
			own = strings.Join(before, ", ") + ", " + own
		}
	}
	pr.Out.Header.Set(forwarded, own)
}

// element returns the element of Forwarded that describes a request.
func element(r *http.Request) string {
	proto := "http"
	if r.TLS != nil {
		proto = "https"
	}
	return "for=" + node(r.RemoteAddr) + `;host="` + quote(r.Host) + `";proto=` + proto
}

// node returns an address as RFC 7239 writes it.
func node(remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return "unknown"
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return "unknown"
	}
	if addr = addr.Unmap().WithZone(""); addr.Is4() {
		return addr.String()
	}
	return `"[` + addr.String() + `]"`
}

func quote(text string) string {
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text)
}

// clientSuffixes are the ends of the names of headers that tell the client's address. Proxies and
// platforms write them, and each service trusts different ones.
var clientSuffixes = []string{
	"forwarded-for", "client-ip", "clientip", "connecting-ip", "connecting-ipv6", "real-ip",
	"remote-ip", "remote-addr", "user-ip", "originating-ip", "socketip", "pseudo-ipv4",
}

// claims reports whether a header tells the client's address, or the request's original target.
// Some services treat _ as -.
func claims(name string) bool {
	name = strings.ToLower(strings.ReplaceAll(name, "_", "-"))
	switch name {
	case "forwarded", "x-forwarded", "x-host", "x-envoy-external-address", "x-envoy-internal",
		"x-envoy-original-path", "x-rewrite-url":
		return true
	}
	hasSuffix := func(suffix string) bool { return strings.HasSuffix(name, suffix) }
	return strings.HasPrefix(name, "x-forwarded-") || strings.HasPrefix(name, "x-original-") ||
		slices.ContainsFunc(clientSuffixes, hasSuffix)
}
