package lint

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
)

// secrets are what secrets.sh makes up.
func secrets(t *testing.T) []string {
	t.Helper()
	dir, err := commands()
	must(t, err)
	c := exec.CommandContext(t.Context(), "sh", "../secrets.sh")
	c.Env = append(os.Environ(), "OFFPATH="+filepath.Join(dir, "offpath"))
	out, err := c.Output()
	must(t, err)
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	values := map[string]bool{}
	for _, line := range lines {
		if !regexp.MustCompile(`^[A-Z0-9_]+=(p[0-9a-f]{32}|SA[A-Z2-7]{56}|A[A-Z2-7]{55})$`).MatchString(line) {
			t.Errorf("%q", line)
		}
		_, value, _ := strings.Cut(line, "=")
		values[value] = true
	}
	if len(values) != len(lines) {
		t.Error("two are alike")
	}
	return lines
}

// project is compose.yaml with new secrets.
func project(t *testing.T) *types.Project {
	t.Helper()
	p, err := load(t, secrets(t))
	must(t, err)
	return p
}

func load(t *testing.T, env []string) (*types.Project, error) {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{"../compose.yaml"}, cli.WithEnv(env), cli.WithDefaultProfiles())
	must(t, err)
	return options.LoadProject(t.Context())
}

// TestCompose loads compose.yaml as "docker compose config" does.
func TestCompose(t *testing.T) {
	env := secrets(t)
	project, err := load(t, env)
	must(t, err)
	want := "aggregator-1 aggregator-2 checker-1 checker-2 grafana nats prometheus redis rules"
	if got := strings.Join(project.ServiceNames(), " "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	checkKeys(t, project)
	for name, s := range project.Services {
		if !regexp.MustCompile(`^[\w./-]+:(v?\d+\.\d+\.\d+(-alpine)?(@sha256:[0-9a-f]{64})?|dev)$`).MatchString(s.Image) {
			t.Errorf("%s: image %s has no version", name, s.Image)
		}
		for _, p := range s.Ports {
			if p.HostIP != "127.0.0.1" {
				t.Errorf("%s: port %s is open to the world", name, p.Published)
			}
		}
		for _, v := range s.Volumes {
			if _, err := os.Stat(v.Source); v.Type == types.VolumeTypeBind && err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if s.Restart != "unless-stopped" && name != "rules" || len(s.CapDrop) != 1 || len(s.SecurityOpt) != 1 {
			t.Errorf("%s does not come back, or may do too much", name)
		}
		if strings.HasPrefix(s.Image, "offpath:") {
			if s.User != "" || !s.ReadOnly || !slices.Equal(s.CapDrop, []string{"ALL"}) {
				t.Errorf("%s may do too much", name)
			}
			parses(t, s.Command[0], s.Command[1:], environment(s))
		}
	}
	// Each of them is needed, and there is a message that says whence it comes.
	for i, line := range env {
		name, _, _ := strings.Cut(line, "=")
		without := slices.Delete(slices.Clone(env), i, i+1)
		if _, err := load(t, without); err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "secrets.sh") {
			t.Errorf("without %s: %v", name, err)
		}
	}
}

// checkKeys sees that each key is where it is needed and nowhere else, and that everybody knows
// what to trust.
func checkKeys(t *testing.T, project *types.Project) {
	t.Helper()
	for name, s := range project.Services {
		var got []string
		for _, variable := range []string{"RULES_SIGNING_KEY", "ENTRIES_SIGNING_KEY", "RULES_PUBLIC_KEYS", "ENTRIES_PUBLIC_KEYS", "RECEIPT_KEY"} {
			if s.Environment["OFFPATH_"+variable] != nil {
				got = append(got, variable)
			}
		}
		part, _, _ := strings.Cut(name, "-")
		want := map[string]string{
			"rules": "RULES_SIGNING_KEY RULES_PUBLIC_KEYS", "aggregator": "ENTRIES_SIGNING_KEY RULES_PUBLIC_KEYS ENTRIES_PUBLIC_KEYS",
			"checker": "RULES_PUBLIC_KEYS ENTRIES_PUBLIC_KEYS RECEIPT_KEY",
		}[part]
		if strings.Join(got, " ") != want {
			t.Errorf("%s has %q, want %q", name, got, want)
		}
	}
}

func environment(s types.ServiceConfig) map[string]string {
	env := map[string]string{}
	for name, value := range s.Environment {
		env[name] = *value
	}
	return env
}

// TestImagesAreMended: none is older than the patch that mends what is known of it.
func TestImagesAreMended(t *testing.T) {
	least := map[string][]int{
		"redis":           {7, 4, 10}, // CVE-2025-49844 in Lua, which aggregators' user may run, was mended in 7.4.6, and more since
		"grafana/grafana": {13, 2, 2}, // CVE-2026-15815 and others
		"golang":          {1, 26, 11},
	}
	images := regexp.MustCompile(`(?:image:|FROM .*) ([\w/]+):v?(\d+)\.(\d+)\.(\d+)`)
	for _, image := range images.FindAllStringSubmatch(file(t, "../compose.yaml")+file(t, "../Dockerfile"), -1) {
		version := make([]int, 3)
		for i := range version {
			n, err := strconv.Atoi(image[2+i])
			must(t, err)
			version[i] = n
		}
		if want := least[image[1]]; slices.Compare(version, want) < 0 {
			t.Errorf("%s %v: want %v", image[1], version, want)
		}
		delete(least, image[1])
	}
	if len(least) > 0 {
		t.Errorf("not found: %v", least)
	}
}

// TestTheServerThatIsTested is the one that is deployed.
func TestTheServerThatIsTested(t *testing.T) {
	for _, tt := range []struct{ mod, version, deployed, as string }{
		// Prometheus 3.15.0 is v0.315.0 as a module.
		{"go.mod", `prometheus/prometheus v0\.3(\d\d\.\d+)`, "../compose.yaml", "image: prom/prometheus:v3.%s\n"},
		{"../../go.mod", `nats-server/v2 v(\S+)`, "../compose.yaml", "image: nats:%s-alpine\n"},
		{"../../go.mod", `\ngo (\d+\.\d+)`, "../Dockerfile", "golang:%s."},
	} {
		found := regexp.MustCompile(tt.version).FindStringSubmatch(file(t, tt.mod))
		if found == nil || !strings.Contains(file(t, tt.deployed), fmt.Sprintf(tt.as, found[1])) {
			t.Errorf("%s has %q, %s not %q", tt.mod, found, tt.deployed, tt.as)
		}
	}
}

// TestPrometheusScrapesThemAll: its targets are the services with an admin port, and no others.
func TestPrometheusScrapesThemAll(t *testing.T) {
	config := file(t, "../prometheus/prometheus.yml")
	n := 0
	for name, s := range project(t).Services {
		if at := regexp.MustCompile(`--admin 0\.0\.0\.0(:\d+)`).FindStringSubmatch(strings.Join(s.Command, " ")); at != nil {
			n++
			if !strings.Contains(config, `"`+name+at[1]+`"`) {
				t.Errorf("%s%s is not scraped", name, at[1])
			}
		}
	}
	if targets := len(regexp.MustCompile(`"[\w-]+:\d+"`).FindAllString(config, -1)); targets != n || n != 4 {
		t.Errorf("%d targets, %d services", targets, n)
	}
}

func file(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.FromSlash(path))
	must(t, err)
	return string(text)
}
