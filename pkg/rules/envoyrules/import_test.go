package envoyrules

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func load(t *testing.T, name string) *rules.Set {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	must(t, err)
	set, err := Read(text)
	must(t, err)
	return set
}

// request is one descriptor of a request, as its domain and the entries by turns.
func request(domain string, entries ...string) identity.Attributes {
	attrs, times := identity.Attributes{{Name: Domain, Value: domain}}, map[string]int{Domain: 1}
	for i := 0; i < len(entries); i += 2 {
		times[entries[i]]++
		attrs = append(attrs, identity.Attribute{Name: Attribute(entries[i], times[entries[i]]), Value: entries[i+1]})
	}
	return attrs
}

// verdict is what limits the request: the limit, the window and the key; or "" if nothing does.
func verdict(set *rules.Set, attrs identity.Attributes) string {
	var all []string
	for _, r := range set.Find(nil, attrs) {
		text := ""
		switch i := r.Override(attrs, time.Unix(1e9, 0)); {
		case r.Unlimited:
			continue
		case i < 0:
			key, _ := r.AppendKey(nil, attrs)
			text = fmt.Sprintf("%d per %v by %q", r.Limit, r.Window.Length, key)
		case r.Overrides[i].Action == rules.Unlimited:
			continue
		case r.Overrides[i].Action == rules.Blocked:
			text = "blocked"
		}
		if r.Shadow {
			text += " in shadow"
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

func TestImportedRules(t *testing.T) {
	for _, tt := range []struct {
		file string
		why  string
		of   identity.Attributes
		want string
	}{
		{"messages.yaml", "two levels", request("postoffice", "kind", "advertisement", "telephone", "555"), `3 per 24h0m0s by "555"`},
		{"messages.yaml", "one level", request("postoffice", "telephone", "555"), `60 per 24h0m0s by "555"`},
		{"messages.yaml", "another domain", request("post", "telephone", "555"), ""},
		{"messages.yaml", "no domain", request("postoffice", "telephone", "555")[1:], ""},

		{"addresses.yaml", "a value with a limit of 0", request("front", "address", "192.0.2.66"), "blocked"},

		{"everything.yaml", "a wildcard", request("shop", "path", "/api/x"), `100 per 1m0s by "/api/x"`},
		{"everything.yaml", "a shared wildcard", request("shop", "file", "big/a"), `10 per 1h0m0s by ""`},
		{"everything.yaml", "a number", request("shop", "status", "404"), `1000 per 168h0m0s by ""`},
		{"everything.yaml", "a month, in shadow", request("shop", "plan", "free"), `10000 per 720h0m0s by "free" in shadow`},
		{"everything.yaml", "a year", request("shop", "year", "1"), `4294967295 per 8760h0m0s by "1"`},
		{"everything.yaml", "in quota mode", request("shop", "service", "billing"), `2 per 1m0s by ""`},
		{"everything.yaml", "a key twice", request("shop", "path", "/v1/users/7/avatar", "path", "x"), `4 per 1m0s by "/v1/users/7/avatar|x"`},
		{"everything.yaml", "replaced by nobody", request("shop", "group", "readers", "user", "a"), `5 per 1s by "a"`},
	} {
		if got := verdict(load(t, tt.file), tt.of); got != tt.want {
			t.Errorf("%s: %s: got %q, want %q", tt.file, tt.why, got, tt.want)
		}
	}
}

// What an imported rule is, in full.
func TestImportedRuleAsYAML(t *testing.T) {
	for file, want := range map[string]string{
		"messages.yaml": `rules:
  - name: postoffice|kind=advertisement|telephone
    match: {domain: postoffice, kind: advertisement, telephone: '*'}
    exact: true
    ordered: true
    key: [telephone]
    limit: 3/day
    algorithm: fixed_window
  - name: postoffice|telephone
    match: {domain: postoffice, telephone: '*'}
    exact: true
    ordered: true
    key: [telephone]
    limit: 60/day
    algorithm: fixed_window
`,
		"addresses.yaml": `rules:
  - name: front|address
    match: {domain: front, address: '*'}
    exclude: {address: [192.0.2.1, 192.0.2.66]}
    exact: true
    ordered: true
    key: [address]
    limit: 20/second
    algorithm: fixed_window
  - name: front|address=192.0.2.66
    match: {domain: front, address: 192.0.2.66}
    exact: true
    ordered: true
    key: []
    limit: 1/second
    algorithm: fixed_window
    overrides:
      - {match: {domain: front}, limit: blocked}
`,
	} {
		if text, err := load(t, file).Marshal(); err != nil || string(text) != want {
			t.Errorf("%s: %v, got\n%s", file, err, text)
		}
	}
	set := load(t, "everything.yaml")
	if r, ok := set.Lookup("shop|page=search|user"); !ok || strings.Join(r.Replaces, " ") != "shop|group=readers|user" {
		t.Errorf("replaces: %+v", r)
	}
}

func TestNames(t *testing.T) {
	long := strings.Repeat("ä", 70)
	for _, tt := range []struct{ domain, key, value, want string }{
		{"d", "k", "", "d|k"},
		{"d", "k", "v", "d|k=v"},
		{"d", "k", "/api/*", "d|k=/api/*"},
		{"d", "k", "a=b", "d|k=a=b"},
		{"d", "k=a", "b", "d|k%3Da=b"},
		{"d|e", "k", "a|b %", "d%7Ce|k=a%7Cb%20%25"},
		{"d", "k", "\u00a0", "d|k=%C2%A0"},
		{"d", "k", long, "d|k=" + strings.Repeat("ä", 49)},
	} {
		text := fmt.Sprintf("domain: %q\ndescriptors: [{key: %q, value: %q, rate_limit: {unit: second, requests_per_unit: 1}}]\n", tt.domain, tt.key, tt.value)
		set, err := Import([]byte(text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := set.Rules()[0].Name; got != tt.want && (!strings.HasPrefix(got, tt.want+"~") || len(got) > maxName) {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
	// Long names that differ at their end differ.
	if a, b := bounded(long+long+"a"), bounded(long+long+"b"); a == b || bounded(long+long+"a") != a {
		t.Errorf("%s and %s", a, b)
	}
}

func TestReadKnowsTheFormat(t *testing.T) {
	for _, tt := range []struct{ why, text, want string }{
		{"ours", "rules: [{name: a, key: [u], limit: 1/s}]", ""},
		{"theirs", "domain: d\ndescriptors: [{key: a, rate_limit: {unit: second, requests_per_unit: 1}}]", ""},
		{"theirs, without a domain", "descriptors: []", "line 1, column 1: domain: is missing"},
		{"theirs, without a limit", "domain: d\ndescriptors: [{key: a}]", ""},
		{"two documents of theirs", "domain: d\n---\ndomain: e\n", ""},
		{"two documents of ours", "rules: [{name: a, key: [u], limit: 1/s}]\n---\nrules: []\n", "line 2, column 1: a second document: want one"},
		{"both", "rules: []\ndomain: d\n", `line 2, column 1: unknown field "domain" (want rules)`},
		{"neither", "a: b", `unknown field "a" (want rules)`},
		{"theirs, without a list", "domain: d\ndescriptors: {}\n", "line 2, column 14: descriptors: want a list, got a mapping"},
		{"nothing", "", "is empty: want rules"},
		{"no YAML", "domain: [", "not YAML"},
	} {
		_, err := Read([]byte(tt.text))
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", tt.why, err, tt.want)
		}
	}
}
