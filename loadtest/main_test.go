package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/offpath-io/offpath/loadtest/httpload"
	"github.com/offpath-io/offpath/loadtest/result"
	"github.com/offpath-io/offpath/loadtest/scenario"
)

// screen is a stderr that can be looked at while it is written.
type screen struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// invoke runs the command.
func invoke(ctx context.Context, args ...string) (status int, stdout, stderr string) {
	var out bytes.Buffer
	var errs screen
	status = run(ctx, args, func(string) string { return "" }, &out, &errs)
	return status, out.String(), errs.String()
}

func TestUsage(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "none", "x.html")
	for _, test := range []struct {
		args   string
		reason string
	}{
		{"dance", `"dance": no such subcommand`},
		{"run dance", `scenario "dance": want a file, all, or one of steady, surge`},
		{"run ./dance.yaml", "no such file"},
		{"run --limit 0", "--limit"},
		{"run --load -1", "--load"},
		{"run --enforcement lax", "want async or strict"},
		{"run --acquire -1s", "--acquire"},
		{"sim --acquire 2m", "--acquire"},
		{"run --window 1500us", "scenario steady:"},
		{"run --window 10ms --buckets 3", "scenario steady:"},
		{"run --loss 0.5", "unknown flag --loss"},
		{"run --html " + missing, "there is no writing in the directory"},
		{"run --html -", "--html -: want a file"},
		{"run --html " + os.TempDir(), "is a directory"},
		{"run mixed --limit 5", "a flag does not apply"},
		{"run published-a --buckets 5", "a flag does not apply"},
		{"sim --seed 2 replay x", "sim replay FILE"},
		{"run --delay 2s", "--delay"},
		{"run --nats http://x", "--nats"},
		{"run --redis 127.0.0.1", "--redis: "},
		{"run --nats-ca c", "need --nats URL too"},
		{"run --redis embedded --redis-user u", "need --redis URL too"},
		{"replay --redis redis://a --redis-ca c accesslog/testdata/sample.log", "no certificates without TLS"},
		{"run --nats a --nats-user u", "need each other"},
		{"http --ca c --key k", "--cert and --key need each other"},
		{"sim --redis embedded", "unknown flag --redis"},
		{"sim --loss 2", "--loss"},
		{"sim --partition 3", `--partition: "3": want checkers@from+for`},
		{"sim --partition 0@1s+1s", "--partition"},
		{"sim --partition 1@1s+0s", "--partition"},
		{"sim --checkers 10001", "--checkers"},
		{"replay", "0 files: want one access log"},
		{"replay a b", "2 files"},
		{"replay " + missing, "none"},
		{"replay --route hop:1s x", "--route"},
		{"replay --ipv6-prefix 129 x", "--ipv6-prefix"},
		{"sim replay --ipv4-prefix 0 x", "--ipv4-prefix"},
		{"sim replay --route skew x", "--route"},
		{"http --rate 0", "--rate"},
		{"http --grpc 127.0.0.1:1 --descriptor user", `--descriptor: "user": want KEY=VALUE`},
		{"http --grpc 127.0.0.1:1 --descriptor =x", `--descriptor: "=x"`},
		{"http --grpc 127.0.0.1:1 --channels 0", "--channels"},
		{"scenarios x", `argument "x"`},
		{"peers x", `argument "x"`},
		{"--limit 0", "--limit"},
	} {
		status, stdout, stderr := invoke(t.Context(), strings.Fields(test.args)...)
		if status != 2 || stdout != "" || !strings.Contains(stderr, test.reason) || !strings.Contains(stderr, "lists the") {
			t.Errorf("%s: status %d, printed %q and %q; want 2 and …%s…", test.args, status, stdout, stderr, test.reason)
		}
	}
}

