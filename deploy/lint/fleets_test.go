package lint

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// alertTest is a unit test of one alert, as promtool has it.
type alertTest struct {
	Name        string        `json:"name"`
	Interval    string        `json:"interval"`
	InputSeries []inputSeries `json:"input_series"`
	Expressions []alertResult `json:"promql_expr_test"`
}

type inputSeries struct {
	Series string `json:"series"`
	Values string `json:"values"`
}

type alertResult struct {
	Expr     string   `json:"expr"`
	EvalTime string   `json:"eval_time"`
	Samples  []sample `json:"exp_samples"`
}

type sample struct {
	Labels string  `json:"labels"`
	Value  float64 `json:"value"`
}

func (a alertTest) fires() bool { return len(a.Expressions[0].Samples) > 0 }

// of returns the test for another fleet, whose processes have other addresses.
func (a alertTest) of(fleet string) alertTest {
	rename := strings.NewReplacer(`fleet="shop"`, fmt.Sprintf("fleet=%q", fleet), `instance="`, `instance="`+fleet+"-")
	b := a
	b.InputSeries, b.Expressions = nil, nil
	for _, s := range a.InputSeries {
		b.InputSeries = append(b.InputSeries, inputSeries{rename.Replace(s.Series), s.Values})
	}
	for _, e := range a.Expressions {
		var samples []sample
		for _, s := range e.Samples {
			samples = append(samples, sample{rename.Replace(s.Labels), s.Value})
		}
		b.Expressions = append(b.Expressions, alertResult{e.Expr, e.EvalTime, samples})
	}
	return b
}

// TestAlertsAreOfOneFleet puts two fleets into one Prometheus: one in which an alert fires, and one
// in which it does not. It fires for the first, and for that alone: no fleet's health hides
// another's outage.
func TestAlertsAreOfOneFleet(t *testing.T) {
	var all struct {
		Tests []alertTest `json:"tests"`
	}
	must(t, yaml.Unmarshal([]byte(alertTests(t)), &all))
	fires, quiet := map[string][]alertTest{}, map[string][]alertTest{}
	for _, test := range all.Tests {
		alert, _, _ := strings.Cut(test.Name, ":")
		if test.fires() {
			fires[alert] = append(fires[alert], test)
		} else {
			quiet[alert] = append(quiet[alert], test)
		}
	}
	var both []alertTest
	tested := map[string]bool{}
	for alert, tests := range fires {
		for _, a := range tests {
			for _, b := range quiet[alert] {
				if a.Expressions[0].EvalTime != b.Expressions[0].EvalTime {
					continue // the other one is quiet at another time
				}
				tested[alert] = true
				ill, well := a.of("ill"), b.of("well")
				ill.Name += " | while in another fleet: " + b.Name
				ill.InputSeries = append(ill.InputSeries, well.InputSeries...)
				both = append(both, ill)
			}
		}
	}
	if len(fires) < 25 || len(tested) != len(fires) {
		t.Fatalf("%d alerts, of which %d are tested", len(fires), len(tested))
	}
	text, err := yaml.Marshal(map[string]any{"rule_files": []string{"alerts.yaml"}, "evaluation_interval": "15s", "tests": both})
	must(t, err)
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "alerts.yaml"), []byte(file(t, "../prometheus/alerts.yaml")), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "fleets_test.yaml"), text, 0o600))
	promtool(t, "test", "rules", filepath.Join(dir, "fleets_test.yaml"))
}

// TestAlertsNameTheirFleet: an alert that did not would be one for all fleets.
func TestAlertsNameTheirFleet(t *testing.T) {
	expected := regexp.MustCompile(`labels: 'ALERTS\{[^}]*\}`).FindAllString(alertTests(t), -1)
	if len(expected) < 25 {
		t.Fatalf("only %d alerts fire", len(expected))
	}
	for _, labels := range expected {
		if !strings.Contains(labels, `fleet="shop"`) {
			t.Errorf("no fleet: %s", labels)
		}
	}
}

func alertTests(t *testing.T) string { t.Helper(); return file(t, "../prometheus/alerts_test.yaml") }
