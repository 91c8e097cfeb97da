// Package examples_test runs the examples as a reader would: as processes.
package examples_test

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/fleettest"
	"github.com/offpath-io/offpath/internal/testing/rulestest"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
)

var must = daemontest.Must

// long skips a test that is for make test-all, which first makes sure that there is node and
// python3.
func long(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("long: runs in make test-all")
	}
}

// start runs a program until the test is over, and returns the first submatch of what it prints.
func start(t *testing.T, env []string, says, program string, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), program, args...)
	command.Env = append(os.Environ(), env...)
	var out, errs daemontest.Buffer
	command.Stdout, command.Stderr = &out, &errs
	must(t, command.Start())
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	t.Cleanup(func() {
		_ = command.Process.Kill() // an error is that it has ended
		<-ended
		if t.Failed() {
			t.Logf("%s: %s%s", program, out.String(), errs.String())
		}
	})
	var found []string
	daemontest.Eventually(t, program+" says "+says, func() bool {
		found = regexp.MustCompile(says).FindStringSubmatch(out.String())
		return found != nil
	})
	return found[1]
}

// build compiles a command of this module, with a file of it replaced unless that is "".
func build(t *testing.T, pkg, file, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "command")
	args := []string{"build", "-o", path}
	if file != "" {
		absolute, err := filepath.Abs(file)
		must(t, err)
		overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{
			absolute: daemontest.File(t, "main.go", text),
		}})
		must(t, err)
		args = append(args, "-overlay", daemontest.File(t, "overlay.json", string(overlay)))
	}
	out, err := exec.Command("go", append(args, pkg)...).CombinedOutput()
	if err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return path
}

// status is that of a GET, 0 if there is no answer.
func status(t *testing.T, url, user string) (int, http.Header) {
	t.Helper()
	var headers []string
	if user != "" {
		headers = append(headers, "X-User: "+user)
	}
	response, _, err := daemontest.Fetch(t, http.DefaultClient, http.MethodGet, url, "", headers...)
	if err != nil {
		return 0, nil
	}
	return response.StatusCode, response.Header
}

// TestFleet: two processes of the program in README.md share its limit.
func TestFleet(t *testing.T) {
	long(t)
	// The last hits before a limit may be denied falsely, so the first one stays well below it.
	const limit, first = 100, 90
	f := fleettest.Start(t)
	source, err := os.ReadFile("fleet/main.go")
	must(t, err)
	var urls []string
	for range 2 {
		address, text := serverstest.Address(t), string(source)
		for from, to := range map[string]string{
			"nats://127.0.0.1:4222": f.URL(), `"127.0.0.1:8000"`: fmt.Sprintf("%q", address),
			"limit: 100/minute": fmt.Sprintf("limit: %d/day", limit), // which the test does not outlast
		} {
			if strings.Count(text, from) != 1 {
				t.Fatalf("fleet/main.go has not one %s", from)
			}
			text = strings.Replace(text, from, to, 1)
		}
		command := exec.CommandContext(t.Context(), build(t, "./fleet", "fleet/main.go", text))
		must(t, command.Start())
		t.Cleanup(func() {
			_ = command.Process.Kill()
			_ = command.Wait()
		})
		urls = append(urls, "http://"+address+"/")
	}
	daemontest.Eventually(t, "the first one serves", func() bool {
		code, _ := status(t, urls[0], "")
		return code == http.StatusOK
	})
	for range first - 1 {
		if code, _ := status(t, urls[0], ""); code != http.StatusOK {
			t.Fatalf("within the limit: %d", code)
		}
	}
	daemontest.Eventually(t, "its hits are counted", func() bool { return f.Counted(t, "per-ip") == first })
	passed := 0
	daemontest.Eventually(t, "the second one denies", func() bool {
		code, _ := status(t, urls[1], "")
		if code == http.StatusOK {
			passed++
		}
		return code == http.StatusTooManyRequests
	})
	if passed >= limit {
		t.Errorf("%d more have passed: the limit is not shared", passed)
	}
}

// services are those that ask a checker over HTTP.
var services = map[string][]string{
	"node":   {"node", "node/server.mjs"},
	"python": {"python3", "python/server.py"},
}