func TestHelp(t *testing.T) {
	for args, want := range map[string]string{
		"help": "sim [SCENARIO…|replay FILE]", "--help": "Usage: loadtest", "-h": "Usage: loadtest",
		"run --help": "OFFPATH_LOADTEST_LIMIT; default 1000", "sim --help": "--partition", "sim replay --help": "--max-gap",
		"replay --help": "--speed", "http --help": "--connections", "peers --help": "--bench", "shapes --help": "[FILE]", "scenarios --help": "built in", "scenarios": "published-b ",
	} {
		status, stdout, stderr := invoke(t.Context(), strings.Fields(args)...)
		if status != 0 || stderr != "" || !strings.Contains(stdout, want) {
			t.Errorf("%s: status %d, %q; printed %q, want …%s…", args, status, stderr, stdout, want)
		}
	}
}

// TestDefaults: run and sim share these flags, with these defaults.
func TestDefaults(t *testing.T) {
	for _, command := range []string{"run", "sim"} {
		_, help, _ := invoke(t.Context(), command, "--help")
		for name, value := range map[string]string{
			"CHECKERS": "8", "AGGREGATORS": "2", "LIMIT": "1000", "WINDOW": "1s", "LOAD": "5", "FLUSH": "50ms", "KEYS": "1",
			"DURATION": "20s", "SEED": "1", "DELAY": "0s", "JITTER": "0s",
		} {
			if want := "(OFFPATH_LOADTEST_" + name + "; default " + value + ")"; !strings.Contains(help, want) {
				t.Errorf("%s: --help does not say %s", command, want)
			}
		}
		if !strings.Contains(help, "--html FILE") || !strings.Contains(help, "--json FILE") {
			t.Errorf("%s: no --html or --json", command)
		}
	}
	steady, _ := scenario.Builtin("steady", scenario.Settings{}) // and what the help says is so
	if s := steady[0]; s.Checkers != 8 || s.Aggregators != 2 || s.Rules[0].Limit != 1000 || s.Load != 5 || s.Flush != 50*time.Millisecond || s.Duration != 20*time.Second {
		t.Errorf("steady is %+v", s)
	}
}

// TestReplayFits: live, a log is squeezed into a minute, with the window or without.
func TestReplayFits(t *testing.T) {
	log, err := readLog(sample, new(screen))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		fit        time.Duration
		realWindow bool
		scaled     bool
	}{{liveLength, false, true}, {liveLength, true, false}, {0, false, false}} {
		r := newReplay()
		r.realWindow, r.maxGap = test.realWindow, time.Hour
		list, err := r.scenarios(log, test.fit)
		if err != nil || len(list) != 2 {
			t.Fatalf("%d scenarios, error %v", len(list), err)
		}
		sc := list[0]
		if test.fit > 0 && (sc.Duration > time.Minute || sc.Speed < 2) || test.fit == 0 && sc.Speed != 1 {
			t.Errorf("%+v: %v at %v times the speed", test, sc.Duration, sc.Speed)
		}
		want := time.Minute
		if test.scaled {
			want = time.Duration(float64(time.Minute)/sc.Speed + 0.5)
		}
		if got := sc.Rules[0].Window.Length; got != want {
			t.Errorf("%+v: a window of %v at %v times the speed, want %v", test, got, sc.Speed, want)
		}
	}
}

// TestDaemonsSettingsAreNotOurs: what names a production fleet's NATS must not draw load on it.
func TestDaemonsSettingsAreNotOurs(t *testing.T) {
	var out bytes.Buffer
	var errs screen
	getenv := func(name string) string {
		return map[string]string{"OFFPATH_NATS": "nats://127.0.0.1:1", "OFFPATH_LOADTEST_LIMIT": "77"}[name]
	}
	status := run(t.Context(), []string{"run", "--html=", "--json=-", "--no-sweep", "--duration", "200ms", "--window", "100ms"}, getenv, &out, &errs)
	if f := read(t, out.Bytes()); status != 0 || f.Runs[0].Params.Limit != 77 {
		t.Errorf("status %d: %s", status, &errs)
	}
}

func read(t *testing.T, text []byte) (f result.File) {
	t.Helper()
	if err := json.Unmarshal(text, &f); err != nil || len(f.Runs) == 0 {
		t.Fatalf("%v in %q", err, text)
	}
	return f
}

