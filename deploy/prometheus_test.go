package deploy_test

import (
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/offpath-io/offpath/internal/testing/deploytest"
)

// TestAlertsAreTestedAndExplained: each alert has a unit test in which it fires and one in which it
// does not, and a section in docs/operations_alerts.md; and no section, test or page of operations
// is of an alert that is gone.
func TestAlertsAreTestedAndExplained(t *testing.T) {
	tests, doc := deploytest.Read(t, "prometheus/alerts_test.yaml"), deploytest.Read(t, "../docs/operations_alerts.md")
	type alert struct {
		Alert               string
		Labels, Annotations map[string]string
	}
	var file struct{ Groups []struct{ Rules []alert } }
	must(t, yaml.Unmarshal([]byte(deploytest.Read(t, "prometheus/alerts.yaml")), &file))
	var alerts []alert
	for _, g := range file.Groups {
		alerts = append(alerts, g.Rules...)
	}
	known := make(map[string]bool)
	for _, a := range alerts {
		known[a.Alert] = true
		var fires, quiet bool
		for test := range strings.SplitSeq(tests, "\n  - name: ") {
			if !strings.HasPrefix(test, "'"+a.Alert+":") {
				continue
			}
			none := strings.Contains(test, "exp_samples: []")
			fires, quiet = fires || !none, quiet || none
		}
		if !fires || !quiet {
			t.Errorf("%s: there is a test in which it fires: %v, in which it does not: %v", a.Alert, fires, quiet)
		}
		if !strings.Contains(doc, "\n## "+a.Alert+"\n") {
			t.Errorf("docs/operations_alerts.md has no section %s", a.Alert)
		}
		// The section is where a browser looks for it: GitHub makes anchors of headings in lower
		// case.
		want := "https://github.com/offpath-io/offpath/blob/main/docs/operations_alerts.md#" + strings.ToLower(a.Alert)
		if got := a.Annotations["runbook_url"]; got != want {
			t.Errorf("%s: its runbook is %q, want %q", a.Alert, got, want)
		}
		if s := a.Labels["severity"]; s != "page" && s != "ticket" {
			t.Errorf("%s: severity %q", a.Alert, s)
		}
	}
	mentions := doc + tests + deploytest.Read(t, "../docs/operations_metrics.md") + deploytest.Read(t, "../docs/operations_drills.md")
	for _, name := range regexp.MustCompile(`\bOffpath[A-Z]\w+`).FindAllString(mentions, -1) {
		if !known[name] {
			t.Errorf("there is no alert %s", name)
		}
	}
}

// TestDashboardShowsOneFleet: whatever it asks for is of the chosen fleet. (That alerts are of one
// fleet each is tested in lint.)
func TestDashboardShowsOneFleet(t *testing.T) {
	text := strings.ReplaceAll(deploytest.Read(t, "grafana/dashboard.json"), `\"`, `"`)
	found := regexp.MustCompile(`\b(?:(?:offpath|process|go)_[a-z_]+|ALERTS)\b(?:\{[^}]*\})?`).FindAllString(text, -1)
	asked := 0
	for _, selector := range found {
		if strings.HasPrefix(selector, "offpath_build_info") && !strings.Contains(selector, "{") {
			continue // which fleets there are
		}
		asked++
		if !strings.Contains(selector, `fleet="$fleet"`) {
			t.Errorf("of all fleets: %s", selector)
		}
	}
	if asked < 50 {
		t.Errorf("only %d selectors", asked)
	}
}

// TestRatesLeaveOutRemovedRules: what a removed rule had counted at a checker comes to the label
// `removed` in one step, which is no traffic. (An aggregator, which tells what was counted and
// refused, has no such label.)
func TestRatesLeaveOutRemovedRules(t *testing.T) {
	text := deploytest.Read(t, "prometheus/alerts.yaml") + deploytest.Read(t, "grafana/dashboard.json")
	text = strings.ReplaceAll(text, `\"`, `"`)
	rates := regexp.MustCompile(`(?:rate|increase)\(offpath_(?:decisions|false_denials|bad_costs|hits)_total[^[]*`)
	found := rates.FindAllString(text, -1)
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
