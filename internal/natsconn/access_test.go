package natsconn

import (
	"crypto/tls"
	"log/slog"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/offpath-io/offpath/internal/natsclient"
	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/servers"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
	"github.com/offpath-io/offpath/internal/testing/tlsfilestest"
	"github.com/offpath-io/offpath/internal/tlsfiles"
)

// canary is in every secret.
const canary = "CANARY"

// version is a state of the world: what the server wants, and what files give that to it.
type version struct {
	configure func(*server.Options)
	write     func()
}

// kind is a way to get in.
type kind struct {
	name    string
	access  Access
	first   version
	second  version
	spoil   string // a file that is then replaced by nonsense
	refusal string // what the log says when one server meets the other's files
}

// tlsKind: both sides show certificates; the second server's and its clients' are another
// authority's.
func tlsKind(t *testing.T) kind {
	f := tlsfilestest.NewAuthority(t, "before").Dir("client")
	of := func(ca *tlsfilestest.Authority) version {
		return version{
			configure: mutualTLS(ca),
			write: func() {
				tlsfilestest.Write(t, f.CA, ca.PEM())
				ca.Renew(f, "client")
			},
		}
	}
	return kind{
		name: "mutual TLS", access: Access{CA: f.CA, Cert: f.Cert, Key: f.Key},
		first: of(tlsfilestest.NewAuthority(t, "first")), second: of(tlsfilestest.NewAuthority(t, "second")),
		spoil: f.Key, refusal: "x509: certificate signed by unknown authority",
	}
}

// mutualTLS has a server show a certificate of an authority, and want one of its clients.
func mutualTLS(ca *tlsfilestest.Authority) func(*server.Options) {
	config := &tls.Config{
		Certificates: []tls.Certificate{ca.Pair("server")}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ca.Pool(),
	}
	return func(o *server.Options) { o.TLS, o.TLSVerify, o.TLSConfig = true, true, config }
}

func passwordKind(t *testing.T) kind {
	path := filepath.Join(t.TempDir(), "password")
	of := func(password string) version {
		return version{
			configure: func(o *server.Options) { o.Users = []*server.User{{Username: "checker", Password: password}} },
			write:     func() { tlsfilestest.Write(t, path, []byte(password+"\n")) },
		}
	}
	return kind{
		name: "user and password", access: Access{User: "checker", PasswordFile: path},
		first: of(canary + "1"), second: of(canary + "2"), spoil: path, refusal: "nats: authorization violation",
	}
}

func nkeyKind(t *testing.T) kind {
	path := filepath.Join(t.TempDir(), "seed")
	of := func() version {
		_, public, seed := newKeys(t, nkeys.CreateUser)
		return version{
			configure: func(o *server.Options) { o.Nkeys = []*server.NkeyUser{{Nkey: public}} },
			write:     func() { tlsfilestest.Write(t, path, append(seed, '\n')) },
		}
	}
	return kind{name: "nkey", access: Access{NKey: path}, first: of(), second: of(), spoil: path, refusal: "nats: authorization violation"}
}

// newKeys makes a pair of keys, with its public name and its seed.
func newKeys(t *testing.T, create func() (nkeys.KeyPair, error)) (pair nkeys.KeyPair, public string, seed []byte) {
	t.Helper()
	pair, err := create()
	must(t, err)
	public, err = pair.PublicKey()
	must(t, err)
	seed, err = pair.Seed()
	must(t, err)
	return pair, public, seed
}

// newCreds are those of a user whom an account vouches for, until then if that is not 0.
func newCreds(t *testing.T, account nkeys.KeyPair, expires time.Time) []byte {
	t.Helper()
	_, name, seed := newKeys(t, nkeys.CreateUser)
	claims := jwt.NewUserClaims(name)
	if !expires.IsZero() {
		claims.Expires = expires.Unix()
	}
	text, err := claims.Encode(account)
	must(t, err)
	creds, err := jwt.FormatUserConfig(text, seed)
	must(t, err)
	return creds
}

