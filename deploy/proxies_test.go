package deploy_test

import (
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/offpath-io/offpath/internal/testing/deploytest"
)

// TestTraefik checks what can be checked without Traefik, which Debian has not: the file names what
// Traefik's documentation has, and the router, middleware and service find each other.
func TestTraefik(t *testing.T) {
	var config struct {
		HTTP struct {
			Middlewares map[string]struct {
				ForwardAuth struct {
					Address            string
					TrustForwardHeader *bool `yaml:"trustForwardHeader"`
				} `yaml:"forwardAuth"`
			}
			Routers map[string]struct {
				Rule, Service string
				Middlewares   []string
			}
			Services map[string]struct {
				LoadBalancer struct{ Servers []struct{ URL string } } `yaml:"loadBalancer"`
			}
		}
	}
	d := yaml.NewDecoder(strings.NewReader(deploytest.Read(t, "proxies/traefik.yaml")))
	d.KnownFields(true)
	must(t, d.Decode(&config))
	for name, r := range config.HTTP.Routers {
		s, ok := config.HTTP.Services[r.Service]
		if !ok || len(s.LoadBalancer.Servers) == 0 || s.LoadBalancer.Servers[0].URL == "" || r.Rule == "" || len(r.Middlewares) != 1 {
			t.Errorf("router %s: %+v", name, r)
			continue
		}
		a := config.HTTP.Middlewares[r.Middlewares[0]].ForwardAuth
		if !strings.HasSuffix(a.Address, "/v1/auth") || a.TrustForwardHeader == nil || *a.TrustForwardHeader {
			t.Errorf("middleware of %s: %+v", name, a)
		}
	}
	if len(config.HTTP.Routers) == 0 {
		t.Error("no routers")
	}
}
