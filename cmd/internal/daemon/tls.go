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

// TLS are the files of one listener, the values of its flags. The zero value is a listener without
// TLS.
type TLS struct {
	// Cert is the listener's certificate, and Key its key.
	Cert, Key string
	// ClientCA are authorities: only clients with a certificate of one of them are let in.
	ClientCA string
}

// AddFlags adds the flags --NAME-cert, --NAME-key and --NAME-client-ca.
func (t *TLS) AddFlags(s *pflag.FlagSet, name string) {
	s.StringVar(&t.Cert, name+"-cert", "", "`FILE` with the TLS certificate of --"+name+
		"; read again when it changes")
	s.StringVar(&t.Key, name+"-key", "", "`FILE` with the key of that certificate")
	s.StringVar(&t.ClientCA, name+"-client-ca", "", "`FILE` with CA certificates; "+
		"only clients with a certificate from one of these CAs may connect")
}

// Check returns a usage error if the files of the listener of that name do not fit together.
func (t TLS) Check(name string) error {
	switch {
	case (t.Cert == "") != (t.Key == ""):
		return flags.Usagef("--%s-cert and --%s-key need each other", name, name)
	case t.ClientCA != "" && t.Cert == "":
		return flags.Usagef("--%s-client-ca needs --%s-cert and --%s-key too: "+
			"there are no certificates without TLS", name, name, name)
	}
	return nil
}

// Listen opens a TCP listener, with TLS if there are files for it; flag is the name of the flag
// with the address. [HTTP], [Credentials] and [URL] notice its TLS.
func (t TLS) Listen(files *tlsfiles.Files, flag, address string) (net.Listener, error) {
	if t == (TLS{}) {
		return Listen(address)
	}
	paths := tlsfiles.Paths{Authorities: t.ClientCA, Cert: t.Cert, Key: t.Key}
	secure, err := files.Server(flag, paths, "h2", "http/1.1")
	if err != nil {
		return nil, fmt.Errorf("--%s-cert, --%s-key, --%s-client-ca: %w", flag, flag, flag, err)
	}
	listener, err := Listen(address)
	if err != nil {
		return nil, err
	}
	return secured{secure.Listener(listener), secure.Config}, nil
}

// secured is a listener whose server speaks TLS.
type secured struct {
	net.Listener
	config *tls.Config
}

// configOf returns the TLS configuration of the listener's server, nil without TLS.
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
