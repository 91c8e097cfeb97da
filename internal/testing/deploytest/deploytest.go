// Package deploytest starts real servers with the configuration in deploy, for tests. Only ports,
// directories and secrets are the test's own.
package deploytest

import (
	"crypto/sha256"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/offpath-io/offpath/internal/testing/servers"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
)

// Read returns a file of deploy.
func Read(t testing.TB, name string) string {
	t.Helper()
	_, here, _, _ := runtime.Caller(0)
	text, err := os.ReadFile(filepath.Join(filepath.Dir(here), "..", "..", "..", "deploy", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// NATSServer is a nats-server that was started from nats.conf.
type NATSServer struct {
	server *server.Server
	users  map[string]string
	path   string // of the configuration
	port   int
	store  string
}

var passwords = regexp.MustCompile(`user: ([\w-]+), password: \$(\w+)`)

// NATS starts nats-server with nats.conf, in this process, until the test is over.
func NATS(t testing.TB) *NATSServer {
	t.Helper()
	n := &NATSServer{users: map[string]string{}, port: server.RANDOM_PORT, store: t.TempDir()}
	n.path = filepath.Join(t.TempDir(), "nats.conf")
	options := n.configure(t, Read(t, "nats.conf"))
	var err error
	if n.server, err = server.NewServer(options); err != nil {
		t.Fatal(err)
	}
	n.server.Start()
	t.Cleanup(func() { n.server.Shutdown(); n.server.WaitForShutdown() })
	if !n.server.ReadyForConnections(time.Minute) {
		t.Fatal("nats-server is not ready for connections")
	}
	n.port = n.server.Addr().(*net.TCPAddr).Port
	return n
}

// configure makes options of a text of nats.conf.
func (n *NATSServer) configure(t testing.TB, text string) *server.Options {
	t.Helper()
	for _, user := range passwords.FindAllStringSubmatch(text, -1) {
		n.users[user[1]] = "of-" + user[1]
		text = strings.Replace(text, "$"+user[2], n.users[user[1]], 1) // which nats-server takes from the environment
	}
	if err := os.WriteFile(n.path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	options, err := server.ProcessConfigFile(n.path)
	if err != nil {
		t.Fatal(err)
	}
	options.Host, options.Port, options.HTTPPort = "127.0.0.1", n.port, 0
	options.StoreDir, options.NoSigs, options.NoLog = n.store, true, true
	return options
}

// Reload does what "nats-server --signal reload" does when nats.conf has this text.
func (n *NATSServer) Reload(t testing.TB, text string) {
	t.Helper()
	if err := n.server.ReloadOptions(n.configure(t, text)); err != nil {
		t.Fatal(err)
	}
}

// URL is the server's for a user of nats.conf, "" for nobody.
func (n *NATSServer) URL(t testing.TB, user string) string {
	t.Helper()
	u := url.URL{Scheme: "nats", Host: strings.TrimPrefix(n.server.ClientURL(), "nats://")}
	if user != "" {
		password, ok := n.users[user]
		if !ok {
			t.Fatalf("nats.conf has no user %s", user)
		}
		u.User = url.UserPassword(user, password)
	}
	return u.String()
}

// StreamState is what of a stream tells that nothing has been written to it or taken out of it: it
// only appends, and numbers what it appends.
type StreamState struct {
	Messages, Last uint64
	Consumers      int
}

// Streams returns what JetStream holds, of all accounts, by the stream's name.
func (n *NATSServer) Streams(t testing.TB) map[string]StreamState {
	t.Helper()
	info, err := n.server.Jsz(&server.JSzOptions{Accounts: true, Streams: true})
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]StreamState)
	for _, account := range info.AccountDetails {
		for _, stream := range account.Streams {
			s := stream.State
			all[stream.Name] = StreamState{Messages: s.Msgs, Last: s.LastSeq, Consumers: s.Consumers}
		}
	}
	return all
}

// Redis starts redis-server with redis.conf and users.acl, until the test is over. Admin is the URL
// of a user who may do everything, and who is there for the test alone.
func Redis(t testing.TB) (url, admin string) {
	t.Helper()
	const password = "of-offpath"
	acl := strings.ReplaceAll(Read(t, "users.acl"), "REDIS_PASSWORD_SHA256", fmt.Sprintf("%x", sha256.Sum256([]byte(password))))
	acl += "user admin on >of-admin ~* &* +@all\n"
	config := Read(t, "redis.conf")
	p := serverstest.Program(t, servers.ProgramOptions{Name: "redis-server", Prepare: func(port int) ([]string, error) {
		dir := t.TempDir()
		for name, text := range map[string]string{"redis.conf": config, "users.acl": acl} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				return nil, err
			}
		}
		return []string{
			filepath.Join(dir, "redis.conf"), "--port", fmt.Sprint(port), "--bind", "127.0.0.1", "--dir", dir,
			"--aclfile", filepath.Join(dir, "users.acl"),
		}, nil
	}})
	at := strings.TrimPrefix(p.URL(), "http://")
	return "redis://offpath:" + password + "@" + at, "redis://admin:of-admin@" + at
}
