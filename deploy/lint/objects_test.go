package lint

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

type object struct {
	kind, name string
	labels     map[string]string // of its pods
	selector   map[string]string
	ports      []string // of its pods, by name, that it counts on
	pod        *core.PodSpec
	replicas   *int32 // of a Deployment
	policy     *networking.NetworkPolicySpec
	data       map[string]string // of a ConfigMap or Secret
	alerts     []monitoring.RuleGroup
	scales     *autoscaling.HorizontalPodAutoscalerSpec
}

type objects []object

// render renders a chart and reads each object as what it says it is, unknown fields refused.
func render(t *testing.T, chart string, args ...string) (all objects) {
	t.Helper()
	out, err := helm(t, append([]string{"template", "x", chart}, args...)...)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for document := range strings.SplitSeq("\n"+out, "\n---") {
		if strings.TrimSpace(document) != "" {
			all = append(all, read(t, []byte(document)))
		}
	}
	return all
}

func read(t *testing.T, document []byte) (o object) {
	t.Helper()
	var what struct {
		Kind       string
		APIVersion string
		Metadata   struct{ Name string }
	}
	must(t, yaml.Unmarshal(document, &what))
	into := func(target any) {
		t.Helper()
		if err := yaml.UnmarshalStrict(document, target); err != nil {
			t.Errorf("%s %s: %v", what.Kind, what.Metadata.Name, err)
		}
	}
	o.kind, o.name = what.Kind, what.Metadata.Name
	template := func(pods core.PodTemplateSpec, selector *meta.LabelSelector) {
		o.labels, o.pod, o.selector = pods.Labels, &pods.Spec, selector.MatchLabels
	}
	switch what.APIVersion + " " + what.Kind {
	case "apps/v1 Deployment":
		var d apps.Deployment
		into(&d)
		o.replicas = d.Spec.Replicas
		template(d.Spec.Template, d.Spec.Selector)
	case "apps/v1 DaemonSet":
		var d apps.DaemonSet
		into(&d)
		template(d.Spec.Template, d.Spec.Selector)
	case "v1 Service":
		var s core.Service
		into(&s)
		o.selector = s.Spec.Selector
		for _, p := range s.Spec.Ports {
			o.ports = append(o.ports, p.TargetPort.StrVal)
		}
	case "policy/v1 PodDisruptionBudget":
		var b policy.PodDisruptionBudget
		into(&b)
		o.selector = b.Spec.Selector.MatchLabels
	case "networking.k8s.io/v1 NetworkPolicy":
		var n networking.NetworkPolicy
		into(&n)
		o.selector, o.policy = n.Spec.PodSelector.MatchLabels, &n.Spec
		for _, in := range n.Spec.Ingress {
			for _, p := range in.Ports {
				o.ports = append(o.ports, p.Port.StrVal)
			}
		}
	case "autoscaling/v2 HorizontalPodAutoscaler":
		var h autoscaling.HorizontalPodAutoscaler
		into(&h)
		if h.Spec.ScaleTargetRef.Name != h.Name {
			t.Errorf("it scales %s", h.Spec.ScaleTargetRef.Name)
		}
		o.scales = &h.Spec
	case "v1 ConfigMap":
		var m core.ConfigMap
		into(&m)
		o.data = m.Data
	case "v1 Secret":
		var s core.Secret
		into(&s)
		o.data = s.StringData
	case "v1 ServiceAccount":
		var a core.ServiceAccount
		into(&a)
		if a.AutomountServiceAccountToken == nil || *a.AutomountServiceAccountToken {
			t.Errorf("%s has a token for Kubernetes", a.Name)
		}
	case "monitoring.coreos.com/v1 PrometheusRule":
		var r monitoring.PrometheusRule
		into(&r)
		o.alerts = r.Spec.Groups
	case "monitoring.coreos.com/v1 ServiceMonitor":
		var m monitoring.ServiceMonitor
		into(&m)
		o.selector = m.Spec.Selector.MatchLabels
		o.ports = []string{m.Spec.Endpoints[0].Port}
	default:
		t.Errorf("%s %s: not looked at", what.APIVersion, what.Kind)
	}
	return o
}

