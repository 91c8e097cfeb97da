package lint

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

const trialValues = chart + "/values-trial.yaml"

// TestTrial: NATS and Redis are where the Secrets say, in compose.yaml's versions, harmless, and
// open to no more than there has to be.
func TestTrial(t *testing.T) {
	all := render(t, chart, "-f", trialValues)
	all.checkPods(t)
	all.checkSelectors(t)
	services, images := map[string]bool{}, []string{}
	for _, o := range all {
		services[o.kind+" "+o.name] = true
		if o.pod == nil || strings.Contains(o.pod.Containers[0].Image, "offpath") {
			continue
		}
		c := o.pod.Containers[0]
		images = append(images, c.Image)
		if !*c.SecurityContext.ReadOnlyRootFilesystem || !*o.pod.SecurityContext.RunAsNonRoot {
			t.Errorf("%s: %+v", o.name, c.SecurityContext)
		}
	}
	var compose struct {
		Services map[string]struct{ Image string }
	}
	must(t, yaml.Unmarshal([]byte(file(t, "../compose.yaml")), &compose))
	want := []string{compose.Services["nats"].Image, compose.Services["redis"].Image}
	if !slices.Equal(images, want) {
		t.Errorf("images %v, want %v", images, want)
	}
	for _, o := range all {
		if o.kind != "Secret" {
			continue
		}
		host := regexp.MustCompile(`^(?:nats|redis)://([a-z-]+):(?:4222|6379)$`).FindStringSubmatch(o.data["url"])
		if host == nil || !services["Service "+host[1]] {
			t.Errorf("%s: %v", o.name, o.data)
		}
		delete(services, "Secret "+o.name)
	}
	for _, o := range all {
		if o.pod == nil {
			continue
		}
		for _, v := range o.pod.Containers[0].Env {
			if ref := v.ValueFrom.SecretKeyRef; services["Secret "+ref.Name] || ref.Key != "url" {
				t.Errorf("%s: %s is from %+v", o.name, v.Name, ref)
			}
		}
	}
	for from, want := range map[visitor]string{{own, ""}: "checker:grpc checker:http nats:nats", {"shop", ""}: ""} {
		if got := all.reachedBy(t, from); got != want {
			t.Errorf("%+v reaches %q, want %q", from, got, want)
		}
	}
}

// TestMonitoring: the chart's alerts and dashboard are those of this directory, which have tests of
// their own.
func TestMonitoring(t *testing.T) {
	all := render(t, chart, "--set", "prometheusRule.enabled=true,dashboard.enabled=true")
	var rules, dashboard bool
	for _, o := range all {
		switch o.kind {
		case "PrometheusRule":
			rules = true
			var want struct{ Groups any }
			must(t, yaml.Unmarshal([]byte(file(t, "../prometheus/alerts.yaml")), &want))
			same(t, "alerts", o.alerts, want.Groups)
		case "ConfigMap":
			dashboard = true
			var want any
			must(t, json.Unmarshal([]byte(file(t, "../grafana/dashboard.json")), &want))
			same(t, "dashboard", json.RawMessage(o.data["offpath.json"]), want)
		}
	}
	if !rules || !dashboard {
		t.Errorf("alerts: %v, dashboard: %v", rules, dashboard)
	}
}

func same(t *testing.T, what string, got, want any) {
	t.Helper()
	normal := func(v any) string {
		text, err := json.Marshal(v)
		must(t, err)
		var plain any
		must(t, json.Unmarshal(text, &plain))
		text, err = json.Marshal(plain)
		must(t, err)
		return string(text)
	}
	if g, w := normal(got), normal(want); g != w {
		t.Errorf("%s: got %.500s\nwant %.500s", what, g, w)
	}
}

