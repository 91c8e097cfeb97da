package cmd_test

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
	"github.com/offpath-io/offpath/internal/testing/tlsfilestest"
)

// series are the values of each label, by metric and label.
type series map[string]map[string][]string

var sample = regexp.MustCompile(`(?m)^([a-z_]+)(?:\{(.*)\})? [^ ]+$`)

var label = regexp.MustCompile(`([a-z_]+)="((?:[^"\\]|\\.)*)"`)

// seriesOf reads a daemon's /metrics.
func seriesOf(t *testing.T, d *daemontest.Daemon) series {
	t.Helper()
	status, text := d.Get("/metrics")
	if status != 200 {
		t.Fatalf("/metrics: %d", status)
	}
	all := make(series)
	for _, m := range sample.FindAllStringSubmatch(text, -1) {
		if all[m[1]] == nil {
			all[m[1]] = make(map[string][]string)
		}
		for _, l := range label.FindAllStringSubmatch(m[2], -1) {
			if !slices.Contains(all[m[1]][l[1]], l[2]) {
				all[m[1]][l[1]] = append(all[m[1]][l[1]], l[2])
			}
		}
	}
	return all
}

// names are the metrics of offpath's own, with their labels.
func (s series) names() map[string]string {
	all := make(map[string]string)
	for name, labels := range s {
		if !strings.HasPrefix(name, "offpath_") {
			continue
		}
		for _, part := range []string{"_bucket", "_sum", "_count"} { // of a histogram
			name = strings.TrimSuffix(name, part)
		}
		keys := slices.DeleteFunc(slices.Sorted(maps.Keys(labels)), func(l string) bool { return l == "le" })
		all[name] = strings.Join(keys, ", ")
	}
	return all
}

// listed are the metrics of one section of docs/operations.md: rows of a table that begin with a metric's name and its labels.
func listed(t *testing.T, doc, section string) map[string]string {
	t.Helper()
	_, text, ok := strings.Cut(doc, "\n### "+section+"\n")
	if !ok {
		t.Fatalf("docs/operations.md has no section %q", section)
	}
	text, _, _ = strings.Cut(text, "\n#")
	all := make(map[string]string)
	for _, m := range regexp.MustCompile("(?m)^\\| `(offpath_[a-z_]+)` \\| ([a-z_, ]*?) ?\\| [^|]+ \\| [^|]+ \\|$").FindAllStringSubmatch(text, -1) {
		if _, twice := all[m[1]]; twice {
			t.Errorf("%s is listed twice", m[1])
		}
		all[m[1]] = m[2]
	}
	if rows := strings.Count(text, "\n| `offpath_"); rows != len(all) {
		t.Errorf("%s: %d rows, of which %d have a name, labels, a meaning and what to do", section, rows, len(all))
	}
	return all
}

