package cmd_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/deploytest"
	"github.com/offpath-io/offpath/internal/testing/servers"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
)

// proxyRules tell apart whose limit, and which path's.
const proxyRules = `
rules:
  - name: per-ip
    key: [ip]
    limit: 5/day
  - name: login
    match: {method: POST, path: /login}
    key: ["cookie:session"]
    limit: 1/day
    replaces: [per-ip]
  - name: search
    match: {path: /search}
    key: [ip]
    limit: 1/day
    status: 503
    replaces: [per-ip]
  - name: free
    match: {path: /free}
    key: [ip]
    unlimited: true
    replaces: [per-ip]
`

// proxies are those with configuration in deploy/proxies.
var proxies = []struct {
	program   string
	files     []string
	arguments string // DIR is a directory of the files' own, in which more may be written
	open      bool   // everything passes without a checker
	whole     bool   // the checker's own body of a denial is passed on
}{
	{"nginx", []string{"nginx.conf"}, "-c DIR/whole.conf -p DIR -e stderr", true, false},
	{"caddy", []string{"Caddyfile"}, "run --config DIR/Caddyfile --adapter caddyfile", false, true},
	{"haproxy", []string{"haproxy.cfg", "haproxy.lua"}, "-C DIR -f haproxy.cfg", true, true},
}

// wholeNginx is what a distribution has around /etc/nginx/conf.d.
const wholeNginx = `
daemon off;
master_process off;
worker_processes 1;
pid pid;
events {}
http {
    access_log off;
    client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
    include nginx.conf;
}
`

// TestProxies has each proxy, as it is configured in deploy/proxies, ask a checker about requests
// to a service.
func TestProxies(t *testing.T) {
	for _, p := range proxies {
		t.Run(p.program, func(t *testing.T) {
			d := daemontest.Start(t, process(binary(t, "checker"), syscall.SIGTERM),
				"--rules", writeFile(t, "rules.yaml", proxyRules), "--listen", anyPort, "--grpc", "none", "--admin", anyPort)
			s := startService(t)
			files := ship(t, p.files, strings.TrimSuffix(doorOf(d), "/v1/check"), s.URL)
			proxy := serverstest.Program(t, servers.ProgramOptions{Name: p.program, Prepare: func(port int) ([]string, error) {
				dir, err := files(port)
				return strings.Fields(strings.ReplaceAll(p.arguments, "DIR", dir)), err
			}})
			x := proxied{t, proxy, s}
			x.limitHolds()
			x.otherClients()
			x.otherRules()
			x.upgrades()
			x.bypasses()
			x.bodies(p.whole)
			d.Stop()
			x.without(p.open)
		})
	}
}

// patience is what is shipped of how long a proxy waits for a checker's answer, and what tests have
// in its place: some proxies let pass what takes longer, and a test is no place to find out how
// busy the machine is.
var patience = []string{
	"proxy_connect_timeout 250ms", "proxy_connect_timeout 60s", "proxy_read_timeout    1s", "proxy_read_timeout    60s", // nginx
	"dial_timeout 250ms", "dial_timeout 60s", "response_header_timeout 1s", "response_header_timeout 60s", // Caddy
	"local timeout = 1000", "local timeout = 60000", // HAProxy
}

// ship returns a function that writes the files with the addresses of this test in place of those
// that are shipped, each of which has to be there, and with more patience.
func ship(t *testing.T, names []string, checker, service string) func(port int) (dir string, err error) {
	t.Helper()
	dir, all := t.TempDir(), ""
	texts := map[string]string{"whole.conf": wholeNginx}
	for _, name := range names {
		texts[name] = deploytest.Read(t, "proxies/"+name)
		all += texts[name]
	}
	for _, address := range []string{"127.0.0.1:8080", "127.0.0.1:3000", ":8000"} {
		if !strings.Contains(all, address) {
			t.Fatalf("%v: no %s", names, address)
		}
	}
	patient := strings.NewReplacer(patience...)
	if patient.Replace(all) == all {
		t.Fatalf("%v: none of %q", names, patience)
	}
	return func(port int) (string, error) {
		addresses := strings.NewReplacer("127.0.0.1:8080", strings.TrimPrefix(checker, "http://"),
			"127.0.0.1:3000", strings.TrimPrefix(service, "http://"), ":8000", ":"+strconv.Itoa(port))
		for name, text := range texts {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(patient.Replace(addresses.Replace(text))), 0o600); err != nil {
				return "", err
			}
		}
		return dir, nil
	}
}
