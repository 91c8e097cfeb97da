package cmd_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
	"github.com/offpath-io/offpath/internal/testing/tlsfilestest"
)

// TestMetricsAreDocumented: the metrics of both commands, as they really are, and those that
// docs/operations_metrics.md lists are the same; and every metric and label value that an alert or
// the dashboard uses is among them.
func TestMetricsAreDocumented(t *testing.T) {
	const user = "someone-private"
	f := &fleet{T: t, nats: serverstest.NATS(t).URL(), redis: serverstest.Redis(t).URL()}
	aggregator := f.startAggregator()
	// The log, the cache, and files of certificates and of envoyproxy/ratelimit have metrics only
	// where they are in use.
	pair := tlsfilestest.NewAuthority(t, "listeners").Dir("checker")
	rules := t.TempDir() // of both formats
	own, err := os.ReadFile("../deploy/rules.yaml")
	must(t, err)
	must(t, os.WriteFile(filepath.Join(rules, "own.yaml"), own, 0o600))
	must(t, os.WriteFile(filepath.Join(rules, "envoy.yaml"),
		[]byte("domain: shop\ndescriptors: [{key: user, rate_limit: {unit: minute, requests_per_unit: 9}}]\n"), 0o600))
	checker := f.startChecker("--rules", rules, "--decision-log", "log", "--cache-dir", t.TempDir(), "--grpc-cert", pair.Cert, "--grpc-key", pair.Key)
	ask(t, checker, asUser(user))
	for metric, d := range map[string]*daemontest.Daemon{
		`offpath_hits_total{outcome="counted",rule="per-user"}`:  aggregator,
		`offpath_ledger_hits{outcome="counted",rule="per-user"}`: aggregator,
		`offpath_over_limit_unheard_ratio{rule="per-user"}`:      aggregator,
		"offpath_refresh_age_seconds":                            checker,
	} {
		d.Await("there is "+metric, func() bool { return d.Metric(metric) != "" })
	}
	checker.Await("reports are timed", func() bool { return checker.Metric("offpath_report_seconds_count") != "0" })

	doc, err := os.ReadFile("../docs/operations_metrics.md")
	must(t, err)
	both := make(series)
	for section, d := range map[string]*daemontest.Daemon{"A checker's metrics": checker, "An aggregator's metrics": aggregator} {
		list := append(listed(t, string(doc), section), listed(t, string(doc), "Of requests, in both")...)
		if d == checker { // the other one has no files here
			list = append(list, listed(t, string(doc), "Of certificates and secrets, in both")...)
		}
		real := both.add(t, d)
		for _, entry := range real {
			if !slices.Contains(list, entry) {
				t.Errorf("%s: %s is not listed", section, entry)
			}
		}
		for _, entry := range list {
			if !slices.Contains(real, entry) {
				t.Errorf("%s: there is no %s", section, entry)
			}
		}
		if _, page := d.Get("/metrics"); strings.Contains(page, user) {
			t.Errorf("%s tell who was limited", section)
		}
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

// series has an entry for each metric ("up"), for each label of one ("up{job}") and for each value
// of that ("up{job=a}").
type series map[string]bool

var (
	sample   = regexp.MustCompile(`(?m)^([a-z_]+)(?:\{(.*)\})? [^ ]+$`)
	label    = regexp.MustCompile(`([a-z_]+)="((?:[^"\\]|\\.)*)"`)
	row      = regexp.MustCompile("(?m)^\\| `(offpath_[a-z_]+)` \\| ([a-z_, ]*?) ?\\| [^|]+ \\| [^|]+ \\|$")
	selector = regexp.MustCompile(`\b(offpath_[a-z_]+|process_[a-z_]+|go_[a-z_]+)(?:\{([^}]*)\})?`)
	matcher  = regexp.MustCompile(`([a-z_]+)(=~|=)"([^"]*)"`)
)

// add adds a daemon's /metrics, and returns offpath's own metrics and their labels, as they are to
// be listed.
func (s series) add(t *testing.T, d *daemontest.Daemon) (own []string) {
	t.Helper()
	status, text := d.Get("/metrics")
	if status != 200 {
		t.Fatalf("/metrics: %d", status)
	}
	for _, m := range sample.FindAllStringSubmatch(text, -1) {
		name := m[1]
		s[name] = true
		for _, part := range []string{"_bucket", "_sum", "_count"} { // of a histogram
			m[1] = strings.TrimSuffix(m[1], part)
		}
		if strings.HasPrefix(name, "offpath_") {
			own = append(own, m[1])
		}
		for _, l := range label.FindAllStringSubmatch(m[2], -1) {
			s[name+"{"+l[1]+"}"], s[name+"{"+l[1]+"="+l[2]+"}"] = true, true
			if strings.HasPrefix(name, "offpath_") && l[1] != "le" && l[1] != "fleet" {
				own = append(own, m[1]+"{"+l[1]+"}")
			}
		}
	}
	slices.Sort(own)
	return slices.Compact(own)
}

// listed are the metrics of one section of docs/operations_metrics.md and their labels: rows of a
// table that begin with these.
func listed(t *testing.T, doc, section string) (all []string) {
	t.Helper()
	_, text, ok := strings.Cut(doc, "\n## "+section+"\n")
	if !ok {
		t.Fatalf("docs/operations_metrics.md has no section %q", section)
	}
	text, _, _ = strings.Cut(text, "\n#")
	found := row.FindAllStringSubmatch(text, -1)
	for _, m := range found {
		if slices.Contains(all, m[1]) {
			t.Errorf("%s is listed twice", m[1])
		}
		all = append(all, m[1])
		for _, l := range strings.FieldsFunc(m[2], func(r rune) bool { return r == ',' || r == ' ' }) {
			all = append(all, m[1]+"{"+l+"}")
		}
	}
	if rows := strings.Count(text, "\n| `offpath_"); rows != len(found) {
		t.Errorf("%s: %d rows, of which %d have a name, labels, a meaning and what to do", section, rows, len(found))
	}
	return all
}

// holdAgainst says which metrics, labels and values of an expression there are none of.
func (s series) holdAgainst(t *testing.T, file, expr string) {
	t.Helper()
	found := selector.FindAllStringSubmatch(expr, -1)
	if len(found) == 0 && !strings.Contains(expr, "ALERTS") {
		t.Errorf("%s: no metric in %s", file, expr)
	}
	for _, m := range found {
		wanted := []string{m[1]}
		for _, l := range matcher.FindAllStringSubmatch(m[2], -1) {
			wanted = append(wanted, m[1]+"{"+l[1]+"}")
			for value := range strings.SplitSeq(l[3], "|") {
				if !strings.HasPrefix(value, "$") { // a variable of the dashboard
					wanted = append(wanted, m[1]+"{"+l[1]+"="+value+"}")
				}
			}
		}
		for _, entry := range wanted {
			if !s[entry] {
				t.Errorf("%s: there is no %s: %s", file, entry, expr)
			}
		}
	}
}

// expressions are the values of these fields, wherever they are in a file of YAML or JSON; of
// queries those that are expressions.
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
