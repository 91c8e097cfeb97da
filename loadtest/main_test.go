package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/offpath-io/offpath/internal/flags"
	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/loadtest/result"
	"github.com/offpath-io/offpath/loadtest/scenario"
)

func invoke(ctx context.Context, args ...string) (status int, stdout, stderr string) {
	return invokeIn(ctx, nil, args...)
}

// invokeIn runs the command in an environment.
func invokeIn(ctx context.Context, environment map[string]string, args ...string) (status int, stdout, stderr string) {
	var out bytes.Buffer
	var errs daemontest.Buffer
	status = run(ctx, args, func(name string) string { return environment[name] }, &out, &errs)
	return status, out.String(), errs.String()
}

func TestUsage(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "none", "x.html")
	for _, test := range []struct{ args, reason string }{
		{"dance",
			`argument "dance": want one of the commands completion, http, peers, replay, run, scenarios, shapes, sim, torture`},
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
		{"sim --seed 2 replay " + missing, "none"},
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
		{"torture --faults kill,dance", `--faults: "dance": want some of kill,stop`},
		{"torture --minutes 0", "--minutes"},
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
		"help": "\n  sim ", "--help": "Usage: loadtest", "-h": "Usage: loadtest",
		"run --help": "[OFFPATH_LOADTEST_LIMIT] (default 1000)", "sim --help": "--partition",
		"sim replay --help": "--max-gap", "replay --help": "--speed", "http --help": "--connections",
		"peers --help": "--bench", "torture --help": "--faults KINDS", "shapes --help": "[FILE]", "scenarios --help": "built in",
		"scenarios": "published-b ",
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
			words := strings.Join(strings.Fields(help), " ") // whatever the width
			if want := "[OFFPATH_LOADTEST_" + name + "] (default " + value + ")"; !strings.Contains(words, want) {
				t.Errorf("%s: --help does not say %s", command, want)
			}
		}
	}
	steady, _ := scenario.Builtin("steady", scenario.Settings{}) // and what the help says is so
	if s := steady[0]; s.Checkers != 8 || s.Aggregators != 2 || s.Rules[0].Limit != 1000 || s.Load != 5 || s.Flush != 50*time.Millisecond || s.Duration != 20*time.Second {
		t.Errorf("steady is %+v", s)
	}
}

// figures runs scenarios without sweeps and pages, and returns what is measured.
func figures(t *testing.T, args ...string) (f result.File, stderr string) {
	t.Helper()
	status, stdout, stderr := invoke(t.Context(), append(args, "--json=-", "--html=", "--no-sweep")...)
	if status != 0 {
		t.Fatalf("%q: status %d: %s", args, status, stderr)
	}
	return read(t, []byte(stdout)), stderr
}

func read(t *testing.T, text []byte) (f result.File) {
	t.Helper()
	if err := json.Unmarshal(text, &f); err != nil || len(f.Runs) == 0 {
		t.Fatalf("%v in %q", err, text)
	}
	return f
}

// quick are flags for 5,000 hits a second over some windows, by few checkers.
var quick = strings.Fields("--duration 300ms --window 100ms --checkers 2")

// TestRun: the whole way, from the arguments to the table and both files. What names a production
// fleet's NATS must not draw load on it.
func TestRun(t *testing.T) {
	if status, stdout, stderr := invoke(t.Context(), "hop", "steady"); status != 2 {
		t.Errorf("scenarios without run: status %d, %q, %q", status, stdout, stderr)
	}
	environment := map[string]string{"OFFPATH_NATS": "nats://127.0.0.1:1", "OFFPATH_LOADTEST_LIMIT": "100"}
	for _, command := range []string{"sim", "run"} {
		if testing.Short() && command == "run" {
			continue // which asks at full speed for a second each time; TestSecuredServers does so once
		}
		dir := t.TempDir()
		page, figures := filepath.Join(dir, "x.html"), filepath.Join(dir, "x.json")
		args := append([]string{command, "hop", "steady", "--html", page, "--json", figures, "--seed", "4"}, quick...)
		status, stdout, stderr := invokeIn(t.Context(), environment, args...)
		if status != 0 || !strings.Contains(stderr, "hop: 2 checkers, 300ms after 200ms of warm-up") || !strings.Contains(stderr, page) {
			t.Fatalf("status %d, printed %q", status, stderr)
		}
		if !strings.Contains(stdout, "hop") || !strings.Contains(stdout, "steady") || !strings.Contains(stdout, "holds") {
			t.Errorf("the table is:\n%s", stdout)
		}
		text, err := os.ReadFile(figures)
		must(t, err)
		f := read(t, text)
		if r := f.Runs[1]; len(f.Runs) != 2 || r.Scenario != "steady" || r.Params.Seed != 4 || r.Params.Limit != 100 ||
			len(f.Runs[0].Sweep) != len(sweepFlushes) || f.Machine.Cores < 1 {
			t.Errorf("%d runs, the second is of %s: %+v", len(f.Runs), r.Scenario, r.Params)
		}
		html, err := os.ReadFile(page)
		if err != nil || !bytes.Contains(html, []byte("steady")) {
			t.Errorf("error %v, a page of %d bytes", err, len(html))
		}
		if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	}
}