// proxied is a checker behind a proxy that counts connections, and that holds requests until it is
// let go.
type proxied struct {
	*httptest.Server
	opened atomic.Int64
	hold   atomic.Bool
	letGo  chan struct{}
}

func startProxied(t *testing.T, checker string) *proxied {
	t.Helper()
	target, err := url.Parse(checker)
	must(t, err)
	p, next := &proxied{letGo: make(chan struct{})}, httputil.NewSingleHostReverseProxy(target)
	next.ErrorLog = log.New(io.Discard, "", 0) // of clients that have not waited
	p.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.hold.Load() {
			<-p.letGo
		}
		next.ServeHTTP(w, r)
	}))
	p.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			p.opened.Add(1)
		}
	}
	p.Start()
	return p
}

// TestServices: what asks a checker over HTTP limits by address and by user, shares both with other
// services of the checker, keeps its connection, and lets requests pass without a checker.
func TestServices(t *testing.T) {
	long(t)
	rules := daemontest.File(t, "rules.yaml", `
rules:
  - {name: per-user, key: [user], limit: 2/day}
  - {name: per-ip, key: [ip], limit: 6/day}`)
	command := build(t, "../cmd/checker", "", "")
	for name, program := range services {
		t.Run(name, func(t *testing.T) {
			checker := start(t, nil, `HTTP API +(http://[^/\s]+)/`, command,
				"--rules", rules, "--listen", "127.0.0.1:0", "--grpc", "none", "--admin", "127.0.0.1:0")
			p := startProxied(t, checker)
			defer p.Close()
			serve := func(timeout int) (url string) {
				address := p.URL
				if name == "python" {
					address = p.Listener.Addr().String()
				}
				return start(t, []string{
					"CHECKER=" + address, "PORT=0", fmt.Sprintf("CHECKER_TIMEOUT_MS=%d", timeout),
				}, `(http://\S+)`, program[0], program[1])
			}
			// No machine stands still for so long, so each request is decided.
			patient, other := serve(60_000), serve(60_000)
			for i, step := range []struct {
				url, user string
				want      int
			}{
				{patient, "kristie", 200}, {other, "kristie", 200}, {patient, "kristie", 429}, {other, "kristie", 429},
				{patient, "leo", 200}, {patient, "leo", 200}, {patient, "leo", 429},
				{patient, "", 200}, {other, "", 200}, {patient, "", 429}, {other, "eve", 429},
			} {
				code, header := status(t, step.url, step.user)
				if code != step.want || (header.Get("Retry-After") != "") != (code == 429) {
					t.Errorf("request %d, of %q: %d with %q, want %d", i, step.user, code, header, step.want)
				}
			}
			if n := p.opened.Load(); n != 2 {
				t.Errorf("two services have opened %d connections", n)
			}

			p.CloseClientConnections() // as a checker does after 2 minutes without a request
			if name == "node" {        // it may learn of it only by the next request
				status(t, patient, "kristie")
			}
			if code, _ := status(t, patient, "kristie"); code != 429 {
				t.Errorf("after the connection was closed: %d", code)
			}
			hurried := serve(50)
			p.hold.Store(true)
			if code, _ := status(t, hurried, "kristie"); code != 200 {
				t.Errorf("while the checker hangs: %d", code)
			}
			close(p.letGo)
			p.hold.Store(false)
			p.Close()
			for _, url := range []string{patient, hurried} {
				if code, _ := status(t, url, "kristie"); code != 200 {
					t.Errorf("without a checker: %d", code)
				}
			}
		})
	}
}

// TestRulesOfServices: the file that the services name is a good one, and asks for what they have.
func TestRulesOfServices(t *testing.T) {
	text, err := os.ReadFile("per-ip-and-user.yaml")
	must(t, err)
	if asked := rulestest.Parse(t, string(text)).Attributes(); !slices.Equal(slices.Sorted(slices.Values(asked)), []string{"ip", "user"}) {
		t.Errorf("the rules ask for %q", asked)
	}
	for name, program := range services {
		text, err := os.ReadFile(program[1])
		must(t, err)
		if !strings.Contains(string(text), "--rules ../per-ip-and-user.yaml") {
			t.Errorf("%s does not name its rules", name)
		}
	}
}
