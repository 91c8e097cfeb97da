package lint

import (
	"slices"
	"strings"
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/encoding/protojson"
	core "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// TestEnvoyBesideAService: Envoy's own messages hold its configuration, all of it valid; it asks
// the checker over HTTP/2; and what it asks is what a rule of the demo has as its key.
func TestEnvoyBesideAService(t *testing.T) {
	var config struct{ Data map[string]string }
	first, _, _ := strings.Cut(file(t, "../kubernetes/sidecar.yaml"), "\n---\n")
	must(t, yaml.Unmarshal([]byte(first), &config))
	text, err := yaml.YAMLToJSON([]byte(config.Data["envoy.yaml"]))
	must(t, err)
	var b bootstrapv3.Bootstrap
	must(t, protojson.Unmarshal(text, &b))
	must(t, b.ValidateAll())

	var hcm hcmv3.HttpConnectionManager
	must(t, b.StaticResources.Listeners[0].FilterChains[0].Filters[0].GetTypedConfig().UnmarshalTo(&hcm))
	must(t, hcm.ValidateAll())
	var limit ratelimitv3.RateLimit
	must(t, hcm.HttpFilters[0].GetTypedConfig().UnmarshalTo(&limit))
	must(t, limit.ValidateAll())
	asks := limit.RateLimitService.GrpcService.GetEnvoyGrpc().ClusterName
	for _, c := range b.StaticResources.Clusters {
		if c.Name != asks {
			continue
		}
		asks = ""
		var options httpv3.HttpProtocolOptions
		must(t, c.TypedExtensionProtocolOptions["envoy.extensions.upstreams.http.v3.HttpProtocolOptions"].UnmarshalTo(&options))
		if options.GetExplicitHttpConfig().GetHttp2ProtocolOptions() == nil {
			t.Error("gRPC needs HTTP/2")
		}
	}
	if asks != "" {
		t.Errorf("there is no cluster %s", asks)
	}

	var demo struct{ Rules []struct{ Key []string } }
	must(t, yaml.Unmarshal([]byte(file(t, "../rules.yaml")), &demo))
	asked := hcm.GetRouteConfig().VirtualHosts[0].RateLimits[0].Actions[0].GetRequestHeaders().DescriptorKey
	if !slices.Equal(demo.Rules[0].Key, []string{asked}) {
		t.Errorf("Envoy asks by %s, and the demo's first rule limits by %s", asked, demo.Rules[0].Key)
	}
}

// TestBesideAService: Kubernetes knows every field, the checker starts with these flags, is
// harmless, and the Service finds the pods.
func TestBesideAService(t *testing.T) {
	var all objects
	for document := range strings.SplitSeq(file(t, "../kubernetes/sidecar.yaml"), "\n---\n") {
		all = append(all, read(t, []byte(document)))
	}
	all.checkPods(t)
	all.checkSelectors(t)
	for _, o := range all {
		if o.pod == nil {
			continue
		}
		if c := o.pod.InitContainers[0]; c.RestartPolicy == nil || *c.RestartPolicy != core.ContainerRestartPolicyAlways || c.StartupProbe == nil {
			t.Error("the checker would have to end before the service starts, or the service would not wait for it")
		}
		for _, c := range o.pod.Containers {
			if !*c.SecurityContext.ReadOnlyRootFilesystem {
				t.Errorf("%s: %+v", c.Name, c.SecurityContext)
			}
		}
	}
}