// TestFiles: a link stays one, a device is written into, a file is replaced whole.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	must(t, errors.Join(os.WriteFile(file, []byte("old and long"), 0o600), os.Symlink(file, link)))
	say := func(text string) func(io.Writer) error {
		return func(w io.Writer) error {
			_, err := io.WriteString(w, text)
			return err
		}
	}
	must(t, errors.Join(checkFile(link), toFile(link, say("new"))))
	if text, err := os.ReadFile(file); err != nil || string(text) != "new" {
		t.Errorf("behind the link is %q, error %v", text, err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link has become %v, error %v", info.Mode(), err)
	}
	pipe := filepath.Join(dir, "pipe")
	must(t, syscall.Mkfifo(pipe, 0o600))
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

// TestInterrupt: Ctrl-C in the middle of a run still prints what was measured, and begins nothing
// more.
func TestInterrupt(t *testing.T) {
	settings := scenario.Settings{Window: new(100 * time.Millisecond), Duration: new(time.Minute), Load: new(0.03), Checkers: new(2)}
	steady, _ := scenario.Builtin("steady", settings)
	surge, _ := scenario.Builtin("surge", settings)
	o := defaultSettings()
	live, simulated := (&liveServers{}).run(new(daemontest.Buffer), &o), (&network{}).run(&o)
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
		status, out, errs := list(ctx, interrupted, append(steady, surge...)...)
		if status != 130 || !strings.Contains(errs, "interrupted") {
			t.Errorf("%s: status %d, %s", name, status, errs)
		}
		f := read(t, []byte(out))
		r := f.Runs[0]
		if c := r.Conservation; !c.Holds || c.Admitted < r.Admitted || c.Admitted != c.Counted+c.Late || r.Hits != r.Admitted+r.Denied {
			t.Errorf("%s: %d hits, %d admitted, %d denied; %+v", name, r.Hits, r.Admitted, r.Denied, c)
		}
		if len(f.Runs) != 1 || r.Scenario != "steady" || !r.Interrupted || r.MeasuredSeconds <= 0 || r.MeasuredSeconds >= 60 || r.DecisionsPerSecond != nil {
			t.Errorf("%s: %d runs, the first %+v", name, len(f.Runs), r)
		}
	}
}

// list runs scenarios by a plan, without sweeps and pages, and returns the figures as JSON.
func list(
	ctx context.Context, p plan, scenarios ...scenario.Scenario,
) (status int, stdout, stderr string) {
	o := defaultSettings()
	cmd := &cobra.Command{Use: "run", RunE: func(cmd *cobra.Command, _ []string) error {
		o.json, o.html, o.noSweep = "-", "", true
		return runList(cmd, &o, scenarios, p)
	}}
	o.add(cmd)
	var out bytes.Buffer
	var errs daemontest.Buffer
	getenv := func(string) string { return "" }
	e := flags.Environment{Getenv: getenv, Stdout: &out, Stderr: &errs}
	status = e.Run(ctx, cmd, []string{})
	return status, out.String(), errs.String()
}

// TestLostHits: if a hit is lost or counted twice the command says so and fails.
func TestLostHits(t *testing.T) {
	steady, _ := scenario.Builtin("steady", scenario.Settings{})
	lossy := func(context.Context, *scenario.Scenario, func(done, all time.Duration)) (result.Run, error) {
		r := result.Run{Scenario: "steady", Conservation: result.Conservation{Admitted: 10, Charged: 10, Counted: 9}}
		r.Conservation.Check()
		return r, nil
	}
	status, out, errs := list(t.Context(), plan{run: lossy}, steady...)
	if status != 1 || !strings.Contains(errs, "charged ≠") || read(t, []byte(out)).Runs[0].Conservation.Holds {
		t.Errorf("status %d, printed %q and %q", status, out, errs)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
