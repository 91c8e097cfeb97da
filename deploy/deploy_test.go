package deploy_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/offpath-io/offpath/deploy"
	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
)

// TestExamples: every file in rules is read, and means what its comments say.
func TestExamples(t *testing.T) {
	now := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	files, err := filepath.Glob("rules/*.yaml")
	must(t, err)
	untested := make(map[string]bool)
	for _, file := range files {
		untested[file] = true
	}
	for _, tt := range []struct {
		file, why string
		attrs     map[string]string
		want      string // what is found: names, with the limit of an override, or the list that the caller is on
	}{
		{"per-user", "a user", map[string]string{"user": "kristie"}, "per-user-second 15, per-user-hour 5000"},
		{"per-user", "a guest", map[string]string{"ip": "203.0.113.9", "signed_in": "no"}, "anonymous 60"},
		{"per-ip", "from outside", map[string]string{"ip": "203.0.113.9", "user": "a"}, "per-ip 100, per-user-and-ip 20"},
		{"per-ip", "from within", map[string]string{"ip": "10.1.2.3"}, "per-ip allowed"},
		{"per-ip", "a bad one", map[string]string{"ip": "198.51.100.9"}, "per-ip denied"},
		{"login", "a login", map[string]string{"api": "login", "user": "a", "ip": "203.0.113.9"}, "login-failures-per-user 3, login-failures-per-ip 3"},
		{"login", "from an office", map[string]string{"api": "login", "user": "a", "ip": "203.0.113.7"}, "login-failures-per-user 3, login-failures-per-ip 30"},
		{"login", "something else", map[string]string{"api": "read", "user": "a"}, ""},
		{"tiers", "who pays nothing", map[string]string{"path": "/v1/x", "customer": "a"}, "per-customer 10, per-customer-month 1000000"},
		{"tiers", "gold", map[string]string{"path": "/v1/x", "customer": "a", "tier": "gold"}, "per-customer 100, per-customer-month 20000000"},
		{"tiers", "silver", map[string]string{"path": "/v1/x", "customer": "a", "tier": "silver"}, "per-customer 40, per-customer-month 4000000"},
		{"tiers", "blocked", map[string]string{"path": "/v1/x", "customer": "mallory", "tier": "gold"}, "per-customer blocked, per-customer-month 20000000"},
		{"llm-tokens", "a large model", map[string]string{"api": "completion", "user": "a", "model": "large-2", "tokens": "700"}, "tokens-per-user 100000 at 700, requests-per-user 60, large-model 20"},
		{"capacity", "analytics", map[string]string{"tenant": "a", "class": "analytics"}, "whole-service 20000 to 0.5, per-tenant 500, per-tenant-minute 20000"},
		{"capacity", "payments", map[string]string{"tenant": "a", "class": "payments"}, "whole-service 20000, per-tenant 500, per-tenant-minute 20000"},
	} {
		delete(untested, filepath.Join("rules", tt.file+".yaml"))
		text, err := os.ReadFile(filepath.Join("rules", tt.file+".yaml"))
		must(t, err)
		set, err := rules.Parse(text)
		if err != nil {
			t.Error(err)
			continue
		}
		var found []string
		attrs := identity.FromMap(tt.attrs)
		for _, r := range set.Find(nil, attrs) {
			if _, ok := r.AppendKey(nil, attrs); ok {
				found = append(found, inWords(r, attrs, now))
			}
		}
		if got := strings.Join(found, ", "); got != tt.want {
			t.Errorf("%s: %s: got %q, want %q", tt.file, tt.why, got, tt.want)
		}
	}
	if len(untested) > 0 {
		t.Errorf("not tested: %v", untested)
	}
	if _, err := rules.Parse(deploy.Rules); err != nil {
		t.Error(err)
	}
}

func inWords(r *rules.Rule, attrs identity.Attributes, now time.Time) string {
	i := r.Override(attrs, now)
	text := fmt.Sprint(r.Name, " ", r.Terms(i).Limit)
	if i >= 0 && r.Overrides[i].Action != rules.Limited {
		text = fmt.Sprint(r.Name, " ", r.Overrides[i].Action)
	}
	switch allowed, denied := r.Listed(attrs); {
	case allowed:
		text = r.Name + " allowed"
	case denied:
		text = r.Name + " denied"
	}
	if cost, err := r.CostOf(attrs, 1); err != nil || cost != 1 {
		text += fmt.Sprint(" at ", cost)
	}
	if share := r.Share(attrs); share != 1 {
		text += fmt.Sprint(" to ", share)
	}
	return text
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
