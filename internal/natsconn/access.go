// Package natsconn has the flags for access to a NATS server, and makes options of a connection of
// them.
package natsconn

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
	"github.com/spf13/pflag"

	"github.com/offpath-io/offpath/internal/flags"
	"github.com/offpath-io/offpath/internal/tlsfiles"
)

// Access is what gets a command into a NATS server besides its URL: the values of flags. The zero
// value is for a server that lets everybody in.
type Access struct {
	// CA says which authorities are trusted to vouch for the server; Cert and Key are for a server
	// that wants to know its clients. All are files. With any of them the connection has TLS,
	// whatever the URL says.
	CA, Cert, Key string
	// Creds is a file with a user's JWT and seed, NKey one with the seed alone.
	Creds, NKey string
	// User has the password that is in PasswordFile, or is Password.
	User, PasswordFile, Password string
}

// AddFlags adds the flags --nats-ca and so on, which are the same for every command.
func (a *Access) AddFlags(s *pflag.FlagSet) {
	s.StringVar(&a.CA, "nats-ca", "", "`FILE` with the CA certificates to trust for NATS "+
		"instead of the system's; this, --nats-cert or a tls:// URL turns on TLS")
	s.StringVar(&a.Cert, "nats-cert", "", "`FILE` with the client certificate for NATS")
	s.StringVar(&a.Key, "nats-key", "", "`FILE` with the key of the client certificate")
	s.StringVar(&a.Creds, "nats-creds", "",
		"`FILE` with NATS credentials: a user's JWT and seed")
	s.StringVar(&a.NKey, "nats-nkey", "", "`FILE` with the seed of a NATS user's nkey")
	s.StringVar(&a.User, "nats-user", "", "`NAME` of the NATS user")
	s.StringVar(&a.PasswordFile, "nats-password-file", "", "`FILE` with the password of the NATS user")
	flags.AddSecret(s, &a.Password, "nats-password", "password of the NATS user, if it is not in a file")
}

// Check returns a usage error if the settings do not make sense together, or with the URL.
func (a *Access) Check(url string) error {
	ways := 0
	for _, given := range []bool{a.Creds != "", a.NKey != "", a.User != "", strings.Contains(url, "@")} {
		if given {
			ways++
		}
	}
	switch {
	case url == "" && *a != Access{}:
		return flags.Usagef("--nats-ca, --nats-creds and so on say how to get into a NATS server: they need --nats URL too")
	case ways > 1:
		return flags.Usagef("--nats-creds, --nats-nkey, --nats-user, a user in --nats: want one of them at most")
	case (a.Cert == "") != (a.Key == ""):
		return flags.Usagef("--nats-cert and --nats-key need each other")
	case a.PasswordFile != "" && a.Password != "":
		return flags.Usagef("--nats-password-file, and a password in the environment: want one of them")
	case (a.User == "") != (a.PasswordFile == "" && a.Password == ""):
		return flags.Usagef("--nats-user and its password, --nats-password-file or one in the environment, need each other")
	}
	return nil
}

// Options reads the files, and returns options for any number of connections, which go by the
// newest good files whenever they are made again. Nil files read once, for a command that is soon
// over.
func (a *Access) Options(files *tlsfiles.Files) ([]nats.Option, error) {
	if files == nil {
		files = tlsfiles.New(slog.New(slog.DiscardHandler))
	}
	var all []nats.Option
	for _, part := range []struct {
		flags string
		add   func(*tlsfiles.Files) (nats.Option, error)
	}{
		{"--nats-ca, --nats-cert, --nats-key", a.tls},
		{"--nats-creds", a.creds},
		{"--nats-nkey", func(files *tlsfiles.Files) (nats.Option, error) {
			seed, err := a.seed(files)
			if err != nil || seed == nil {
				return nil, err
			}
			return nkey(seed), nil
		}},
		{"--nats-password-file", a.password},
	} {
		option, err := part.add(files)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", part.flags, err)
		}
		if option != nil {
			all = append(all, option)
		}
	}
	return all, nil
}

func (a *Access) tls(files *tlsfiles.Files) (nats.Option, error) {
	paths := tlsfiles.Paths{Authorities: a.CA, Cert: a.Cert, Key: a.Key}
	current, err := files.Client("nats", paths)
	if err != nil || paths == (tlsfiles.Paths{}) {
		return nil, err
	}
	var certs nats.TLSCertHandler
	if a.Cert != "" {
		certs = func() (tls.Certificate, error) { return current().Certificates[0], nil }
	}
	var pool nats.RootCAsHandler
	if a.CA != "" {
		pool = func() (*x509.CertPool, error) { return current().RootCAs, nil }
	}
	return nats.ClientTLSConfig(certs, pool), nil
}