// fields that everybody's scripts may rely on, in a run and in its parts.
var fields = map[string][]string{
	"": {
		"scenario", "params", "hits", "admitted", "denied", "oracle_admitted", "over_worst_window", "over_total",
		"wrong_allow_share", "false_denial_share", "decision_ns", "decisions_per_second", "refresh_lag_ms",
		"reports_per_1000_hits", "report_bytes_per_1000_hits", "store_commands_per_1000_hits", "conservation",
	},
	"decision_ns":    {"p50", "p90", "p99", "p999", "max"},
	"refresh_lag_ms": {"p50", "p99"},
	"conservation":   {"admitted", "stored"},
}

func holdsFields(t *testing.T, text []byte) {
	t.Helper()
	var f struct {
		Version, Machine any
		Runs             []map[string]any
	}
	if err := json.Unmarshal(text, &f); err != nil || f.Version == nil || f.Machine == nil || len(f.Runs) == 0 {
		t.Fatalf("%v in %s", err, text)
	}
	for _, r := range f.Runs {
		for part, names := range fields {
			holder := r
			if part != "" {
				holder, _ = r[part].(map[string]any)
			}
			for _, name := range names {
				if _, ok := holder[name]; !ok {
					t.Errorf("%v: there is no %s %s", r["scenario"], part, name)
				}
			}
		}
	}
}

