package checker

import (
	"fmt"
	"net/http/httptest"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/offpath-io/offpath/cmd/checker/api"
	"github.com/offpath-io/offpath/deploy"
	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/rulestest"
	"github.com/offpath-io/offpath/internal/version"
)

// TestBanner says where everything is, and what to do next, but no secret.
func TestBanner(t *testing.T) {
	many := "rules:\n"
	for i := range mostShown + 2 {
		many += fmt.Sprintf("  - {name: rule-%d, key: [user], limit: 1/day}\n", i)
	}
	for _, tt := range []struct {
		what        string
		config      config
		proxy       string
		rules       string
		says, never []string
	}{
		{"the demo", config{namespace: "offpath"}, "", string(deploy.Rules), []string{
			"offpath devel: everything in one process\n",
			"HTTP API    http://127.0.0.1:8080/v1/check\n",
			"gRPC API    127.0.0.1:8081, Envoy's rate limit service v3, and its quota service\n",
			"admin       http://127.0.0.1:9090/metrics, /healthz, /readyz\n",
			"console     http://127.0.0.1:9090/\n",
			"(embedded; other checkers join with --nats)",
			"namespace   offpath\n",
			"Rules (the demo's, in bucket offpath-rules):\n",
			"offpath rules apply -f FILE --nats nats://xxxxx@127.0.0.1:4222\n",
			"per-user         15 per second, by user\n",
			"create-per-user  100 per hour in 60 buckets, by user and api, if api is \"createURL\"\n",
			`curl -s -w '%{http_code}\n' -d '{"attributes":{"user":"kristie"}}' 'http://127.0.0.1:8080/v1/check?[1-20]'`,
		}, nil},
		{"a participant in a fleet", config{namespace: "prod", nats: "nats://me:geheim@127.0.0.1:4222", rulesFrom: "my.yaml"}, "", daily(15),
			[]string{"joins a fleet\n", "NATS        nats://xxxxx@127.0.0.1:4222\n", "Rules (my.yaml):\n", "prod"},
			[]string{"geheim", "embedded", "rules apply"}},
		{"a proxy", config{upstream: "http://127.0.0.1:3000"}, "http://127.0.0.1:8088", "",
			[]string{"\n  proxy       http://127.0.0.1:8088, for http://127.0.0.1:3000\n"}, nil},
		{"many rules", config{rulesFrom: "my.yaml"}, "", many,
			[]string{fmt.Sprintf("rule-%d ", mostShown-1), "  and 2 more\n"}, []string{fmt.Sprintf("rule-%d ", mostShown)}},
		{"no rules yet", config{namespace: "prod", nats: "nats://a", rulesFrom: "nats"}, "", "",
			[]string{"Rules (bucket prod-rules):\n  none yet;", " --namespace prod\n", "Ctrl-C stops it."}, []string{"Try it"}},
	} {
		var got strings.Builder
		b := banner{
			config: tt.config, version: version.Info{Version: "devel"}, proxy: tt.proxy,
			nats: "nats://me:geheim@127.0.0.1:4222", http: "http://127.0.0.1:8080", grpc: "127.0.0.1:8081", admin: "http://127.0.0.1:9090",
		}
		if tt.rules != "" {
			b.rules = rulestest.Parse(t, tt.rules)
		}
		must(t, printBanner(&got, b))
		for _, want := range tt.says {
			if !strings.Contains(got.String(), want) {
				t.Errorf("%s: it does not say %q:\n%s", tt.what, want, &got)
			}
		}
		for _, never := range tt.never {
			if strings.Contains(got.String(), never) {
				t.Errorf("%s: it says %q:\n%s", tt.what, never, &got)
			}
		}
	}
}

func TestSpan(t *testing.T) {
	for length, want := range map[time.Duration]string{
		time.Second: "second", time.Minute: "minute", time.Hour: "hour", 24 * time.Hour: "day", 168 * time.Hour: "week",
		time.Millisecond: "1ms", 250 * time.Millisecond: "250ms", 10 * time.Minute: "10m", 90 * time.Minute: "1h30m",
		36 * time.Hour: "1d12h", 169 * time.Hour: "1w1h",
	} {
		equal(t, length, span(length), want)
	}
}

// TestCommandToTry: the command that the banner prints is answered 200 first, and 429 last,
// whatever the rules. A shell reads it, as the user's does, and curl's part is played here.
func TestCommandToTry(t *testing.T) {
	for name, text := range map[string]string{
		"one rule":                daily(15),
		"a limit of one":          `rules: [{name: a, key: [ip], limit: 1/day}]`,
		"a high one":              `rules: [{name: a, key: [user], limit: 1000000000000000/day}]`,
		"29":                      `rules: [{name: a, key: [user], limit: 29/day}]`,
		"30":                      `rules: [{name: a, key: [user], limit: 30/day}]`,
		"a quote":                 `rules: [{name: a, match: {api: "it's $HOME \\ <b>"}, key: [user], limit: 3/day}]`,
		"a lower one applies too": `rules: [{name: a, key: [user], limit: 1000/day}, {name: b, key: [user], limit: 4/day}]`,
		"one that denies what is missing": `rules: [{name: a, key: [user], limit: 7/day},
			{name: b, key: [session], on_missing: deny, limit: 5/day}]`,
	} {
		adapters := adaptersFor(t, text)
		served := httptest.NewServer(adapters)
		var said strings.Builder
		must(t, printBanner(&said, banner{
			config: config{rulesFrom: "r"}, rules: adapters.serving.Load().checker.Rules(), http: served.URL,
		}))
		_, command, _ := strings.Cut(said.String(), "\n  curl ")
		command, _, _ = strings.Cut(command, "\n")
		out, err := exec.CommandContext(t.Context(), "sh", "-c", `printf '%s\n' `+command).Output()
		args := strings.Split(string(out), "\n")
		if err != nil || len(args) != 7 || strings.Join(args[:4], " ") != `-s -w %{http_code}\n -d` {
			t.Fatalf("%s: %q, %v", name, args, err)
		}
		url, times, _ := strings.Cut(strings.TrimSuffix(args[5], "]"), "?[1-")
		requests, err := strconv.Atoi(times)
		if err != nil || requests > 40 || url != served.URL+api.Path {
			t.Errorf("%s: %s, %v", name, args[5], err)
		}
		var answers strings.Builder
		for range requests {
			status, _ := daemontest.Do(t, "POST", url, args[4])
			fmt.Fprint(&answers, status, " ")
		}
		got := answers.String()
		if !strings.HasPrefix(got, "200 ") || !strings.HasSuffix(got, "429 ") || strings.Contains(got, "429 200") {
			t.Errorf("%s: %s\n%s", name, got, &said)
		}
		served.Close()
	}
}
