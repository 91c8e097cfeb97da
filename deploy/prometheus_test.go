package deploy_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// alert is what the tests look at of an alert.
type alert struct {
	Alert, Expr         string
	Labels, Annotations map[string]string
}

func readAlerts(t *testing.T) (all []alert) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("prometheus", "alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Groups []struct{ Rules []alert } }
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// TestAlerts has Prometheus' own tool check the alerts, and run their unit tests.
func TestAlerts(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Fatal("there is no promtool in PATH: scripts/need.sh promtool installs it")
	}
	for _, args := range [][]string{{"check", "rules", "alerts.yaml"}, {"test", "rules", "alerts_test.yaml"}} {
		command := exec.CommandContext(t.Context(), promtool, args...)
		command.Dir = "prometheus"
		if out, err := command.CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}

// TestAlertsAreTestedAndExplained: each alert has a unit test in which it fires and one in which it does not, and a section in
// docs/operations.md; and no section or test is of an alert that is gone.
func TestAlertsAreTestedAndExplained(t *testing.T) {
	tests, err := os.ReadFile(filepath.Join("prometheus", "alerts_test.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile(filepath.Join("..", "docs", "operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	known := make(map[string]bool)
	for _, a := range readAlerts(t) {
		known[a.Alert] = true
		var fires, quiet bool
		for test := range strings.SplitSeq(string(tests), "\n  - name: ") {
			if !strings.HasPrefix(test, "'"+a.Alert+":") {
				continue
			}
			none := strings.Contains(test, "exp_samples: []")
			fires, quiet = fires || !none, quiet || none
		}
		if !fires || !quiet {
			t.Errorf("%s: there is a test in which it fires: %v, in which it does not: %v", a.Alert, fires, quiet)
		}
		if !strings.Contains(string(doc), "\n### "+a.Alert+"\n") {
			t.Errorf("docs/operations.md has no section %s", a.Alert)
		}
		if want := "docs/operations.md#" + strings.ToLower(a.Alert); a.Annotations["runbook"] != want {
			t.Errorf("%s: its runbook is %q, want %q", a.Alert, a.Annotations["runbook"], want)
		}
		if s := a.Labels["severity"]; s != "page" && s != "ticket" {
			t.Errorf("%s: severity %q", a.Alert, s)
		}
	}
	for _, name := range regexp.MustCompile(`\bOffpath[A-Z]\w+`).FindAllString(string(doc)+string(tests), -1) {
		if !known[name] {
			t.Errorf("there is no alert %s", name)
		}
	}
}

// TestRatesLeaveOutRemovedRules: what a removed rule had counted at a checker comes to the label `removed` in one step, which is no traffic. (An
// aggregator, which tells what was counted and refused, has no such label.)
func TestRatesLeaveOutRemovedRules(t *testing.T) {
	var text strings.Builder
	for _, file := range []string{"prometheus/alerts.yaml", "grafana/dashboard.json"} {
		part, err := os.ReadFile(filepath.FromSlash(file))
		if err != nil {
			t.Fatal(err)
		}
		text.WriteString(strings.ReplaceAll(string(part), `\"`, `"`))
	}
	found := regexp.MustCompile(`(?:rate|increase)\(offpath_(?:decisions|false_denials|bad_costs|hits)_total[^[]*`).FindAllString(text.String(), -1)
	if len(found) < 10 {
		t.Errorf("only %q", found)
	}
	for _, rate := range found {
		aggregators := strings.Contains(rate, `outcome="counted"`) || strings.Contains(rate, `outcome="refused"`)
		if !aggregators && !strings.Contains(rate, `rule!="removed"`) {
			t.Errorf("with removed rules: %s", rate)
		}
	}
}

// TestDashboard: Grafana can read it as far as we can tell without one, and Prometheus understands what it asks. That there are such
// metrics is tested in package cmd.
func TestDashboard(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("grafana", "dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Title, UID string
		Panels     []struct {
			ID                       int
			Type, Title, Description string
			GridPos                  struct{ X, Y, W, H int }
			Targets                  []struct{ RefID, Expr string }
		}
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	type record struct {
		Record string `yaml:"record"`
		Expr   string `yaml:"expr"`
	}
	var records []record
	ids, taken := make(map[int]bool), make(map[[2]int]string)
	for _, p := range dashboard.Panels {
		if ids[p.ID] || p.Title == "" || p.Type != "row" && (p.Description == "" || len(p.Targets) == 0) {
			t.Errorf("panel %d %q: an id of its own, a title, a description and a question are wanted", p.ID, p.Title)
		}
		ids[p.ID] = true
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if at[0] >= 24 || taken[at] != "" {
					t.Fatalf("panel %q lies on %q, or beyond the edge", p.Title, taken[at])
				}
				taken[at] = p.Title
			}
		}
		for _, target := range p.Targets {
			expr := strings.NewReplacer("$__rate_interval", "1m", "$rule", ".*").Replace(target.Expr)
			records = append(records, record{fmt.Sprintf("panel_%d_%s", p.ID, target.RefID), expr})
		}
	}
	if dashboard.UID != "offpath" || len(records) < 20 {
		t.Errorf("dashboard %q with %d questions", dashboard.UID, len(records))
	}
	out, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "panels", "rules": records}}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "panels.yaml")
	if err := os.WriteFile(file, out, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "promtool", "check", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("promtool: %v\n%s", err, out)
	}
}
