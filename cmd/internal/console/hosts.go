package console

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// Hosts are names, beside localhost and addresses, by which a console on loopback may be asked for.
type Hosts []string

var errHost = errors.New("this console is on loopback, and was asked for by a name that it does not know; see --console-host")

// guard lets only requests through that come by a known name, or from another machine. A site can give its own name the address of the
// reader's machine, and so have the reader's browser read there what the site may not (DNS rebinding): by then, its name is in the request.
func (known Hosts) guard(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if onLoopback(r) && !known.has(r.Host) {
			writeError(w, http.StatusForbidden, errHost)
			return
		}
		h.ServeHTTP(w, r)
	})
}

func onLoopback(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return ok && local.IP.IsLoopback()
}

func (known Hosts) has(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = host
	}
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if _, err := netip.ParseAddr(strings.Trim(name, "[]")); err == nil {
		return true
	}
	return name == "" || name == "localhost" || strings.HasSuffix(name, ".localhost") ||
		slices.ContainsFunc(known, func(k string) bool { return strings.EqualFold(k, name) })
}