// checkSelectors sees that whatever selects pods finds some, with the ports that it counts on.
func (all objects) checkSelectors(t *testing.T) {
	t.Helper()
	for _, o := range all {
		if o.scales != nil { // it scales what has its name
			if !slices.ContainsFunc(all, func(p object) bool { return p.pod != nil && p.name == o.name && p.replicas == nil }) {
				t.Errorf("%s is not there, or has a number of replicas of its own", o.name)
			}
			continue
		}
		if o.selector == nil && slices.Contains([]string{"ConfigMap", "Secret", "ServiceAccount", "PrometheusRule"}, o.kind) {
			continue
		}
		selects := labels.SelectorFromSet(o.selector)
		found := slices.IndexFunc(all, func(p object) bool { return p.pod != nil && selects.Matches(labels.Set(p.labels)) })
		if found < 0 || len(o.selector) == 0 {
			t.Errorf("%s %s selects nothing: %v", o.kind, o.name, o.selector)
			continue
		}
		for _, port := range o.ports {
			if !slices.ContainsFunc(all[found].pod.Containers[0].Ports, func(p core.ContainerPort) bool { return p.Name == port }) {
				t.Errorf("%s %s: no port %q", o.kind, o.name, port)
			}
		}
	}
}

// checkPods sees that containers of ours are harmless, are probed, have no secret written in them,
// and start.
func (all objects) checkPods(t *testing.T) {
	t.Helper()
	for _, o := range all {
		if o.pod == nil {
			continue
		}
		if o.pod.AutomountServiceAccountToken == nil || *o.pod.AutomountServiceAccountToken {
			t.Errorf("%s has a token for Kubernetes", o.name)
		}
		names := map[string]bool{}
		for _, c := range append(slices.Clone(o.pod.InitContainers), o.pod.Containers...) {
			for _, p := range c.Ports {
				if names[p.Name] {
					t.Errorf("%s: two ports are called %s", o.name, p.Name)
				}
				names[p.Name] = true
			}
			if !strings.Contains(c.Image, "offpath") {
				continue
			}
			checkContainer(t, c)
			for _, m := range c.VolumeMounts {
				if !slices.ContainsFunc(o.pod.Volumes, func(v core.Volume) bool { return v.Name == m.Name }) {
					t.Errorf("%s: no volume %s", o.name, m.Name)
				}
			}
		}
	}
}

func checkContainer(t *testing.T, c core.Container) {
	t.Helper()
	s := c.SecurityContext
	if s == nil || !*s.RunAsNonRoot || *s.RunAsUser == 0 || !*s.ReadOnlyRootFilesystem || *s.AllowPrivilegeEscalation ||
		len(s.Capabilities.Drop) != 1 || s.Capabilities.Drop[0] != "ALL" {
		t.Errorf("%s: %+v", c.Name, s)
	}
	for _, p := range []*core.Probe{c.LivenessProbe, c.ReadinessProbe} {
		if p == nil || !slices.ContainsFunc(c.Ports, func(port core.ContainerPort) bool { return port.Name == p.HTTPGet.Port.StrVal }) {
			t.Errorf("%s: probe %+v", c.Name, p)
		}
	}
	if c.LivenessProbe.HTTPGet.Path != "/healthz" || c.ReadinessProbe.HTTPGet.Path != "/readyz" {
		t.Errorf("%s: probes %s, %s", c.Name, c.LivenessProbe.HTTPGet.Path, c.ReadinessProbe.HTTPGet.Path)
	}
	env := map[string]string{}
	for _, v := range c.Env {
		env[v.Name] = v.Value
		if v.Name == "OFFPATH_NATS" || v.Name == "OFFPATH_REDIS" {
			if v.Value != "" || v.ValueFrom == nil || v.ValueFrom.SecretKeyRef == nil || v.ValueFrom.SecretKeyRef.Name == "" {
				t.Errorf("%s: %s is not from a Secret", c.Name, v.Name)
			}
			env[v.Name] = map[string]string{"OFFPATH_NATS": "nats://u:p@nats:4222", "OFFPATH_REDIS": "redis://u:p@redis:6379"}[v.Name]
		}
	}
	if env["OFFPATH_NATS"] == "" || (c.Name == "aggregator") != (env["OFFPATH_REDIS"] != "") {
		t.Errorf("%s: %v", c.Name, env)
	}
	for _, arg := range c.Args {
		_, path, named := strings.Cut(arg, "=/etc/offpath/")
		mounted := func(m core.VolumeMount) bool { return m.MountPath == "/etc/offpath/"+filepath.Dir(path) && m.ReadOnly }
		if named && !slices.ContainsFunc(c.VolumeMounts, mounted) {
			t.Errorf("%s: %s is not mounted", c.Name, arg)
		}
	}
	parses(t, filepath.Base(c.Command[0]), c.Args, env)
}

