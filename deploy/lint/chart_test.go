package lint

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
)

const chart = "../helm/offpath"

// tlsEverywhere are values with a Secret for each file that there can be.
const tlsEverywhere = `
trust: {rulesPublicKeys: [ABUJOCVHJPWSBDNY33DKJIMATY4LNY5DCZZBK2TYP24CDEUBJK4AHVIR, ACLKSG5IUH5ERN6CLTBVSG4XKRZ75F3BU7CRZI5N5X6UMXMSOLLZ3EVS], entriesPublicKeys: [ABRWRZOOOQLSEC4XID7N7I6T7AU64FSIOEO3DLIR264UUOKNLNGH2Q6X]}
nats:
  checker: {secret: nats-c, key: url, credsKey: user.creds}
  aggregator: {secret: nats-a, key: url, user: aggregator, passwordKey: password}
  tls: {secret: nats-tls, cert: tls.crt, key: tls.key}
redis: {user: offpath, passwordKey: password, tls: {secret: redis-tls, cert: tls.crt, key: tls.key}}
aggregator: {consoleTokens: {secret: console}, entriesSigningKey: {secret: signing}, adminTLS: {secret: admin}}
checker:
  tls: {secret: apis, clientCA: ca.crt}
  adminTLS: {secret: admin}
  keyHash: {secret: hash}
  receiptKey: {secret: receipts}
  decisionLog: {to: "log,nats", sample: 0.1}
networkPolicy: {monitoring: [{podSelector: {}}], extraEgress: [{ports: [{port: 4318, protocol: TCP}]}]}
serviceMonitor: {enabled: true, tlsConfig: {insecureSkipVerify: true}}
`

// charts are the values that the chart is rendered with, and the kinds that come of them.
var charts = []struct {
	name, values string
	kinds        string // sorted
}{
	{"as it is", ``, "Deployment Deployment HorizontalPodAutoscaler NetworkPolicy NetworkPolicy PodDisruptionBudget PodDisruptionBudget Service Service ServiceAccount"},
	{
		"all of it", `
image: {tag: 1.2.3}
imagePullSecrets: [{name: pull}]
logLevel: debug
rules: {from: configMap, configMap: {name: my-rules}}
aggregator:
  extraArgs: ["--new-keys=500"]
  extraEnv: [{name: OFFPATH_SHARDS, value: "8"}]
  extraVolumes: [{name: tls, secret: {secretName: tls}}]
  extraVolumeMounts: [{name: tls, mountPath: /tls}]
  nodeSelector: {disk: fast}
  tolerations: [{key: a, operator: Exists}]
  podAnnotations: {a: b}
checker:
  name: shop
  autoscaling: {enabled: true, min: 3, max: 30, cpu: 60}
  affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}]}}}
  topologySpreadConstraints: [{maxSkew: 2, topologyKey: rack, whenUnsatisfiable: DoNotSchedule}]
  trustedProxies: "10.0.0.0/8, fd00::/8"
  keyHash: {secret: hash}
  extraArgs: ["--flush=20ms"]
  extraEnv: [{name: OFFPATH_ACQUIRE, value: 5ms}]
  extraVolumes: [{name: tls, secret: {secretName: tls}}]
  extraVolumeMounts: [{name: tls, mountPath: /tls}]
  nodeSelector: {disk: fast}
  tolerations: [{key: a, operator: Exists}]
  podAnnotations: {a: b}
networkPolicy:
  clients: [{namespaceSelector: {matchLabels: {team: web}}}]
  monitoring: [{namespaceSelector: {matchLabels: {team: ops}}}]
serviceMonitor: {enabled: true, labels: {release: prometheus}, relabelings: [{targetLabel: fleet, replacement: shop}]}
prometheusRule: {enabled: true, labels: {release: prometheus}}
dashboard: {enabled: true, annotations: {folder: offpath}}
serviceAccount: {name: counting, annotations: {a: b}}
`,
		"ConfigMap Deployment Deployment HorizontalPodAutoscaler HorizontalPodAutoscaler NetworkPolicy NetworkPolicy PodDisruptionBudget PodDisruptionBudget PrometheusRule Service Service ServiceAccount ServiceMonitor ServiceMonitor",
	},
	{
		"TLS everywhere", tlsEverywhere,
		"Deployment Deployment HorizontalPodAutoscaler NetworkPolicy NetworkPolicy PodDisruptionBudget PodDisruptionBudget Service Service ServiceAccount ServiceMonitor ServiceMonitor",
	},
	{
		"a checker on each node", "{checker: {kind: DaemonSet, grpc: false}, aggregator: {autoscaling: {enabled: false}}, serviceMonitor: {enabled: true}, networkPolicy: {monitoring: [{podSelector: {}}]}}",
		"DaemonSet Deployment NetworkPolicy NetworkPolicy PodDisruptionBudget Service Service ServiceAccount ServiceMonitor ServiceMonitor",
	},
	{
		"checkers elsewhere", "{checker: {kind: Sidecar}, serviceMonitor: {enabled: true}, networkPolicy: {monitoring: [{podSelector: {}}]}}",
		"Deployment HorizontalPodAutoscaler NetworkPolicy PodDisruptionBudget Service ServiceAccount ServiceMonitor",
	},
}