// credsKind: an operator vouches for accounts, and each server knows one of them.
func credsKind(t *testing.T) kind {
	path := filepath.Join(t.TempDir(), "creds")
	operator, trusted, _ := newKeys(t, nkeys.CreateOperator)
	of := func() version {
		account, name, _ := newKeys(t, nkeys.CreateAccount)
		token, err := jwt.NewAccountClaims(name).Encode(operator)
		must(t, err)
		creds := newCreds(t, account, time.Time{})
		return version{
			configure: func(o *server.Options) {
				resolver := &server.MemAccResolver{}
				must(t, resolver.Store(name, token))
				o.TrustedKeys, o.AccountResolver = []string{trusted}, resolver
			},
			write: func() { tlsfilestest.Write(t, path, creds) },
		}
	}
	return kind{name: "creds", access: Access{Creds: path}, first: of(), second: of(), spoil: path, refusal: "nats: authorization violation"}
}

var must = daemontest.Must

// TestGetsInAndStaysIn: whoever is refused at first goes on trying, and gets in once the files are
// those that the server wants; and so does whoever has them from the start. When the server changes
// its mind, the connection says so, waits, survives a file of nonsense, and is back when the files
// are right again.
func TestGetsInAndStaysIn(t *testing.T) {
	for _, k := range []kind{tlsKind(t), credsKind(t), nkeyKind(t), passwordKind(t)} {
		t.Run(k.name, func(t *testing.T) {
			var configure atomic.Pointer[func(*server.Options)]
			configure.Store(&k.second.configure)
			nats := serverstest.NATSWith(t, servers.NATSOptions{Configure: func(o *server.Options) { (*configure.Load())(o) }})
			k.first.write()
			_, files, log := k.access.opened(t, nats.URL())
			daemontest.Background(t, files.Run)
			log.Await(t, k.refusal, 1)
			k.second.write()
			log.Await(t, "connected to NATS", 1)
			_, _, another := k.access.opened(t, nats.URL())
			another.Await(t, "connected to NATS", 1)

			configure.Store(&k.first.configure)
			must(t, nats.Restart())
			log.Await(t, k.refusal, 2)
			tlsfilestest.Write(t, k.spoil, []byte(canary+"\n"+canary))
			log.Await(t, "new files are refused", 1)
			k.first.write()
			log.Await(t, "connected to NATS", 2)
			if trouble := files.States()[0].Trouble; trouble != nil {
				t.Error(trouble)
			}
			if strings.Contains(log.String(), canary) {
				t.Errorf("the log tells a secret:\n%s", log)
			}
			if n := strings.Count(strings.ToLower(log.String()), k.refusal); n != 2 {
				t.Errorf("it says %d times that it is refused, and not once each time:\n%s", n, log)
			}
		})
	}
}

// opened opens a connection until the end of the test, with all that is said of it and its files.
func (a Access) opened(t *testing.T, url string) (*nats.Conn, *tlsfiles.Files, *daemontest.Buffer) {
	t.Helper()
	log := new(daemontest.Buffer)
	files := tlsfiles.New(slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	options, err := a.Options(files)
	must(t, err)
	conn, err := natsclient.Open(url, "test", log.Logger(), append(options,
		nats.ReconnectWait(5*time.Millisecond), nats.ReconnectJitter(0, 0))...)
	must(t, err)
	t.Cleanup(func() { natsclient.Close(conn) })
	return conn, files, log
}

// TestCredentialsExpire: it is known when, so that somebody can be told before a server refuses
// them.
func TestCredentialsExpire(t *testing.T) {
	account, _, _ := newKeys(t, nkeys.CreateAccount)
	for name, want := range map[string]time.Time{"never": {}, "in an hour": time.Now().Add(time.Hour).Truncate(time.Second)} {
		path := filepath.Join(t.TempDir(), "creds")
		tlsfilestest.Write(t, path, newCreds(t, account, want))
		files := tlsfiles.New(slog.New(slog.DiscardHandler))
		_, err := (&Access{Creds: path}).creds(files)
		must(t, err)
		if got := files.States()[0].Expires; !got.Equal(want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}
