package console

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/offpath-io/offpath/cmd/internal/reply"
)

// Hosts are names, beside localhost and addresses, by which a console may be asked for.
type Hosts []string

var errHost = errors.New("this console was asked for by a name that it does not know: take an address or localhost, " +
	"or see --console-host of the aggregator")

// guard lets only requests through that come by a known name. A site can give its own name the
// address of the console, and so have the reader's browser read there what the site may not (DNS
// rebinding): by then, its name is in the request. That holds wherever the console listens: a
// published port, or an address that only the reader's network reaches, is as good as loopback for
// it.
func (known Hosts) guard(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !known.has(r.Host) {
			reply.Error(w, http.StatusForbidden, errHost.Error())
			return
		}
		h.ServeHTTP(w, r)
	})
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