// TestPlacement: pods spread over machines and zones, as one account, unless the values say
// otherwise.
func TestPlacement(t *testing.T) {
	spread := func(p *core.PodSpec) (keys string) {
		for _, c := range p.TopologySpreadConstraints {
			keys += fmt.Sprint(c.TopologyKey, " of ", c.LabelSelector.MatchLabels["app.kubernetes.io/component"], "; ")
		}
		return keys
	}
	const usual = "kubernetes.io/hostname of %[1]s; topology.kubernetes.io/zone of %[1]s; "
	for values, want := range map[string]struct{ account, spread string }{
		"{}": {"x-offpath", usual},
		"{serviceAccount: {create: false}, checker: {topologySpreadConstraints: []}, aggregator: {topologySpreadConstraints: []}}": {"default", "%.0s"},
		"{serviceAccount: {name: mine}, checker: {topologySpreadConstraints: [{maxSkew: 1, topologyKey: rack, whenUnsatisfiable: DoNotSchedule}]}, " +
			"aggregator: {topologySpreadConstraints: [{maxSkew: 1, topologyKey: rack, whenUnsatisfiable: DoNotSchedule}]}}": {"mine", "rack of %s; "},
	} {
		for _, o := range render(t, chart, "-f", write(t, "values.yaml", values)) {
			if o.pod == nil {
				continue
			}
			part := o.name[strings.LastIndex(o.name, "-")+1:]
			if got, want := spread(o.pod), fmt.Sprintf(want.spread, part); got != want || o.pod.ServiceAccountName == "" {
				t.Errorf("%s: %s spreads over %q, want %q", values, o.name, got, want)
			}
			if o.pod.ServiceAccountName != want.account {
				t.Errorf("%s: %s is %s, want %s", values, o.name, o.pod.ServiceAccountName, want.account)
			}
		}
	}
}

// TestDocumentedValues: whatever README.md tells its readers to install the chart with is a set of
// values that it takes.
func TestDocumentedValues(t *testing.T) {
	_, text, _ := strings.Cut(file(t, "../README.md"), "\n## Helm\n")
	text, _, _ = strings.Cut(text, "\n## ")
	var sets [][]string
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(text, -1) {
		sets = append(sets, []string{"-f", write(t, "values.yaml", block[1])})
	}
	const key = "ABUJOCVHJPWSBDNY33DKJIMATY4LNY5DCZZBK2TYP24CDEUBJK4AHVIR"
	lines := strings.NewReplacer(" \\\n", " ", "A…", key, "'", "", "-f deploy/helm/offpath/", "-f "+chart+"/").Replace(text)
	for _, line := range regexp.MustCompile(`(?m)^helm (?:install|upgrade) offpath deploy/helm/offpath(.*)$`).FindAllStringSubmatch(lines, -1) {
		sets = append(sets, slices.DeleteFunc(strings.Fields(line[1]), func(arg string) bool { return arg == "--reuse-values" }))
	}
	if len(sets) < 6 {
		t.Fatalf("README.md has %d sets of values", len(sets))
	}
	for _, args := range sets {
		all := render(t, chart, args...)
		all.checkPods(t)
		all.checkSelectors(t)
	}
}

// TestNotes: what to do next is three commands, with the names that this release has.
func TestNotes(t *testing.T) {
	for args, want := range map[string][]string{
		"-f " + trialValues: {
			"kubectl --namespace default exec -i deployment/x-offpath-aggregator -- offpath rules apply -f - --namespace offpath < deploy/rules.yaml",
			"port-forward service/x-offpath-checker 8080", "port-forward deployment/x-offpath-aggregator 9091", "THIS IS A TRIAL",
		},
		"--set namespace=shop,checker.name=checkers": {
			"offpath rules apply -f rules.yaml --namespace shop --nats nats://operator:PASSWORD@SERVER:4222",
			`checkers are "checkers"`, "port-forward service/x-offpath-checker 8080", "whoever can write",
		},
		"--set checker.kind=Sidecar,rules.from=configMap,rules.configMap.name=mine": {
			"get configmap mine", "kubectl apply -f deploy/kubernetes/sidecar.yaml", "port-forward deployment/x-offpath-aggregator 9091",
		},
	} {
		out, err := helm(t, append([]string{"install", "x", chart, "--dry-run=client"}, strings.Fields(args)...)...)
		_, notes, ok := strings.Cut(out, "\nNOTES:\n")
		if err != nil || !ok {
			t.Fatalf("%v\n%s", err, out)
		}
		for _, part := range append(want, "\n1. ", "\n2. ", "\n3. ") {
			if !strings.Contains(notes, part) {
				t.Errorf("%s: no %q in\n%s", args, part, notes)
			}
		}
	}
}