func TestChart(t *testing.T) {
	for _, tt := range charts {
		t.Run(tt.name, func(t *testing.T) {
			values := write(t, "values.yaml", tt.values)
			if out, err := helm(t, "lint", "--strict", chart, "-f", values); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			all := render(t, chart, "-f", values)
			var kinds []string
			for _, o := range all {
				kinds = append(kinds, o.kind)
			}
			slices.Sort(kinds)
			if got := strings.Join(kinds, " "); got != tt.kinds {
				t.Errorf("got  %s\nwant %s", got, tt.kinds)
			}
			all.checkPods(t)
			all.checkSelectors(t)
		})
	}
}

// TestChartFiles: what Secrets hold is where the flags say, with probes that speak TLS where the
// admin port does.
func TestChartFiles(t *testing.T) {
	const trust = "--rules-public-keys=ABUJOCVHJPWSBDNY33DKJIMATY4LNY5DCZZBK2TYP24CDEUBJK4AHVIR,ACLKSG5IUH5ERN6CLTBVSG4XKRZ75F3BU7CRZI5N5X6UMXMSOLLZ3EVS " +
		"--entries-public-keys=ABRWRZOOOQLSEC4XID7N7I6T7AU64FSIOEO3DLIR264UUOKNLNGH2Q6X "
	want := map[string]struct{ args, secrets string }{
		"x-offpath-aggregator": {
			"--nats-ca=/etc/offpath/nats-tls/ca.crt --nats-cert=/etc/offpath/nats-tls/tls.crt --nats-key=/etc/offpath/nats-tls/tls.key " +
				"--nats-user=aggregator --nats-password-file=/etc/offpath/nats/password " + trust +
				"--admin-cert=/etc/offpath/admin-tls/tls.crt --admin-key=/etc/offpath/admin-tls/tls.key " +
				"--redis-ca=/etc/offpath/redis-tls/ca.crt --redis-cert=/etc/offpath/redis-tls/tls.crt --redis-key=/etc/offpath/redis-tls/tls.key " +
				"--redis-user=offpath --redis-password-file=/etc/offpath/redis/password --console-token-file=/etc/offpath/console/tokens " +
				"--entries-signing-key-file=/etc/offpath/entries-key/key",
			"admin-tls=admin console=console entries-key=signing nats=nats-a nats-tls=nats-tls redis=offpath-redis redis-tls=redis-tls",
		},
		"x-offpath-checker": {
			"--stop-delay=5s --decision-log=log,nats --decision-log-sample=0.1 " +
				"--nats-ca=/etc/offpath/nats-tls/ca.crt --nats-cert=/etc/offpath/nats-tls/tls.crt --nats-key=/etc/offpath/nats-tls/tls.key " +
				"--nats-creds=/etc/offpath/nats/user.creds " + trust +
				"--admin-cert=/etc/offpath/admin-tls/tls.crt --admin-key=/etc/offpath/admin-tls/tls.key " +
				"--listen-cert=/etc/offpath/api-tls/tls.crt --listen-key=/etc/offpath/api-tls/tls.key --listen-client-ca=/etc/offpath/api-tls/ca.crt " +
				"--grpc-cert=/etc/offpath/api-tls/tls.crt --grpc-key=/etc/offpath/api-tls/tls.key --grpc-client-ca=/etc/offpath/api-tls/ca.crt " +
				"--key-hash=/etc/offpath/key-hash/secret --receipt-key-file=/etc/offpath/receipt-key/key",
			"admin-tls=admin api-tls=apis key-hash=hash nats=nats-c nats-tls=nats-tls receipt-key=receipts",
		},
	}
	for _, o := range render(t, chart, "-f", write(t, "values.yaml", tlsEverywhere)) {
		if o.pod == nil {
			continue
		}
		c := o.pod.Containers[0]
		if args := strings.Join(c.Args, " "); !strings.Contains(args+" ", " "+want[o.name].args+" ") {
			t.Errorf("%s\ngot  %s\nwant %s", o.name, args, want[o.name].args)
		}
		var secrets []string
		for _, v := range o.pod.Volumes {
			if v.Name == "offpath-cache" {
				if v.EmptyDir == nil || v.EmptyDir.SizeLimit.IsZero() {
					t.Errorf("%s: the cache is in %+v", o.name, v)
				}
				continue
			}
			secrets = append(secrets, strings.TrimPrefix(v.Name, "offpath-")+"="+v.Secret.SecretName)
			if mode := v.Secret.DefaultMode; mode == nil || *mode != 0o440 { // who else is in the pod need not read it
				t.Errorf("%s: the files of %s have the mode %v", o.name, v.Name, mode)
			}
		}
		if got := strings.Join(secrets, " "); got != want[o.name].secrets {
			t.Errorf("%s\ngot  %s\nwant %s", o.name, got, want[o.name].secrets)
		}
		for _, p := range []*core.Probe{c.LivenessProbe, c.ReadinessProbe} {
			if p.HTTPGet.Scheme != core.URISchemeHTTPS {
				t.Errorf("%s: probes by %s", o.name, p.HTTPGet.Scheme)
			}
		}
		delete(want, o.name)
	}
	if len(want) > 0 {
		t.Errorf("missing: %v", want)
	}
}

