// Package redisconn opens a command's store in Redis, with what its flags say of TLS and
// credentials.
package redisconn

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/pflag"

	"github.com/offpath-io/offpath/internal/flags"
	"github.com/offpath-io/offpath/internal/tlsfiles"
	"github.com/offpath-io/offpath/pkg/aggregate/redisstore"
)

// Access is what gets a command into Redis besides its URL: the values of flags. The zero value is
// for a Redis that lets everybody in.
type Access struct {
	// CA says which authorities are trusted to vouch for Redis; Cert and Key are for one that wants
	// to know its clients. All are files.
	CA, Cert, Key string
	// User of Redis' ACL, "" for its default user, has the password that is in PasswordFile, or is
	// Password.
	User, PasswordFile, Password string
}

// AddURL adds the flag --redis.
func AddURL(s *pflag.FlagSet, url *string) {
	flags.Add(s, url, "redis", "`URL` of Redis: redis://, or rediss:// for TLS; several, "+
		"separated by commas, for a Cluster; with ?master_name= for Sentinel", URL)
}

// AddFlags adds the flags --redis-ca and so on, which are the same for every command.
func (a *Access) AddFlags(s *pflag.FlagSet) {
	s.StringVar(&a.CA, "redis-ca", "", "`FILE` with the CA certificates to trust for Redis "+
		"instead of the system's")
	s.StringVar(&a.Cert, "redis-cert", "", "`FILE` with the client certificate for Redis")
	s.StringVar(&a.Key, "redis-key", "", "`FILE` with the key of the client certificate")
	s.StringVar(&a.User, "redis-user", "",
		"`NAME` of the Redis ACL user, instead of the default user")
	s.StringVar(&a.PasswordFile, "redis-password-file", "", "`FILE` with the password of the Redis user")
	flags.AddSecret(s, &a.Password, "redis-password", "password of the Redis user, if it is not in a file")
}

// Check returns a usage error if the settings do not make sense together, or with the URL, which is
// "" if there is no Redis.
func (a *Access) Check(url string) error {
	secret := a.PasswordFile != "" || a.Password != ""
	switch {
	case url == "" && *a != Access{}:
		return flags.Usagef("--redis-ca, --redis-user and so on say how to get into a Redis: they need --redis URL too")
	case (a.Cert == "") != (a.Key == ""):
		return flags.Usagef("--redis-cert and --redis-key need each other")
	case (a.CA != "" || a.Cert != "") && !strings.HasPrefix(url, "rediss://"):
		return flags.Usagef("--redis-ca, --redis-cert: there are no certificates without TLS, which is --redis rediss://…")
	case a.PasswordFile != "" && a.Password != "":
		return flags.Usagef("--redis-password-file, and a password in the environment: want one of them")
	case a.User != "" && !secret:
		return flags.Usagef("--redis-user needs a password: --redis-password-file, or one in the environment")
	case secret && strings.Contains(url, "@"):
		return flags.Usagef("--redis has a user or a password in it, and there is another one beside it: want one of them")
	}
	return nil
}

// Open reads the files and returns the store that o describes. Its connections go by the newest of
// the files whenever they are made.
func (a *Access) Open(files *tlsfiles.Files, o redisstore.Options) (*redisstore.Store, error) {
	config, err := files.Client("redis", tlsfiles.Paths{Authorities: a.CA, Cert: a.Cert, Key: a.Key})
	if err != nil {
		return nil, fmt.Errorf("--redis-ca, --redis-cert, --redis-key: %w", err)
	}
	if a.CA != "" || a.Cert != "" {
		o.NewTLS = config
	}
	password, err := files.Password("redis-password", a.PasswordFile, a.Password)
	if err != nil {
		return nil, fmt.Errorf("--redis-password-file: %w", err)
	}
	if a.PasswordFile != "" || a.Password != "" {
		o.Credentials = func() (string, string) { return a.User, password() }
	}
	return redisstore.Open(o)
}

// OpenOnce is Open for a command that is over before a file changes.
func (a *Access) OpenOnce(o redisstore.Options) (*redisstore.Store, error) {
	return a.Open(tlsfiles.New(slog.New(slog.DiscardHandler)), o)
}

// URL takes what the store takes, which does not connect to find out. Its errors show no password.
func URL(text string) (string, error) {
	store, err := redisstore.Open(redisstore.Options{URL: text})
	if err != nil {
		return "", err
	}
	return text, store.Close()
}

// Silence takes what go-redis would log for each attempt to connect. The same errors come back from
// its calls, whose caller reports them once.
type Silence struct{}

// Printf does nothing.
func (Silence) Printf(context.Context, string, ...any) {}
