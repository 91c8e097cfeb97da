package main

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/offpath-io/offpath/deploy"
	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/version"
	"github.com/offpath-io/offpath/pkg/rules"
)

func bannerOf(t *testing.T, c config, set *rules.Set) string {
	t.Helper()
	var b strings.Builder
	err := printBanner(&b, banner{
		config: c, rules: set, version: version.Info{Version: "devel"},
		nats: "nats://me:geheim@127.0.0.1:4222", door: "http://127.0.0.1:8080", grpc: "127.0.0.1:8081", admin: "http://127.0.0.1:9090",
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func parse(t *testing.T, text string) *rules.Set {
	t.Helper()
	set, err := rules.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func TestBannerOfTheDemo(t *testing.T) {
	got := bannerOf(t, config{namespace: "offpath"}, parse(t, string(deploy.Rules)))
	for _, want := range []string{
		"offpath checker devel: everything in one process\n",
		"HTTP door   http://127.0.0.1:8080/v1/check\n",
		"gRPC door   127.0.0.1:8081, Envoy's rate limit service v3, and its quota service\n",
		"admin       http://127.0.0.1:9090/metrics, /healthz, /readyz\n",
		"console     http://127.0.0.1:9090/\n",
		"(embedded; other checkers join with --nats)",
		"namespace   offpath\n",
		"Rules (the demo's, in bucket offpath-rules):\n",
		"aggregator rules apply -f FILE --nats nats://xxxxx@127.0.0.1:4222\n",
		"per-user         15 per second, by user\n",
		"create-per-user  100 per hour in 60 buckets, by user and api, if api is \"createURL\"\n",
		`curl -s -w '%{http_code}\n' -d '{"attributes":{"user":"kristie"}}' 'http://127.0.0.1:8080/v1/check?[1-20]'`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("does not say %q:\n%s", want, got)
		}
	}
}

func TestBannerOfAFleetMember(t *testing.T) {
	c := config{namespace: "prod", nats: "nats://me:geheim@127.0.0.1:4222", rulesFrom: "my.yaml"}
	got := bannerOf(t, c, parse(t, slowRules))
	for _, want := range []string{"joins a fleet\n", "NATS        nats://xxxxx@127.0.0.1:4222\n", "Rules (my.yaml):\n", "prod"} {
		if !strings.Contains(got, want) {
			t.Errorf("does not say %q:\n%s", want, got)
		}
	}
	for _, never := range []string{"geheim", "embedded", "rules apply"} {
		if strings.Contains(got, never) {
			t.Errorf("says %q:\n%s", never, got)
		}
	}
}

func TestBannerOfAProxy(t *testing.T) {
	var b strings.Builder
	c := config{upstream: "http://127.0.0.1:3000"}
	if err := printBanner(&b, banner{config: c, door: "http://127.0.0.1:8080", admin: "http://127.0.0.1:9090", proxy: "http://127.0.0.1:8088"}); err != nil {
		t.Fatal(err)
	}
	if want := "\n  proxy       http://127.0.0.1:8088, for http://127.0.0.1:3000\n"; !strings.Contains(b.String(), want) {
		t.Errorf("does not say %q:\n%s", want, b.String())
	}
}

func TestBannerOfManyRules(t *testing.T) {
	text := "rules:\n"
	for i := range mostShown + 2 {
		text += fmt.Sprintf("  - {name: rule-%d, key: [user], limit: 1/day}\n", i)
	}
	got := bannerOf(t, config{rulesFrom: "my.yaml"}, parse(t, text))
	if strings.Count(got, "1 per day") != mostShown || !strings.Contains(got, "  and 2 more\n") {
		t.Errorf("it shows not the first %d:\n%s", mostShown, got)
	}
}

func TestBannerWithoutRulesYet(t *testing.T) {
	got := bannerOf(t, config{namespace: "prod", nats: "nats://a", rulesFrom: "nats"}, nil)
	for _, want := range []string{"Rules (bucket prod-rules):\n  none yet;", " --namespace prod\n", "Ctrl-C stops it."} {
		if !strings.Contains(got, want) {
			t.Errorf("does not say %q:\n%s", want, got)
		}
	}
	if strings.Contains(got, "Try it") {
		t.Errorf("there is nothing to try:\n%s", got)
	}
}

func TestSpan(t *testing.T) {
	for length, want := range map[time.Duration]string{
		time.Second: "second", time.Minute: "minute", time.Hour: "hour", 24 * time.Hour: "day", 168 * time.Hour: "week",
		time.Millisecond: "1ms", 250 * time.Millisecond: "250ms", 10 * time.Minute: "10m", 90 * time.Minute: "1h30m",
		36 * time.Hour: "1d12h", 169 * time.Hour: "1w1h",
	} {
		if got := span(length); got != want {
			t.Errorf("span(%v) = %q, want %q", length, got, want)
		}
	}
}

// TestTheLineToTry runs the printed command in a shell: it must be answered 200 first, and 429 last,
// whatever the rules.
func TestTheLineToTry(t *testing.T) {
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Log("without curl, what is printed is only asked, not typed")
	}
	for name, text := range map[string]string{
		"one rule":                slowRules,
		"a limit of one":          `rules: [{name: a, key: [ip], limit: 1/day}]`,
		"a high one":              `rules: [{name: a, key: [user], limit: 1000000000000000/day}]`,
		"29":                      `rules: [{name: a, key: [user], limit: 29/day}]`,
		"30":                      `rules: [{name: a, key: [user], limit: 30/day}]`,
		"a quote":                 `rules: [{name: a, match: {api: "it's $HOME \\ <b>"}, key: [user], limit: 3/day}]`,
		"a lower one applies too": `rules: [{name: a, key: [user], limit: 1000/day}, {name: b, key: [user], limit: 4/day}]`,
		"one that denies what is missing": `rules: [{name: a, key: [user], limit: 7/day},
			{name: b, key: [session], on_missing: deny, limit: 5/day}]`,
	} {
		t.Run(name, func(t *testing.T) {
			d := start1(t, "--rules", writeFile(t, text))
			var answers []string
			if curl != "" {
				out, err := exec.CommandContext(t.Context(), "sh", "-c", d.Find(`(?m)^  (curl .*)$`)).Output()
				if err != nil {
					t.Fatalf("%v: %s", err, d.Stdout())
				}
				for line := range strings.Lines(string(out)) {
					if !strings.HasPrefix(line, "{") {
						answers = append(answers, strings.TrimSpace(line))
					}
				}
			} else {
				answers = askAsPrinted(t, d)
			}
			codes := strings.Join(answers, " ")
			if !strings.HasPrefix(codes, "200 ") || !strings.HasSuffix(codes, " 429") || strings.Contains(codes, "429 200") ||
				len(answers) > 40 {
				t.Errorf("%s\n%s", codes, d.Stdout())
			}
		})
	}
}

func askAsPrinted(t *testing.T, d *daemontest.Daemon) (answers []string) {
	t.Helper()
	body := d.Find(`-d '([^']*)'`)
	var requests int
	if _, err := fmt.Sscan(d.Find(`\?\[1-(\d+)\]`), &requests); err != nil {
		t.Fatal(err)
	}
	for range requests {
		status, _ := daemontest.Do(t, "POST", doorOf(d), body)
		answers = append(answers, fmt.Sprint(status))
	}
	return answers
}
