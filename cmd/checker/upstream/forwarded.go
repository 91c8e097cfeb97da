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

// rewrite makes the request to the service out of the client's. httputil.ReverseProxy has taken off what belongs to the
// connection, and the usual forwarding headers.
func (p *proxy) rewrite(pr *httputil.ProxyRequest) {
	target := *p.options.Target
	if target.Scheme == "h2c" {
		target.Scheme = "http" // the transport speaks nothing else
	}
	pr.Out.URL.RawQuery = pr.In.URL.RawQuery // nothing was decided by it, so it may be as odd as it likes
	pr.SetURL(&target)
	pr.Out.Host = pr.In.Host
	if !strings.EqualFold(pr.Out.Header.Get("Upgrade"), "websocket") {
		delete(pr.Out.Header, "Upgrade")
		delete(pr.Out.Header, "Connection")
	}
	p.forward(pr)
	p.passTrailers(pr)
}

// passTrailers has the service get what the client says when its body ends: the map is filled then, and a copy of it is not. Some
// services take trailers for headers, so one that claims who the client is drops them all.
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

// forward writes the forwarding headers. Of a trusted proxy's those stay that it wrote; of everybody else's none.
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
		p.forwardByRFC(pr, trusted)
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

// forwardByRFC adds this proxy's element to Forwarded. For services that read X-Forwarded-For, that says the client as it is known
// here: a proxy that writes Forwarded has passed the other header on as the client sent it.
func (p *proxy) forwardByRFC(pr *httputil.ProxyRequest, trusted bool) {
	if client, ok := p.options.Identity.ClientIP(pr.In.RemoteAddr, pr.In.Header); ok && trusted {
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

// element is what RFC 7239 has a proxy say of a request.
func element(r *http.Request) string {
	proto := "http"
	if r.TLS != nil {
		proto = "https"
	}
	return "for=" + node(r.RemoteAddr) + `;host="` + quote(r.Host) + `";proto=` + proto
}

// node is an address as RFC 7239 writes it.
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

func quote(text string) string { return strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text) }

// claimed is how headers end that tell who the client is: those of proxies and platforms, of which
// each service believes others.
var claimed = []string{
	"forwarded-for", "client-ip", "clientip", "connecting-ip", "connecting-ipv6", "real-ip", "remote-ip", "remote-addr", "user-ip",
	"originating-ip", "socketip", "pseudo-ipv4",
}

// claims says whether a header tells who the client is, or what it has asked for. Some services take _ for -.
func claims(name string) bool {
	name = strings.ToLower(strings.ReplaceAll(name, "_", "-"))
	switch name {
	case "forwarded", "x-forwarded", "x-host", "x-envoy-external-address", "x-envoy-internal", "x-envoy-original-path", "x-rewrite-url":
		return true
	}
	return strings.HasPrefix(name, "x-forwarded-") || strings.HasPrefix(name, "x-original-") ||
		slices.ContainsFunc(claimed, func(end string) bool { return strings.HasSuffix(name, end) })
}