var (
	errCreds = errors.New("no credentials of a user in it (want a JWT and a seed, as \"nsc generate creds\" writes them)")
	errSeed  = errors.New("no seed of a user's nkey in it")
)

func (a *Access) creds(files *tlsfiles.Files) (nats.Option, error) {
	if a.Creds == "" {
		return nil, nil
	}
	current, err := files.Text("nats-creds", a.Creds, checkCreds)
	if err != nil {
		return nil, err
	}
	return nats.UserJWT(
		func() (string, error) { return userJWT(current()) },
		func(nonce []byte) ([]byte, error) { return sign(current(), nonce) },
	), nil
}

// checkCreds returns when credentials expire.
func checkCreds(content []byte) (expires time.Time, err error) {
	text, err := userJWT(content)
	if err != nil {
		return expires, err
	}
	pair, err := nkeys.ParseDecoratedUserNKey(content)
	if err != nil {
		return expires, errCreds
	}
	pair.Wipe()
	if claims, err := jwt.DecodeUserClaims(text); err == nil && claims.Expires != 0 { // else it is the server's to judge
		expires = time.Unix(claims.Expires, 0)
	}
	return expires, nil
}

// jwtPattern is what a JWT looks like. The library takes all of a file for one that has no frame:
// of a file with a seed alone it would send the seed to the server.
var jwtPattern = regexp.MustCompile(`^eyJ[\w-]+\.[\w-]+\.[\w-]+$`)

func userJWT(content []byte) (string, error) {
	text, err := nkeys.ParseDecoratedJWT(content)
	if err != nil || !jwtPattern.MatchString(text) {
		return "", errCreds
	}
	return text, nil
}

// seed reads the seed's file; nil if there is none.
func (a *Access) seed(files *tlsfiles.Files) (current func() []byte, err error) {
	if a.NKey == "" {
		return nil, nil
	}
	return files.Text("nats-nkey", a.NKey, func(content []byte) (time.Time, error) {
		_, err := publicKey(content)
		return time.Time{}, err
	})
}

// nkey is the option for a seed. The library asks for each signature, but reads the public key from
// the connection's options, under its lock, after it has called ReconnectToServerCB: so that is
// where the key can change. The connection is not known there. It is known from the first failure
// on.
func nkey(current func() []byte) nats.Option {
	return func(o *nats.Options) error {
		public, err := publicKey(current())
		if err != nil {
			return err
		}
		o.Nkey = public
		o.SignatureCB = func(nonce []byte) ([]byte, error) { return sign(current(), nonce) }
		var conn atomic.Pointer[nats.Conn]
		connected, failed := o.ConnectedCB, o.ReconnectErrCB
		o.ConnectedCB = func(c *nats.Conn) {
			conn.Store(c)
			if connected != nil {
				connected(c)
			}
		}
		o.ReconnectErrCB = func(c *nats.Conn, err error) {
			conn.Store(c)
			if failed != nil {
				failed(c, err)
			}
		}
		o.ReconnectToServerCB = func([]nats.Server, nats.ServerInfo) (*nats.Server, time.Duration) {
			if c := conn.Load(); c != nil {
				if public, err := publicKey(current()); err == nil {
					c.Opts.Nkey = public
				}
			}
			return nil, 0 // the library's own choice of a server
		}
		return nil
	}
}

func publicKey(content []byte) (string, error) {
	pair, err := nkeys.ParseDecoratedUserNKey(content)
	if err != nil {
		return "", errSeed
	}
	defer pair.Wipe()
	return pair.PublicKey()
}

func sign(content, nonce []byte) ([]byte, error) {
	pair, err := nkeys.ParseDecoratedUserNKey(content)
	if err != nil {
		return nil, errSeed
	}
	defer pair.Wipe()
	return pair.Sign(nonce)
}

func (a *Access) password(files *tlsfiles.Files) (nats.Option, error) {
	if a.User == "" {
		return nil, nil
	}
	password, err := files.Password("nats-password", a.PasswordFile, a.Password)
	if err != nil {
		return nil, err
	}
	return nats.UserInfoHandler(func() (user, secret string) { return a.User, password() }), nil
}
