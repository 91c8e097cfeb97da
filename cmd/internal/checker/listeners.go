package checker

import (
	"crypto/tls"
	"fmt"
	"net"
	"strings"

	"github.com/spf13/pflag"

	"github.com/offpath-io/offpath/cmd/internal/daemon"
	"github.com/offpath-io/offpath/internal/flags"
	"github.com/offpath-io/offpath/internal/tlsfiles"
)

// serverTLS are the files of the listeners.
type serverTLS struct {
	http, grpc, admin, proxy daemon.TLS
	upstream                 tlsfiles.Paths // not a listener, but the service behind one
}

// port is a listener before it is open.
type port struct {
	flag    string // for the address; the flags for files begin with it
	what    string
	address string // "" for no listener
	tls     *daemon.TLS
	hint    string // if it cannot be opened
}

// ports are the HTTP API, the gRPC API, the admin API and the reverse proxy.
func (c *config) ports() [4]port {
	proxy := ""
	if c.upstream != "" {
		proxy = c.proxy
	}
	return [4]port{
		{"listen", "HTTP API", c.listen, &c.tls.http, ""},
		{"grpc", "gRPC API", c.grpc, &c.tls.grpc, " (--grpc " + noGRPC + " does without it)"},
		{"admin", "admin", c.admin, &c.tls.admin, ""},
		{"proxy", "proxy", proxy, &c.tls.proxy, ""},
	}
}

func (c *config) addTLSFlags(s *pflag.FlagSet) {
	for _, p := range c.ports() {
		p.tls.AddFlags(s, p.flag)
	}
	u := &c.tls.upstream
	s.StringVar(&u.Authorities, "upstream-ca", "", "`FILE` with the CA certificates "+
		"to trust for --upstream https://… instead of the system's")
	s.StringVar(&u.Cert, "upstream-cert", "", "`FILE` with the client certificate for that service")
	s.StringVar(&u.Key, "upstream-key", "", "`FILE` with the key of the client certificate")
}

// serviceTLS is how the reverse proxy and its service speak TLS.
func (c *config) serviceTLS(files *tlsfiles.Files) (func() *tls.Config, error) {
	current, err := files.Client("upstream", c.tls.upstream)
	if err != nil {
		return nil, fmt.Errorf("--upstream-ca, --upstream-cert, --upstream-key: %w", err)
	}
	return current, nil
}

// checkTLS refuses files that do not make sense together, or belong to nothing.
func (c *config) checkTLS() error {
	for _, p := range c.ports() {
		if err := p.tls.Check(p.flag); err != nil {
			return err
		}
		if p.address == "" && *p.tls != (daemon.TLS{}) {
			return flags.Usagef("--%s-cert: there is no %s", p.flag, p.what)
		}
	}
	switch u := c.tls.upstream; {
	case (u.Cert == "") != (u.Key == ""):
		return flags.Usagef("--upstream-cert and --upstream-key need each other")
	case u != tlsfiles.Paths{} && !strings.HasPrefix(c.upstream, "https://"):
		return flags.Usagef("--upstream-ca, --upstream-cert: " +
			"there are no certificates without TLS, which is --upstream https://…")
	}
	return c.access.Check(c.nats)
}

// listeners are the open ports. grpc is nil without a gRPC API, and proxy without a reverse proxy.
type listeners struct{ http, grpc, admin, proxy net.Listener }

// listen opens them, with TLS where there are files for it.
func listen(c config, files *tlsfiles.Files) (l listeners, err error) {
	into := [...]*net.Listener{&l.http, &l.grpc, &l.admin, &l.proxy}
	for i, p := range c.ports() {
		if p.address == "" {
			continue
		}
		if *into[i], err = p.open(files); err != nil {
			l.close()
			return l, err
		}
	}
	return l, nil
}

func (p port) open(files *tlsfiles.Files) (net.Listener, error) {
	listener, err := p.tls.Listen(files, p.flag, p.address)
	if err != nil {
		return nil, fmt.Errorf("%s: %w%s", p.what, err, p.hint)
	}
	return listener, nil
}

// grpcTarget returns the target for gRPC clients on this machine, "" without a gRPC API.
func (l listeners) grpcTarget() string {
	if l.grpc == nil {
		return ""
	}
	_, target, _ := strings.Cut(daemon.URL(l.grpc), "://")
	return target
}

// proxyURL is "" if there is no reverse proxy.
func (l listeners) proxyURL() string {
	if l.proxy == nil {
		return ""
	}
	return daemon.URL(l.proxy)
}

// close closes the listeners that no server has closed. The errors of the others mean nothing.
func (l listeners) close() {
	for _, listener := range []net.Listener{l.http, l.grpc, l.admin, l.proxy} {
		if listener != nil {
			_ = listener.Close()
		}
	}
}
