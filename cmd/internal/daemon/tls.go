package daemon

import (
	"crypto/tls"
	"fmt"
	"net"

	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/offpath-io/offpath/internal/flags"
	"github.com/offpath-io/offpath/internal/tlsfiles"
)

// TLS are the files of one door, the values of its flags. The zero value is a door without TLS.
type TLS struct {
	// Cert is the door's certificate, and Key its key.
	Cert, Key string
	// ClientCA says which authorities are trusted to vouch for clients: then only those with a certificate get in.
	ClientCA string
}

// AddFlags adds the flags --DOOR-cert, --DOOR-key and --DOOR-client-ca.
func (t *TLS) AddFlags(s *pflag.FlagSet, door string) {
	s.StringVar(&t.Cert, door+"-cert", "", "`FILE` with the certificate to serve TLS 1.2 or newer "+
		"with at --"+door+"; read again when it changes")
	s.StringVar(&t.Key, door+"-key", "", "`FILE` with the key of that certificate")
	s.StringVar(&t.ClientCA, door+"-client-ca", "", "`FILE` with certificates of authorities; "+
		"only clients with a certificate of one of them are let in")
}

// Check returns a usage error if the files of the door of that name do not make sense together.
func (t TLS) Check(door string) error {
	switch {
	case (t.Cert == "") != (t.Key == ""):
		return flags.Usagef("--%s-cert and --%s-key need each other", door, door)
	case t.ClientCA != "" && t.Cert == "":
		return flags.Usagef("--%s-client-ca needs --%s-cert and --%s-key too: there are no certificates without TLS", door, door, door)
	}
	return nil
}

// Secure reads the files of the door of that name and returns what makes its listener one with TLS; it changes nothing if there are no
// files. [HTTP], [Credentials] and [URL] see what it has made.
func (t TLS) Secure(files *tlsfiles.Files, door string) (func(net.Listener) net.Listener, error) {
	if t == (TLS{}) {
		return func(l net.Listener) net.Listener { return l }, nil
	}
	secure, err := files.Server(door, tlsfiles.Paths{Authorities: t.ClientCA, Cert: t.Cert, Key: t.Key}, "h2", "http/1.1")
	if err != nil {
		return nil, fmt.Errorf("--%s-cert, --%s-key, --%s-client-ca: %w", door, door, door, err)
	}
	return func(l net.Listener) net.Listener { return secured{secure.Listener(l), secure.Config} }, nil
}

// secured is a listener whose server has to speak TLS.
type secured struct {
	net.Listener
	config *tls.Config
}

// configOf returns how the listener's server has to speak TLS, nil if it has not to.
func configOf(listener net.Listener) *tls.Config {
	if s, ok := listener.(secured); ok {
		return s.config
	}
	return nil
}

// Credentials returns the options of the gRPC server on listener.
func Credentials(listener net.Listener) []grpc.ServerOption {
	config := configOf(listener)
	if config == nil {
		return nil
	}
	return []grpc.ServerOption{grpc.Creds(credentials.NewTLS(config))}
}