// TestRun: the whole way, from the arguments to the table and both files.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	page, figures := filepath.Join(dir, "x.html"), filepath.Join(dir, "x.json")
	status, stdout, stderr := invoke(t.Context(), "hop", "steady")
	if status != 2 {
		t.Errorf("scenarios without run: status %d, %q, %q", status, stdout, stderr)
	}
	status, stdout, stderr = invoke(t.Context(), "run", "hop", "--duration", "1s", "steady", "--html", page, "--json", figures, "--seed", "4")
	if status != 0 || !strings.Contains(stderr, "hop: 8 checkers, 1s after 2s of warm-up") || !strings.Contains(stderr, page) {
		t.Fatalf("status %d, printed %q", status, stderr)
	}
	for _, want := range []string{"hop", "steady", "holds"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("the table does not say %q:\n%s", want, stdout)
		}
	}
	text, err := os.ReadFile(figures)
	if err != nil {
		t.Fatal(err)
	}
	holdsFields(t, text)
	f := read(t, text)
	if len(f.Runs) != 2 || f.Runs[1].Scenario != "steady" || f.Runs[1].Params.Seed != 4 || len(f.Runs[0].Sweep) != len(sweepFlushes) || f.Machine.Cores < 1 {
		t.Errorf("%d runs, the second is of %s: %+v", len(f.Runs), f.Runs[1].Scenario, f.Runs[1].Params)
	}
	html, err := os.ReadFile(page)
	if err != nil || !bytes.Contains(html, []byte("steady")) {
		t.Errorf("error %v, a page of %d bytes", err, len(html))
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestSimulationIsReproducible: two calls print the same, byte by byte.
func TestSimulationIsReproducible(t *testing.T) {
	args := []string{"sim", "steady", "published-b", "--duration", "2s", "--html=", "--json=-", "--loss", "0.02", "--delay", "1ms", "--skew", "50ms", "--partition", "1@500ms+500ms"}
	status, one, stderr := invoke(t.Context(), args...)
	if status != 0 {
		t.Fatalf("status %d: %s", status, stderr)
	}
	holdsFields(t, []byte(one))
	if _, two, _ := invoke(t.Context(), args...); one != two {
		t.Error("the same call prints other figures")
	}
	if _, other, _ := invoke(t.Context(), append(args, "--seed", "2")...); one == other {
		t.Error("another seed prints the same figures")
	}
}

const sample = "accesslog/testdata/sample.log"

// TestReplay: the same log simulated at its own speed and live at a higher one.
func TestReplay(t *testing.T) {
	status, stdout, stderr := invoke(t.Context(), "sim", "replay", sample, "--json=-", "--html=", "--no-sweep", "--checkers", "2", "--route", "hash")
	if status != 0 || !strings.Contains(stderr, "lines are no entries") {
		t.Fatalf("status %d: %s", status, stderr)
	}
	f := read(t, []byte(stdout))
	if len(f.Runs) != 2 || f.Runs[0].Params.Limit != 10 || f.Runs[1].Params.Limit != 30 || f.Runs[0].Params.WindowMS != 60_000 || f.Runs[0].Params.Speed != 1 {
		t.Fatalf("%d runs: %+v", len(f.Runs), f.Runs[0].Params)
	}
	hits := f.Runs[0].Hits
	for _, r := range f.Runs { // by address, so that one checker gets all of an address: nothing is lost by distribution
		if r.Hits != hits || hits < 10 || r.Admitted != r.OracleAdmitted || r.WrongAllowShareExact != 0 || r.FalseDenialShareExact != 0 {
			t.Errorf("%s: %d hits of %d, %d admitted, the oracle %d; %+v", r.Variant, r.Hits, hits, r.Admitted, r.OracleAdmitted, r.Accuracy)
		}
	}

	status, stdout, stderr = invoke(t.Context(), "replay", sample, "--json=-", "--html=", "--no-sweep", "--limit", "3", "--max-gap", "1s", "--speed", "100")
	if status != 0 {
		t.Fatalf("status %d: %s", status, stderr)
	}
	r := read(t, []byte(stdout)).Runs[0]
	if r.Hits != hits || r.Params.Limit != 3 || r.Params.WindowMS != 600 || r.Params.Speed != 100 || r.Mode != result.Live {
		t.Errorf("%d hits of %d; %+v", r.Hits, hits, r.Params)
	}
}

// TestFiles: a link stays one, a device is written into, a file is replaced whole.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	if err := errors.Join(os.WriteFile(file, []byte("old and long"), 0o600), os.Symlink(file, link)); err != nil {
		t.Fatal(err)
	}
	say := func(text string) func(io.Writer) error {
		return func(w io.Writer) error {
			_, err := io.WriteString(w, text)
			return err
		}
	}
	if err := errors.Join(checkFile(link), toFile(link, say("new"))); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "new" {
		t.Errorf("behind the link is %q, error %v", text, err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link has become %v, error %v", info.Mode(), err)
	}
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	read := make(chan string)
	go func() {
		text, _ := os.ReadFile(pipe)
		read <- string(text)
	}()
	if err := toFile(pipe, say("through")); err != nil || <-read != "through" {
		t.Errorf("error %v", err)
	}
	broken := errors.New("broken")
	if err := toFile(file, func(io.Writer) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
	if text, _ := os.ReadFile(file); string(text) != "new" {
		t.Errorf("a failed write leaves %q", text)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestScaled(t *testing.T) {
	for _, test := range []struct {
		length    time.Duration
		buckets   int
		speed     float64
		short     time.Duration
		realSpeed float64
	}{
		{time.Minute, 1, 1, time.Minute, 1},
		{time.Minute, 1, 100, 600 * time.Millisecond, 100},
		{time.Minute, 1, 397, 151 * time.Millisecond, 60_000.0 / 151},
		{time.Minute, 60, 397, 180 * time.Millisecond, 60_000.0 / 180},
		{time.Second, 1, 1e9, time.Millisecond, 1000},
	} {
		short, speed := scaled(test.length, test.buckets, test.speed)
		if short != test.short || speed != test.realSpeed {
			t.Errorf("%v in %d buckets at %v: %v at %v; want %v at %v", test.length, test.buckets, test.speed, short, speed, test.short, test.realSpeed)
		}
	}
}

func TestBrief(t *testing.T) {
	for d, want := range map[time.Duration]string{
		time.Minute: "1m", time.Hour: "1h", 90 * time.Second: "1m30s", time.Second: "1s", 61 * time.Minute: "1h1m", 150 * time.Millisecond: "150ms",
	} {
		if got := brief(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}

// TestHTTP: against something that answers as a checker does.
func TestHTTP(t *testing.T) {
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1)%2 == 0 {
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	defer server.Close()
	status, stdout, stderr := invoke(t.Context(), "http", "--url", server.URL+"/v1/check", "--rate", "500", "--duration", "400ms", "--warmup", "0s", "--json", "-")
	var r httpload.Result
	if err := json.Unmarshal([]byte(stdout), &r); err != nil || status != 0 {
		t.Fatalf("status %d, error %v: %s", status, err, stderr)
	}
	if r.Sent != 200 || r.OK200 == 0 || r.Limited429 == 0 || r.Latency.P9999 < r.Latency.P50 || r.Latency.P50 <= 0 {
		t.Errorf("got %+v", r)
	}
	failing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) > 210 {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	defer failing.Close()
	withPassword := strings.Replace(failing.URL, "http://", "http://me:geheim@", 1)
	status, stdout, stderr = invoke(t.Context(), "http", "--url", withPassword+"/v1/check", "--rate", "500", "--duration", "400ms", "--warmup", "0s")
	if status != 1 || !strings.Contains(stderr, "something else than a decision") || strings.Contains(stdout+stderr, "geheim") {
		t.Errorf("a server that fails: status %d, %q, %q", status, stdout, stderr)
	}
	server.Close()
	if status, _, stderr = invoke(t.Context(), "http", "--url", server.URL+"/v1/check"); status != 1 || !strings.Contains(stderr, "go run ./cmd/checker") {
		t.Errorf("nobody there: status %d, %q", status, stderr)
	}
}

// TestInterrupt: Ctrl-C in the middle of a run still prints what was measured, and begins nothing more.
func TestInterrupt(t *testing.T) {
	short := scenario.Settings{Window: new(100 * time.Millisecond), Duration: new(10 * time.Minute), Load: new(0.3)}
	var o settings
	live, simulated := (&liveServers{}).run(call{stderr: new(screen)}, &o), (&network{}).run(&o)
	for name, p := range map[string]plan{"live": live, "simulated": simulated} {
		ctx, cancel := context.WithCancel(t.Context())
		interrupted := plan{run: func(ctx context.Context, sc *scenario.Scenario, progress func(done, all time.Duration)) (result.Run, error) {
			return p.run(ctx, sc, func(done, all time.Duration) {
				progress(done, all)
				if done > sc.Warmup+300*time.Millisecond {
					cancel()
				}
			})
		}}
		var out bytes.Buffer
		var errs screen
		o := defaultSettings()
		o.json, o.noSweep = "-", true
		o.add(newFlags("run", ""))
		steady, _ := scenario.Builtin("steady", short)
		surge, _ := scenario.Builtin("surge", short)
		err := runList(ctx, call{nil, nil, &out, &errs}, &o, append(steady, surge...), interrupted)
		if status(err, "run", &errs) != 130 || !strings.Contains(errs.String(), "interrupted") {
			t.Errorf("%s: error %v", name, err)
		}
		f := read(t, out.Bytes())
		if r := f.Runs[0]; len(f.Runs) != 1 || r.Scenario != "steady" || !r.Interrupted || r.Hits == 0 || r.Hits != r.Admitted+r.Denied || !r.Conservation.Holds {
			t.Errorf("%s: %d runs, the first of %s: %d hits, interrupted %v, %+v", name, len(f.Runs), r.Scenario, r.Hits, r.Interrupted, r.Conservation)
		}
	}
}

// TestLostHits: if a hit is lost or counted twice the command says so and fails.
func TestLostHits(t *testing.T) {
	var out bytes.Buffer
	var errs screen
	o := defaultSettings()
	o.html, o.noSweep = "", true
	list, _ := scenario.Builtin("steady", scenario.Settings{})
	lossy := func(context.Context, *scenario.Scenario, func(done, all time.Duration)) (result.Run, error) {
		r := result.Run{Scenario: "steady", Conservation: result.Conservation{Admitted: 10, Charged: 10, Counted: 9}}
		r.Conservation.Check()
		return r, nil
	}
	o.add(newFlags("run", ""))
	err := runList(t.Context(), call{nil, nil, &out, &errs}, &o, list, plan{run: lossy})
	if status(err, "run", &errs) != 1 || !strings.Contains(errs.String(), "charged ≠") || strings.Contains(out.String(), "holds") && !strings.Contains(out.String(), "not") {
		t.Errorf("error %v, printed %q and %q", err, &out, &errs)
	}
}
