package browsertest

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"syscall"
	"testing"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
)

const fleetToken = "a-token-that-nobody-guesses"

// A fleet is two aggregators, with a console each, and two checkers, as their programs run.
type fleet struct {
	consoles, apis, metrics []string // URLs
}

func startFleet(t *testing.T, rules string) *fleet {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"rules.yaml": rules, "tokens": "kristie:" + fleetToken} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", dir+"/", "./cmd/aggregator", "./cmd/checker")
	build.Dir = filepath.Join("..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the programs: %v\n%s", err, out)
	}
	nats, redis := serverstest.JetStream(t), serverstest.Redis(t)
	f := &fleet{}
	for range 2 {
		p := startProgram(t, filepath.Join(dir, "aggregator"), "--nats", nats.URL(), "--redis", redis.URL(), "--admin", "127.0.0.1:0",
			"--console-token-file", filepath.Join(dir, "tokens"))
		f.consoles = append(f.consoles, p.find(`console +(http://[^/ ]+)/`))
	}
	for range 2 {
		p := startProgram(t, filepath.Join(dir, "checker"), "--nats", nats.URL(), "--rules", filepath.Join(dir, "rules.yaml"),
			"--admin", "127.0.0.1:0", "--listen", "127.0.0.1:0", "--grpc", "127.0.0.1:0")
		f.apis = append(f.apis, p.find(`HTTP API +(http://\S+)`))
		f.metrics = append(f.metrics, p.find(`admin +(http://\S+/metrics)`))
	}
	return f
}

// A program is at work until the test ends.
type program struct {
	t   *testing.T
	out daemontest.Buffer
}

func startProgram(t *testing.T, path string, args ...string) *program {
	t.Helper()
	p := &program{t: t}
	command := exec.Command(path, args...)
	command.Stdout, command.Stderr = &p.out, &p.out
	must(t, command.Start())
	t.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		if err := command.Wait(); err != nil {
			t.Errorf("%s: %v\n%s", filepath.Base(path), err, p.out.String())
		}
	})
	return p
}

// find waits until the program has printed what the pattern matches, and returns its first group.
func (p *program) find(pattern string) (group string) {
	p.t.Helper()
	daemontest.Until(p.t, "it prints "+pattern, func() string {
		found := regexp.MustCompile(pattern).FindStringSubmatch(p.out.String())
		if found == nil {
			return "\n" + p.out.String()
		}
		group = found[1]
		return ""
	})
	return group
}

// ask asks one API about a key, and returns whether it may pass.
func (f *fleet) ask(t *testing.T, api int, user string) bool {
	t.Helper()
	body, err := json.Marshal(map[string]any{"attributes": map[string]string{"user": user}})
	must(t, err)
	status, answer := daemontest.Do(t, http.MethodPost, f.apis[api], string(body))
	if status != 200 && status != 429 {
		t.Fatalf("status %d: %s", status, answer)
	}
	return status == 200
}

var decisionLine = regexp.MustCompile(`(?m)^offpath_decisions_total\{fleet="[^"]*",outcome="(allowed|denied)",rule="([^"]+)"\} (\S+)$`)

// decisions are the sums over all checkers of offpath_decisions_total, by rule: admitted and denied.
func (f *fleet) decisions(t *testing.T) map[string][2]int64 {
	t.Helper()
	sums := make(map[string][2]int64)
	for _, url := range f.metrics {
		status, text := daemontest.Do(t, http.MethodGet, url, "")
		if status != 200 {
			t.Fatalf("status %d: %s", status, text)
		}
		for _, m := range decisionLine.FindAllStringSubmatch(text, -1) {
			n, err := strconv.ParseFloat(m[3], 64)
			must(t, err)
			sum := sums[m[2]]
			sum[slices.Index([]string{"allowed", "denied"}, m[1])] += int64(n)
			sums[m[2]] = sum
		}
	}
	return sums
}
