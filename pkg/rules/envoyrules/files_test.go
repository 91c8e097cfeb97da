package envoyrules

import (
	"fmt"
	"strings"
	"testing"
)

const limited = "domain: %s\ndescriptors:\n- {key: %s, rate_limit: {unit: second, requests_per_unit: 1}}\n"

func theirs(name, domain, key string) File {
	return File{name, fmt.Appendf(nil, limited, domain, key)}
}

// Files of both formats make one set, and a domain may stand in several.
func TestFilesTogether(t *testing.T) {
	set, warnings, err := ReadFiles(
		theirs("a.yaml", "d", "x"), theirs("b.yaml", "e", "x"),
		File{"c.yaml", []byte("rules:\n- {name: own, key: [user], limit: 1/s}\n- {name: other, key: [user], limit: 2/s, replaces: [own]}\n")},
		theirs("d.yaml", "d", "y"),
	)
	must(t, err)
	var names []string
	for _, r := range set.Rules() {
		names = append(names, r.Name)
	}
	if got := strings.Join(names, " "); got != "own other d|x d|y e|x" || len(warnings) > 0 {
		t.Errorf("got %s; %v", got, warnings)
	}
}

// A file whose rules are all commented out does not refuse the others. One with nothing in it may
// be a write that broke off, and one alone has no rules.
func TestCommentedOut(t *testing.T) {
	good, out := theirs("a.yaml", "d", "x"), File{"b.yaml", []byte("# domain: e\n---\n# descriptors: []\n")}
	const warning = "b.yaml:1:1: all of it is commented out: it is left out"
	for _, tt := range []struct {
		why     string
		files   []File
		rules   int
		warning string
		err     string
	}{
		{"one of two", []File{good, out}, 1, warning, ""},
		{"the first one", []File{out, good}, 1, warning, ""},
		{"beside an empty one", []File{good, out, {"c.yaml", []byte(" \n")}}, 0, "", "c.yaml:1:1: is empty"},
		{"beside one with a null", []File{good, {"c.yaml", []byte("---\n")}}, 0, "", "c.yaml:1:1: is empty"},
		{"alone", []File{out}, 0, "", "b.yaml:2:1: is empty"},
		{"both", []File{{"a.yaml", []byte("# a")}, out}, 0, "", "a.yaml:1:1: is empty"},
	} {
		set, warnings, err := ReadFiles(tt.files...)
		if tt.err != "" {
			if err == nil || !strings.HasPrefix(err.Error(), tt.err) {
				t.Errorf("%s: got %v, want %s", tt.why, err, tt.err)
			}
			continue
		}
		if err != nil || len(set.Rules()) != tt.rules || len(warnings) != 1 || warnings[0].String() != tt.warning {
			t.Errorf("%s: %v, %v", tt.why, err, warnings)
		}
	}
}

// All mistakes of all files are told, each with its file.
func TestMistakesOfFiles(t *testing.T) {
	for _, tt := range []struct {
		why   string
		files []File
		want  string
	}{
		{"of three files", []File{
			{"a.yaml", []byte("domain: ''\n")}, theirs("b.yaml", "d", "x"), {"c.yaml", []byte("rules: []\n")}, {"d.yaml", []byte("domain: [\n")},
		}, "a.yaml:1:9: domain: is missing or empty\nc.yaml:1:8: rules: there are no rules: to limit nobody, write one with unlimited: true\nd.yaml:2:1: not YAML: did not find expected node content"},
		{"one descriptor twice", []File{theirs("a.yaml", "d", "x"), theirs("b.yaml", "d", "x")},
			"b.yaml:3:3: descriptor: the same key and value as one of this domain in a.yaml"},
		{"one rule twice", []File{theirs("a.yaml", "d", "x"), {"b.yaml", []byte("rules: [{name: d|x, key: [], limit: 1/s}]")}},
			`a.yaml:3:3: rule 2 ("d|x"): name: "d|x" is the name of rule 1 too: want another one`},
	} {
		set, _, err := ReadFiles(tt.files...)
		if err == nil || err.Error() != tt.want || set != nil {
			t.Errorf("%s: got %v\nwant %s", tt.why, err, tt.want)
		}
	}
}

// Each field that means something else here is told of.
func TestWarnings(t *testing.T) {
	_, warnings, err := ReadFiles(File{"a.yaml", []byte(`domain: d
descriptors:
- key: a
  detailed_metric: true
  value_to_metric: true
  metadata: {owner: [web]}
  shadow_mode: true
  quota_mode: true
  rate_limit: {unit: second, name: n, replaces: [{name: m}]}
- {key: b, detailed_metric: false, metadata: null, share_threshold: false, rate_limit: {unit: second, requests_per_unit: 1}}
`)})
	must(t, err)
	var got []string
	for _, w := range warnings {
		got = append(got, w.String())
	}
	const metrics = "metrics have a label for the descriptor of the file here, and none for values"
	want := []string{
		"a.yaml:9:15: rate_limit: requests_per_unit: is missing, which is 0: every request is denied",
		"a.yaml:9:49: rate_limit: replaces: one in shadow_mode replaces only others in it here: nothing would limit the request in their place",
		"a.yaml:4:20: detailed_metric: " + metrics, "a.yaml:5:20: value_to_metric: " + metrics,
		"a.yaml:6:13: metadata: answers have no dynamic metadata here",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
