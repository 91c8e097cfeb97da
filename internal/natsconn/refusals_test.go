package natsconn

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/servers"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
	"github.com/offpath-io/offpath/internal/testing/tlsfilestest"
)

// TestWhoIsRefused: the log says why, also when there was no server at first.
func TestWhoIsRefused(t *testing.T) {
	ca, other := tlsfilestest.NewAuthority(t, "authority"), tlsfilestest.NewAuthority(t, "other")
	ours, theirs := ca.Dir("client"), other.Dir("client")
	secure := mutualTLS(ca)
	password := daemontest.File(t, "password", canary)
	users := func(o *server.Options) { o.Users = []*server.User{{Username: "a", Password: "b"}} }
	for _, test := range []struct {
		name   string
		server func(*server.Options)
		scheme string
		access Access
		want   string
	}{
		{"the system's authorities", secure, "tls", Access{Cert: ours.Cert, Key: ours.Key}, "certificate signed by unknown authority"},
		{"another authority", secure, "tls", Access{CA: theirs.CA, Cert: ours.Cert, Key: ours.Key}, "certificate signed by unknown authority"},
		{"another authority, with nats://", secure, "nats", Access{CA: theirs.CA}, "certificate signed by unknown authority"},
		{"no certificate", secure, "tls", Access{CA: ours.CA}, refusedTLS},
		{"another authority's certificate", secure, "tls", Access{CA: ours.CA, Cert: theirs.Cert, Key: theirs.Key}, refusedTLS},
		{"a server without TLS", func(*server.Options) {}, "nats", Access{CA: ours.CA}, "secure connection not available"},
		{"a wrong password", users, "nats", Access{User: "a", PasswordFile: password}, "authorization violation"},
		{"a wrong password of the environment", users, "nats", Access{User: "a", Password: canary}, "authorization violation"},
		{"nobody", users, "nats", Access{}, "authorization violation"},
	} {
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, late %v", test.name, late), func(t *testing.T) {
				nats := serverstest.NATSWith(t, servers.NATSOptions{Configure: test.server})
				if late {
					must(t, nats.Stop())
				}
				conn, _, log := test.access.opened(t, strings.Replace(nats.URL(), "nats", test.scheme, 1))
				if late {
					log.Await(t, "waiting for NATS", 1)
					must(t, nats.Restart())
				}
				log.Await(t, test.want, 1)
				if conn.IsConnected() || strings.Contains(log.String(), canary) {
					t.Errorf("connected, or the log tells a secret:\n%s", log)
				}
			})
		}
	}
}

// refusedTLS is what a client hears whose certificate is no good: an alert, if that comes before
// the server has gone.
const refusedTLS = "remote error: tls: |tls error: connection closed by remote after TLS handshake"

// TestBadAccessFiles: an error names the flag and the file, and not what is in it.
func TestBadAccessFiles(t *testing.T) {
	dir, ca := t.TempDir(), tlsfilestest.NewAuthority(t, "authority")
	f := ca.Dir("client")
	_, _, user := newKeys(t, nkeys.CreateUser)
	_, _, account := newKeys(t, nkeys.CreateAccount)
	file := func(name, content string) string { return daemontest.File(t, name, content) }
	text, empty := file("text", canary), file("empty", "")
	seedAlone, accounts := file("seed", string(user)), file("accounts", string(account))
	for name, test := range map[string]struct {
		access Access
		want   []string
	}{
		"authorities":            {Access{CA: text}, []string{"--nats-ca", text}},
		"certificate":            {Access{Cert: text, Key: f.Key}, []string{"--nats-cert", text}},
		"no creds":               {Access{Creds: dir + "/none"}, []string{"--nats-creds", dir + "/none", "no such file"}},
		"creds":                  {Access{Creds: text}, []string{"--nats-creds", text, "no credentials of a user"}},
		"empty creds":            {Access{Creds: empty}, []string{"--nats-creds", empty, "no credentials of a user"}},
		"a seed for creds":       {Access{Creds: seedAlone}, []string{"--nats-creds", seedAlone, "no credentials of a user"}},
		"a seed of an account":   {Access{NKey: accounts}, []string{"--nats-nkey", accounts, "no seed of a user's nkey"}},
		"a seed":                 {Access{NKey: text}, []string{"--nats-nkey", text, "no seed of a user's nkey"}},
		"an empty password":      {Access{User: "a", PasswordFile: empty}, []string{"--nats-password-file", empty, "empty"}},
		"a password's directory": {Access{User: "a", PasswordFile: dir}, []string{"--nats-password-file", dir}},
	} {
		_, err := test.access.Options(nil)
		if err == nil {
			t.Errorf("%s: taken", name)
			continue
		}
		for _, want := range test.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q does not say %q", name, err, want)
			}
		}
		for _, secret := range []string{canary, string(user), string(account)} {
			if strings.Contains(err.Error(), secret) {
				t.Errorf("%s: %q tells a secret", name, err)
			}
		}
	}
}

// TestCheck: settings that cannot be meant together.
func TestCheck(t *testing.T) {
	const url = "nats://a"
	for name, test := range map[string]struct {
		url    string
		access Access
		want   string // "" if all is well
	}{
		"nothing":                 {url, Access{}, ""},
		"no NATS":                 {"", Access{}, ""},
		"no NATS, but creds":      {"", Access{Creds: "c"}, "need --nats URL"},
		"a user in the URL":       {"nats://u:p@a", Access{CA: "ca"}, ""},
		"two ways":                {url, Access{Creds: "c", NKey: "n"}, "want one of them"},
		"a user there and here":   {"nats://u:p@a", Access{User: "u", PasswordFile: "p"}, "want one of them"},
		"TLS and creds":           {url, Access{CA: "ca", Cert: "c", Key: "k", Creds: "c"}, ""},
		"half a pair":             {url, Access{Cert: "c"}, "need each other"},
		"a user":                  {url, Access{User: "u", PasswordFile: "p"}, ""},
		"a user without password": {url, Access{User: "u"}, "need each other"},
		"two passwords":           {url, Access{User: "u", PasswordFile: "p", Password: "p"}, "want one of them"},
	} {
		err := test.access.Check(test.url)
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

func TestURL(t *testing.T) {
	for text, want := range map[string]string{
		"nats://a:4222": "nats://a:4222", "a": "nats://a", "a:1,tls://b": "nats://a:1,tls://b",
	} {
		if got, err := URL(text); got != want || err != nil {
			t.Errorf("URL(%q) = %q, %v; want %q", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"http://a": `unknown scheme "http"`, "nats://": "a URL without a host",
		"":     "a URL without a host",
		"a,,b": "a URL without a host", "nats://a:port": "not a URL",
		"nats://a:99999": "a URL whose port",
		"nats://a/path":  "a URL with a path", "nats://me:geheim@": "", "http://me:geheim@a": "",
		"nats://geheim@a/path": "", "a,nats://me:geheim@": "", "nats://me:geheim@a:99999": "",
		"nats://me:geheim@a:port": "", "nats://me:ge%zzheim@a": "",
	} {
		if _, err := URL(text); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "heim") {
			t.Errorf("URL(%q): error %v; want %q and no password", text, err, want)
		}
	}
}

func TestName(t *testing.T) {
	for text, ok := range map[string]bool{"prod-1": true, "a.b": false, "a*": false, "": false} {
		if _, err := Name(text); (err == nil) != ok {
			t.Errorf("Name(%q): error %v", text, err)
		}
	}
}