// tool builds one of this module's tools, once, and says where it is. Prometheus' discovery of
// targets in clouds is left out.
func tool(name string) func() (path string, err error) {
	return sync.OnceValues(func() (string, error) {
		c := exec.Command("go", "tool", "-n", name)
		c.Env = append(os.Environ(), "GOFLAGS=-tags=remove_all_sd")
		out, err := c.Output()
		return strings.TrimSpace(string(out)), err
	})
}

var helmPath = tool("helm")

func helm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	path, err := helmPath()
	must(t, err)
	c := exec.CommandContext(t.Context(), path, args...)
	home := t.TempDir()
	c.Env = append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		return string(out) + stderr.String(), err
	}
	return string(out), nil
}

func write(t *testing.T, name, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), name)
	must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// own is the release's namespace.
const own = "own"

// visitor is a pod with the label app, in a namespace.
type visitor struct{ namespace, app string }

// reachedBy lists the ports that the policies let a pod in to, as "PART:PORT", sorted.
func (all objects) reachedBy(t *testing.T, from visitor) string {
	t.Helper()
	var ports []string
	for _, o := range all {
		if o.policy == nil {
			continue
		}
		if !slices.Contains(o.policy.PolicyTypes, networking.PolicyTypeIngress) {
			t.Errorf("%s lets everybody in", o.name)
		}
		for _, rule := range o.policy.Ingress {
			if len(rule.From) == 0 || len(rule.Ports) == 0 {
				t.Errorf("%s lets everybody in, or at everything: %+v", o.name, rule)
			}
			if !slices.ContainsFunc(rule.From, func(p networking.NetworkPolicyPeer) bool { return isPeer(t, p, from) }) {
				continue
			}
			for _, p := range rule.Ports {
				ports = append(ports, o.name[strings.LastIndex(o.name, "-")+1:]+":"+p.Port.StrVal)
			}
		}
	}
	slices.Sort(ports)
	return strings.Join(slices.Compact(ports), " ")
}

func isPeer(t *testing.T, p networking.NetworkPolicyPeer, from visitor) bool {
	t.Helper()
	chosen := func(by *meta.LabelSelector, of labels.Set) bool {
		selector, err := meta.LabelSelectorAsSelector(by)
		must(t, err)
		return selector.Matches(of)
	}
	if p.NamespaceSelector == nil && from.namespace != own || p.IPBlock != nil {
		return false
	}
	return (p.NamespaceSelector == nil || chosen(p.NamespaceSelector, labels.Set{"kubernetes.io/metadata.name": from.namespace})) &&
		(p.PodSelector == nil || chosen(p.PodSelector, labels.Set{"app": from.app}))
}