// TestWhoGetsIn: callers reach the checkers' APIs, where they may settle, and nothing else;
// Prometheus reaches admin ports, where the console is, and nothing else; and nobody else anything.
func TestWhoGetsIn(t *testing.T) {
	const chosen = `
networkPolicy:
  clientNamespaces: [shop, web]
  clients: [{podSelector: {matchLabels: {app: gateway}}}]
  monitoring: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}, podSelector: {matchLabels: {app: prometheus}}}]
serviceMonitor: {enabled: true}
`
	const apis, admin = "checker:grpc checker:http", "aggregator:admin checker:admin"
	for values, want := range map[string]map[visitor]string{
		"{}": {{own, ""}: apis, {own, "prometheus"}: apis, {"shop", ""}: "", {"monitoring", "prometheus"}: ""},
		chosen: {
			{own, ""}: "", {own, "prometheus"}: "", {own, "gateway"}: apis, {"shop", ""}: apis, {"web", "gateway"}: apis, {"other", "gateway"}: "",
			{"monitoring", "prometheus"}: admin, {"monitoring", ""}: "",
		},
	} {
		all := render(t, chart, "-f", write(t, "values.yaml", values))
		for from, want := range want {
			if got := all.reachedBy(t, from); got != want {
				t.Errorf("%s: %+v reaches %q, want %q", values, from, got, want)
			}
		}
	}
}

