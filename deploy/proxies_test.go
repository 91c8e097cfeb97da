package deploy_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// Each file for a proxy is in the directory's README. nginx, Caddy and HAProxy run theirs in the tests of package cmd.
func TestProxiesAreListed(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join("proxies", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir("proxies")
	if err != nil || len(files) != 6 {
		t.Errorf("%v, %v", files, err)
	}
	for _, f := range files {
		if name := f.Name(); name != "README.md" && !strings.Contains(string(readme), "["+name+"]("+name+")") {
			t.Errorf("README.md does not list %s", name)
		}
	}
}

// Debian has no Traefik to run, so this is what can be said of its file: it names what Traefik's documentation has, and the
// router, middleware and service find each other.
func TestTraefik(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("proxies", "traefik.yaml"))
	if err != nil {
		t.Fatal(err)
	}
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
	d := yaml.NewDecoder(strings.NewReader(string(text)))
	d.KnownFields(true)
	if err := d.Decode(&config); err != nil {
		t.Fatal(err)
	}
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
