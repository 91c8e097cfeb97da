package lint

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestAlerts: Prometheus' own tool reads its configuration and the alerts, and runs their unit
// tests.
func TestAlerts(t *testing.T) {
	dir := t.TempDir()
	must(t, os.CopyFS(dir, os.DirFS("../prometheus")))
	promtool(t, "check", "config", filepath.Join(dir, "prometheus.yml"))
	promtool(t, "check", "rules", filepath.Join(dir, "alerts.yaml"))
	promtool(t, "test", "rules", filepath.Join(dir, "alerts_test.yaml"))
}

// TestDashboard: Grafana can read it as far as we can tell without one, and Prometheus understands
// what it asks. That there are such metrics is tested in package cmd.
func TestDashboard(t *testing.T) {
	var dashboard struct {
		Title, UID string
		Panels     []struct {
			ID                       int
			Type, Title, Description string
			GridPos                  struct{ X, Y, W, H int }
			Targets                  []struct{ RefID, Expr string }
		}
	}
	must(t, json.Unmarshal([]byte(file(t, "../grafana/dashboard.json")), &dashboard))
	type record struct {
		Record string `json:"record"`
		Expr   string `json:"expr"`
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
			expr := strings.NewReplacer("$__rate_interval", "1m", "$rule", ".*", "$fleet", "shop").Replace(target.Expr)
			records = append(records, record{fmt.Sprintf("panel_%d_%s", p.ID, target.RefID), expr})
		}
	}
	if dashboard.UID != "offpath" || len(records) < 20 {
		t.Errorf("dashboard %q with %d questions", dashboard.UID, len(records))
	}
	rules, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "panels", "rules": records}}})
	must(t, err)
	promtool(t, "check", "rules", write(t, "panels.yaml", string(rules)))
}

var promtoolPath = tool("promtool")

// promtool fails the test unless the tool finds nothing wrong.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	path, err := promtoolPath()
	must(t, err)
	if out, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %v: %v\n%s", args, err, out)
	}
}
