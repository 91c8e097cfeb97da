package promises

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/identity"
)

// ruleFiles are those whose meaning is recorded, from the top of the repository.
func ruleFiles() (paths []string, err error) {
	for _, pattern := range []string{"deploy/rules.yaml", "deploy/rules/*.yaml", "internal/promises/rules/*.yaml"} {
		found, err := filepath.Glob(filepath.FromSlash(pattern))
		if err != nil || len(found) == 0 {
			return nil, fmt.Errorf("%s: nothing found (call this from the top of the repository): %w", pattern, err)
		}
		paths = append(paths, found...)
	}
	return paths, nil
}

// recordRules adds the rule files, each with what this build decides by it.
func recordRules(files map[string][]byte) error {
	paths, err := ruleFiles()
	if err != nil {
		return err
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		decisions, err := Decide(text)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		name := "rules/" + filepath.Base(path)
		files[name], files[name+".txt"] = text, []byte(strings.Join(decisions, "\n")+"\n")
	}
	return nil
}

// requests are what Decide asks about, in turn.
var requests = []map[string]string{
	{"user": "kristie"},
	{"user": "kristie", "api": "createURL"},
	{"user": "tim", "api": "createURL", "tier": "gold"},
	{"user": "tim", "api": "createURL", "tier": "silver", "ip": "203.0.113.7"},
	{"api": "createURL", "tier": "gold"},
	{"user": "kristie", "api": "login", "ip": "203.0.113.7"},
	{"api": "login", "ip": "2001:db8::1"},
	{"api": "login", "ip": "10.1.2.3"},
	{"api": "login"},
	{"user": "tim", "api": "pay"},
	{"user": "kristie", "api": "completion", "model": "large-3", "tokens": "120", "tenant": "a", "class": "batch"},
	{"user": "kristie", "api": "completion", "customer": "mallory", "tokens": "7", "tenant": "a", "class": "interactive"},
	{"user": "tim", "path": "/v1/search", "ip": "198.51.100.3", "customer": "acme", "signed_in": "no"},
	{"user": "tim", "path": "/v1/upload", "ip": "203.0.113.9", "customer": "ourselves"},
	{"user": "tim", "path": "/v1/health", "tier": "gold", "tenant": "b"},
	{"domain": "shop", "api": "login", "ip": "203.0.113.7"},
	{"domain": "shop", "user": "kristie"},
}

// Decide asks one checker without a fleet, by the rules in this text, the same questions over three seconds, and says
// how each was decided.
func Decide(text []byte) ([]string, error) {
	set, err := readRules(text)
	if err != nil {
		return nil, err
	}
	c, err := check.New(check.Options{Rules: set})
	if err != nil {
		return nil, err
	}
	var list []string
	for i := range 12 * len(requests) {
		now := Start + int64(i)*int64(3*time.Second)/int64(12*len(requests))
		request, cost := requests[i%len(requests)], int64(1+i/len(requests)%2)
		d := c.CheckAt(now, identity.FromMap(request), cost)
		verdict := "deny"
		if d.Allowed {
			verdict = "allow"
		}
		list = append(list, fmt.Sprintf("%s cost %d: %s by %q, limit %d, remaining %d", nameOf(request), cost, verdict, d.Rule, d.Limit, d.Remaining))
		c.Step(now)
	}
	return list, nil
}

func nameOf(request map[string]string) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(request)) {
		list = append(list, name+"="+request[name])
	}
	return strings.Join(list, " ")
}
