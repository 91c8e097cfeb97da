package cmd_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/servers"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
)

const operatorToken = "a-token-that-nobody-guesses"

// watchedFleet is two checkers and two aggregators, with a console each.
type watchedFleet struct {
	t                     *testing.T
	nats                  *servers.NATS
	command               daemontest.Command
	start                 func() *daemontest.Daemon // of another checker
	checkers, aggregators []*daemontest.Daemon
}

func startWatchedFleet(t *testing.T, rules string) *watchedFleet {
	t.Helper()
	file, tokens := filepath.Join(t.TempDir(), "rules.yaml"), filepath.Join(t.TempDir(), "tokens")
	for path, text := range map[string]string{file: rules, tokens: "# who may\nkristie:" + operatorToken + "\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	redis := serverstest.Redis(t)
	f := &watchedFleet{t: t, nats: serverstest.JetStream(t)}
	aggregator, checker := build(t, "aggregator"), build(t, "checker")
	f.command = process(aggregator, os.Kill)
	for range 2 {
		f.aggregators = append(f.aggregators, daemontest.Start(t, process(aggregator, syscall.SIGTERM),
			"--nats", f.nats.URL(), "--redis", redis.URL(), "--admin", "127.0.0.1:0", "--console-token-file", tokens))
	}
	f.start = func() *daemontest.Daemon {
		t.Helper()
		d := daemontest.Start(t, process(checker, syscall.SIGTERM),
			"--rules", file, "--nats", f.nats.URL(), "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--grpc", "127.0.0.1:0")
		d.Await("it has heard of the fleet", func() bool { return d.Metric(`offpath_freshness{state="fresh"}`) == "1" })
		return d
	}
	for range 2 {
		f.checkers = append(f.checkers, f.start())
	}
	return f
}

// run runs a command that should work, and reads its JSON.
func (f *watchedFleet) run(value any, args ...string) {
	f.t.Helper()
	status, stdout, stderr := daemontest.Run(f.t, f.command, nil, append(args, "--nats", f.nats.URL(), "--json")...)
	if status != 0 {
		f.t.Fatalf("%q: status %d\n%s", args, status, stderr)
	}
	if err := json.Unmarshal([]byte(stdout), value); err != nil {
		f.t.Fatalf("%q: %v\n%s", args, err, stdout)
	}
}

// post asks a console to change something.
func post(t *testing.T, d *daemontest.Daemon, path, token, body string) (status int, answer string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), "POST", d.Admin()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// decisions are those of a rule in a checker's /metrics.
var decisionLine = regexp.MustCompile(`(?m)^offpath_decisions_total\{outcome="(allowed|denied)",rule="([^"]+)"\} (\S+)$`)

func (f *watchedFleet) metrics() map[string]int64 {
	f.t.Helper()
	sums := make(map[string]int64)
	for _, d := range f.checkers {
		_, text := d.Get("/metrics")
		for _, m := range decisionLine.FindAllStringSubmatch(text, -1) {
			n, err := strconv.ParseFloat(m[3], 64)
			if err != nil {
				f.t.Fatal(err)
			}
			if n > 0 {
				sums[m[2]+" "+m[1]] += int64(n)
			}
		}
	}
	return sums
}

type topOutput struct {
	Heard struct {
		Checkers, Aggregators int
		Allowed, Denied       int64
	}
	Rules []struct {
		Rule            string
		Allowed, Denied int64
	}
	Used, Denied []struct {
		Rule, Key string
		Rate      float64
	}
}

func (o topOutput) sums() map[string]int64 {
	sums := make(map[string]int64)
	for _, r := range o.Rules {
		for outcome, n := range map[string]int64{"allowed": r.Allowed, "denied": r.Denied} {
			if n > 0 {
				sums[r.Rule+" "+outcome] = n
			}
		}
	}
	return sums
}

// until tries again and again until there is nothing wrong.
func until(t *testing.T, what string, wrong func() string) {
	t.Helper()
	last := ""
	for end := time.Now().Add(daemontest.Patience); ; time.Sleep(50 * time.Millisecond) {
		if last = wrong(); last == "" {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: %s", what, last)
		}
	}
}

// TestConsoleNumbers holds what "top" and the console of either aggregator say against the checkers' /metrics.
func TestConsoleNumbers(t *testing.T) {
	f := startWatchedFleet(t, "rules:\n  - name: small\n    key: [user]\n    limit: 7/day\n  - name: large\n    key: [api]\n    limit: 1000/day\n")
	for i := range 60 {
		body := fmt.Sprintf(`{"attributes":{"user":"user%d","api":"<script>alert(1)</script>"}}`, i%4)
		daemontest.Do(t, "POST", doorOf(f.checkers[i%2]), body)
	}
	until(t, "top", func() string {
		var got topOutput
		f.run(&got, "top")
		want := f.metrics()
		if want["small denied"] == 0 || want["small allowed"] == 0 {
			return fmt.Sprintf("nothing to compare: %v", want)
		}
		if fmt.Sprint(got.sums()) != fmt.Sprint(want) || got.Heard.Checkers != 2 || got.Heard.Aggregators != 2 {
			return fmt.Sprintf("%+v, want %v", got, want)
		}
		if len(got.Used) == 0 || len(got.Denied) != 4 || got.Denied[0].Rule != "small" || got.Denied[0].Rate <= 0 {
			return fmt.Sprintf("top keys: %+v and %+v", got.Used, got.Denied)
		}
		return ""
	})
	for _, d := range f.aggregators {
		until(t, "a console", func() string {
			var got topOutput
			_, body := d.Get("/api/view")
			if err := json.Unmarshal([]byte(body), &got); err != nil {
				t.Fatal(err)
			}
			if want := f.metrics(); fmt.Sprint(got.sums()) != fmt.Sprint(want) {
				return fmt.Sprintf("%v, want %v", got.sums(), want)
			}
			return ""
		})
	}

	// A checker that stops is left out, as its /metrics are.
	f.checkers[1].Stop()
	f.checkers = f.checkers[:1]
	until(t, "one has gone", func() string {
		var got topOutput
		f.run(&got, "top")
		if want := f.metrics(); fmt.Sprint(got.sums()) != fmt.Sprint(want) || got.Heard.Checkers != 1 {
			return fmt.Sprintf("%+v, want %v", got, want)
		}
		return ""
	})
	status, stdout, _ := daemontest.Run(t, f.command, nil, "fleet", "--nats", f.nats.URL())
	if status != 0 || strings.Count(stdout, "fresh") != 1 || !strings.Contains(stdout, "1 checkers and 2 aggregators heard") {
		t.Errorf("fleet: %d\n%s", status, stdout)
	}
	if status, stdout, _ := daemontest.Run(t, f.command, nil, "top", "--nats", f.nats.URL()); status != 0 || !strings.Contains(stdout, "small") {
		t.Errorf("top: %d\n%s", status, stdout)
	}
}

// denies says whether each of the checkers denies the user.
func (f *watchedFleet) denies(user string) (all, none bool) {
	denials := 0
	for _, d := range f.checkers {
		if !ask(f.t, d, user) {
			denials++
		}
	}
	return denials == len(f.checkers), denials == 0
}

// within does something that has to have an effect within a second. As the machine may be busy with something else, it has three tries.
func (f *watchedFleet) within(what string, do, undo func(), holds func() bool) {
	f.t.Helper()
	for try := 1; ; try++ {
		begin := time.Now()
		do()
		done := time.Now()
		until(f.t, what, func() string {
			if holds() {
				return ""
			}
			return "it never happened"
		})
		took := time.Since(done)
		f.t.Logf("%s: %v after it was done, which took %v", what, took.Round(time.Millisecond), done.Sub(begin).Round(time.Millisecond))
		if took <= time.Second {
			return
		}
		if try == 3 {
			f.t.Fatalf("%s: three times not within a second", what)
		}
		undo()
	}
}

// TestBlocksReachTheFleet blocks a key by command and at a console: every checker denies it within a second, also one that starts
// afterwards, and until the block ends; then resets another key's count. All of it is in the audit log.
func TestBlocksReachTheFleet(t *testing.T) {
	f := startWatchedFleet(t, "rules:\n  - name: per-user\n    key: [user]\n    limit: 10/day\n")
	const user = "<script>"
	body := func(more string) string { return fmt.Sprintf(`{"rule":"per-user","key":%q%s}`, user, more) }
	var ignored any
	ask(t, f.checkers[0], user)
	denied := func() bool { all, _ := f.denies(user); return all }
	allowed := func() bool { _, none := f.denies(user); return none }
	unblock := func() {
		f.run(&ignored, "unblock", user, "--rule", "per-user")
		until(t, "unblocked", func() string { return map[bool]string{false: "denied"}[allowed()] })
	}
	f.within("block by command", func() { f.run(&ignored, "block", user, "--rule", "per-user", "--for", "1h") }, unblock, denied)

	late := f.start() // as after a restart: the bucket knows
	if ask(t, late, user) {
		t.Error("a checker that has just started lets a blocked key pass")
	}
	var found []struct {
		Key   string
		Count float64
		Block *struct{ By string }
	}
	until(t, "the block is shown", func() string { // the aggregator that answers hears of it by itself
		found = nil
		f.run(&found, "get", user)
		if len(found) != 1 || found[0].Key != user || found[0].Block == nil || found[0].Block.By == "" {
			return fmt.Sprintf("%+v", found)
		}
		return ""
	})
	unblock()
	for _, args := range [][]string{{"unblock", user, "--rule", "per-user"}, {"block", user, "--rule", "per-usr"}} {
		if status, _, stderr := daemontest.Run(t, f.command, nil, append(args, "--nats", f.nats.URL())...); status != 1 ||
			!strings.Contains(stderr, "is not blocked") && !strings.Contains(stderr, "there is per-user") {
			t.Errorf("%q: %d %s", args, status, stderr)
		}
	}

	console := f.aggregators[1]
	f.within("block at the console", func() {
		if status, answer := post(t, console, "/api/block", operatorToken, body(`,"seconds":3600`)); status != 200 {
			t.Fatalf("%d %s", status, answer)
		}
	}, unblock, denied)
	if status, answer := post(t, console, "/api/unblock", operatorToken, body("")); status != 200 {
		t.Errorf("unblock: %d %s", status, answer)
	}
	until(t, "unblocked at the console", func() string { return map[bool]string{false: "denied"}[allowed()] })
	if status, answer := post(t, console, "/api/unblock", operatorToken, body("")); status != 404 {
		t.Errorf("unblock again: %d %s", status, answer)
	}
	if status, answer := post(t, console, "/api/block", operatorToken, body(`,"seconds":1`)); status != 200 {
		t.Errorf("a short block: %d %s", status, answer)
	}
	until(t, "a short block ends", func() string { return map[bool]string{false: "denied"}[allowed()] })

	resetWorks(t, f, console)
	auditHas(t, console, "block", "unblock", "reset")

	// An operator is not in need of an aggregator to keep somebody out.
	for _, d := range f.aggregators {
		d.Stop()
	}
	f.run(&ignored, "block", "late", "--rule", "per-user")
	until(t, "blocked without an aggregator", func() string {
		if all, _ := f.denies("late"); !all {
			return "allowed"
		}
		return ""
	})
	f.run(&ignored, "unblock", "late", "--rule", "per-user")
	if status, _, stderr := daemontest.Run(t, f.command, nil, "unblock", "late", "--rule", "per-user", "--nats", f.nats.URL()); status != 1 || !strings.Contains(stderr, "is not blocked") {
		t.Errorf("unblock again: %d %s", status, stderr)
	}
	if status, _, stderr := daemontest.Run(t, f.command, nil, "top", "--nats", f.nats.URL()); status != 1 || !strings.Contains(stderr, "no aggregator answers") {
		t.Errorf("top: %d %s", status, stderr)
	}
}

// resetWorks uses up a key's limit at one checker, and gives it back.
func resetWorks(t *testing.T, f *watchedFleet, console *daemontest.Daemon) {
	t.Helper()
	for i := range 40 {
		ask(t, f.checkers[i%2], "greedy")
	}
	if all, _ := f.denies("greedy"); !all {
		t.Fatal("the limit is not used up")
	}
	reset := func() (before float64) {
		var after struct{ Count float64 }
		if status, answer := post(t, console, "/api/reset", operatorToken, `{"rule":"per-user","key":"greedy"}`); status != 200 {
			t.Fatalf("%d %s", status, answer)
		} else if err := json.Unmarshal([]byte(answer), &after); err != nil {
			t.Fatal(err)
		}
		return after.Count
	}
	until(t, "the count is back", func() string {
		if n := reset(); n > 0 {
			return fmt.Sprintf("count %v after the reset", n)
		}
		if _, none := f.denies("greedy"); !none {
			return "denied"
		}
		return ""
	})
	var after struct{ Count float64 }
	f.run(&after, "reset", "greedy", "--rule", "per-user")
}

func auditHas(t *testing.T, console *daemontest.Daemon, wanted ...string) {
	t.Helper()
	for _, what := range wanted {
		until(t, "audit", func() string {
			_, view := console.Get("/api/view")
			var v struct {
				Audit []struct {
					What string
					Who  struct{ Name, From string }
				}
			}
			if err := json.Unmarshal([]byte(view), &v); err != nil {
				t.Fatal(err)
			}
			byToken, byCommand := false, false
			for _, r := range v.Audit {
				if r.What == what && r.Who.From != "" {
					byToken = byToken || r.Who.Name == "kristie"
					byCommand = byCommand || r.Who.Name != "kristie" && r.Who.Name != ""
				}
			}
			if !byToken || !byCommand {
				return fmt.Sprintf("no %s by both: %+v", what, v.Audit)
			}
			return ""
		})
	}
}

// TestConsoleNeedsToken: without a token nobody changes anything.
func TestConsoleNeedsToken(t *testing.T) {
	nats, redis := serverstest.JetStream(t), serverstest.Redis(t)
	start := func(env ...string) *daemontest.Daemon {
		run := process(build(t, "aggregator"), syscall.SIGTERM)
		for _, e := range env {
			name, value, _ := strings.Cut(e, "=")
			t.Setenv(name, value)
		}
		return daemontest.Start(t, run, "--nats", nats.URL(), "--redis", redis.URL(), "--admin", "127.0.0.1:0")
	}
	const block = `{"rule":"per-user","key":"k","seconds":60}`
	readOnly := start()
	if status, answer := post(t, readOnly, "/api/block", operatorToken, block); status != 403 || !strings.Contains(answer, "without a token") {
		t.Errorf("read-only: %d %s", status, answer)
	}
	guarded := start("OFFPATH_CONSOLE_TOKEN=" + operatorToken)
	for _, path := range []string{"/api/block", "/api/unblock", "/api/reset", "/api/token"} {
		for _, token := range []string{"", "wrong", operatorToken + "x", operatorToken[:16]} {
			if status, answer := post(t, guarded, path, token, block); status != 401 || strings.Contains(answer, operatorToken) {
				t.Errorf("%s with token %q: %d %s", path, token, status, answer)
			}
		}
	}
	if status, answer := post(t, guarded, "/api/token", operatorToken, "{}"); status != 200 || !strings.Contains(answer, "operator") {
		t.Errorf("the token: %d %s", status, answer)
	}
	if _, view := guarded.Get("/api/view"); !strings.Contains(view, `"blocks":[]`) {
		t.Errorf("something was blocked: %s", view)
	}
	if strings.Contains(guarded.Stdout()+guarded.Stderr(), operatorToken) {
		t.Error("the token is in what it printed")
	}
	stopsWithAPageOpen(t, guarded)
}

// stopsWithAPageOpen stops an aggregator whose console somebody looks at: the page is told at once, and not cut off.
func stopsWithAPageOpen(t *testing.T, d *daemontest.Daemon) {
	t.Helper()
	page, err := http.Get(d.Admin() + "/api/stream")
	if err != nil {
		t.Fatal(err)
	}
	defer page.Body.Close()
	if _, err := io.ReadFull(page.Body, make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	if status := d.Stop(); status != 0 || strings.Contains(d.Stderr(), "cut off") {
		t.Errorf("status %d\n%s", status, d.Stderr())
	}
	if _, err := io.Copy(io.Discard, page.Body); err != nil {
		t.Errorf("the page was cut off: %v", err)
	}
}