// TestMetricsAreDocumented: the metrics of both commands, as they really are, and those that docs/operations.md lists are the same; and
// every metric and label value that an alert or the dashboard uses is among them.
func TestMetricsAreDocumented(t *testing.T) {
	if testing.Short() {
		t.Skip("long: runs in make test-all")
	}
	const user = "someone-private"
	f := &fleet{T: t, nats: serverstest.NATS(t).URL(), redis: serverstest.Redis(t).URL()}
	aggregator := f.startAggregator()
	// The log, and files of certificates, have metrics only where they are in use.
	pair := tlsfilestest.NewAuthority(t, "doors").Dir("checker")
	checker := f.startChecker("--rules", "../deploy/rules.yaml", "--decision-log", "log", "--grpc-cert", pair.Cert, "--grpc-key", pair.Key)
	ask(t, checker, asUser(user))
	for metric, d := range map[string]*daemontest.Daemon{
		`offpath_hits_total{outcome="counted",rule="per-user"}`:  aggregator,
		`offpath_ledger_hits{outcome="counted",rule="per-user"}`: aggregator,
		"offpath_refresh_age_seconds":                            checker,
	} {
		d.Await("there is "+metric, func() bool { return d.Metric(metric) != "" })
	}

	text, err := os.ReadFile("../docs/operations.md")
	must(t, err)
	both, ofFiles := make(series), listed(t, string(text), "Of certificates and secrets, in both")
	for section, d := range map[string]*daemontest.Daemon{"A checker's metrics": checker, "An aggregator's metrics": aggregator} {
		all := seriesOf(t, d)
		real, list := all.names(), listed(t, string(text), section)
		if d == checker { // the other one has no files here
			maps.Copy(list, ofFiles)
		}
		for name, labels := range real {
			if documented, ok := list[name]; !ok || documented != labels {
				t.Errorf("%s: %s with labels %q; listed: %v, with labels %q", section, name, labels, ok, documented)
			}
		}
		for name := range list {
			if _, ok := real[name]; !ok {
				t.Errorf("%s: there is no %s", section, name)
			}
		}
		if _, page := d.Get("/metrics"); strings.Contains(page, user) {
			t.Errorf("%s tell who was limited", section)
		}
		both.add(all)
	}
	for file, exprs := range map[string][]string{
		"alerts.yaml":    expressions(t, "../deploy/prometheus/alerts.yaml", "expr"),
		"dashboard.json": expressions(t, "../deploy/grafana/dashboard.json", "expr", "query"),
	} {
		if len(exprs) < 10 {
			t.Errorf("%s: only %d expressions", file, len(exprs))
		}
		for _, expr := range exprs {
			both.holdAgainst(t, file, expr)
		}
	}
}

// add adds what another daemon has.
func (s series) add(more series) {
	for name, labels := range more {
		if s[name] == nil {
			s[name] = make(map[string][]string)
		}
		for l, values := range labels {
			s[name][l] = append(s[name][l], values...)
		}
	}
}

var selector = regexp.MustCompile(`\b(offpath_[a-z_]+|process_[a-z_]+|go_[a-z_]+)(?:\{([^}]*)\})?`)

var matcher = regexp.MustCompile(`([a-z_]+)(=~|=)"([^"]*)"`)

// holdAgainst says which metrics, labels and values of an expression there are none of.
func (s series) holdAgainst(t *testing.T, file, expr string) {
	t.Helper()
	found := selector.FindAllStringSubmatch(expr, -1)
	if len(found) == 0 && !strings.Contains(expr, "ALERTS") {
		t.Errorf("%s: no metric in %s", file, expr)
	}
	for _, m := range found {
		labels, ok := s[m[1]]
		if !ok {
			t.Errorf("%s: there is no %s: %s", file, m[1], expr)
			continue
		}
		for _, l := range matcher.FindAllStringSubmatch(m[2], -1) {
			if strings.HasPrefix(l[3], "$") { // a variable of the dashboard
				if labels[l[1]] == nil {
					t.Errorf("%s: %s has no label %s: %s", file, m[1], l[1], expr)
				}
				continue
			}
			for value := range strings.SplitSeq(l[3], "|") {
				if !slices.Contains(labels[l[1]], value) {
					t.Errorf("%s: %s is never of %s %q: %s", file, m[1], l[1], value, expr)
				}
			}
		}
	}
}

// expressions are the values of these fields, wherever they are in a file of YAML or JSON; of queries those that are expressions.
func expressions(t *testing.T, path string, fields ...string) (all []string) {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	var file any
	must(t, yaml.Unmarshal(text, &file))
	var walk func(any)
	walk = func(node any) {
		switch node := node.(type) {
		case map[string]any:
			for key, value := range node {
				if text, ok := value.(string); ok && slices.Contains(fields, key) && (key != "query" || strings.Contains(text, "(")) {
					all = append(all, text)
				}
				walk(value)
			}
		case []any:
			for _, value := range node {
				walk(value)
			}
		}
	}
	walk(file)
	return all
}