// TestChartRefuses values that make no sense, and names them.
func TestChartRefuses(t *testing.T) {
	for values, want := range map[string]string{
		"{chekcer: {}}":                                                     "chekcer",
		"{checker: {kind: Pod}}":                                            "kind",
		"{checker: {name: a.b}}":                                            "name",
		"{image: {tag: latest}}":                                            "tag",
		"{rules: {from: configMap}}":                                        "name",
		"{redis: {secret: ''}}":                                             "secret",
		"{redis: {password: x}}":                                            "password",
		"{trust: {rulesPublicKeys: [SAABC]}}":                               "rulesPublicKeys",
		"{nats: {port: 0}}":                                                 "port",
		"{aggregator: {replicas: 0}}":                                       "replicas",
		"{serviceMonitor: {interval: often}}":                               "interval",
		"{nats: {tls: {cert: tls.crt}}}":                                    "key",
		"{nats: {checker: {secret: x, key: url, user: a}}}":                 "password",
		"{nats: {checker: {secret: x, key: url, credsKey: a, nkeyKey: b}}}": "nats",
		"{checker: {tls: {secret: x, cert: ''}}}":                           "cert",
		"{checker: {decisionLog: {to: nowhere}}}":                           "decisionLog",
		"{checker: {decisionLog: {sample: 2}}}":                             "sample",
		"{serviceMonitor: {enabled: true}}":                                 "networkPolicy.monitoring",
		"{networkPolicy: {clientNamespaces: [Shop]}}":                       "clientNamespaces",
		"{checker: {kind: DaemonSet, autoscaling: {enabled: true}}}":        "kind",
		"{checker: {topologySpreadConstraints: [{maxSkew: 1}]}}":            "topologyKey",
		"{trial: yes please}":                                               "trial",
	} {
		out, err := helm(t, "template", "x", chart, "-f", write(t, "values.yaml", values))
		if err == nil || !strings.Contains(out, want) {
			t.Errorf("%s: %v\n%s", values, err, out)
		}
	}
}

// TestSidecar has another chart put a checker into its pod.
func TestSidecar(t *testing.T) {
	dir := t.TempDir()
	if out, err := helm(t, "package", chart, "--destination", filepath.Join(dir, "charts")); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for name, text := range map[string]string{
		"Chart.yaml":  "{apiVersion: v2, name: shop, version: 0.1.0, dependencies: [{name: offpath, version: 0.1.0}]}",
		"values.yaml": "{offpath: {checker: {kind: Sidecar, name: shop, keyHash: {secret: hash}}}}",
		"templates/shop.yaml": `
apiVersion: apps/v1
kind: Deployment
metadata: {name: shop}
spec:
  selector: {matchLabels: {app: shop}}
  template:
    metadata: {labels: {app: shop}}
    spec:
      automountServiceAccountToken: false
      securityContext: {fsGroup: 2000}
      initContainers:
        {{- include "offpath.sidecar" .Subcharts.offpath | nindent 8 }}
      containers:
        - {name: shop, image: "shop:1", ports: [{name: http, containerPort: 80}, {name: admin, containerPort: 81}]}
      volumes:
        {{- include "offpath.sidecarVolumes" .Subcharts.offpath | nindent 8 }}
`,
	} {
		must(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o700))
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	var pods int
	for _, o := range render(t, dir) {
		if o.pod == nil || o.name != "shop" {
			continue
		}
		pods++
		objects{o}.checkPods(t)
		c := o.pod.InitContainers[0]
		if c.RestartPolicy == nil || *c.RestartPolicy != core.ContainerRestartPolicyAlways {
			t.Error("it would have to end before the service starts")
		}
		if p := c.StartupProbe; p == nil || p.HTTPGet == nil || p.HTTPGet.Path != "/healthz" {
			t.Error("the service may start before it answers: Kubernetes waits for a start only where it is told how to see one")
		}
		if !slices.Contains(c.Args, "--listen=127.0.0.1:8080") || !slices.Contains(c.Args, "--name=shop") {
			t.Errorf("%q", c.Args)
		}
	}
	if pods != 1 {
		t.Errorf("%d pods", pods)
	}
}
