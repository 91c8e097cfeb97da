package envoyrules

import (
	"os"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

// What a descriptor of a request matches in a file, case by case. testdata/semantics.yaml has the
// cases, each with what the original's documentation says of it.
func TestDocumentedMatching(t *testing.T) {
	text, err := os.ReadFile("testdata/semantics.yaml")
	must(t, err)
	var cases []struct {
		Says, Configuration string
		Requests            []struct{ Is, Want string }
	}
	must(t, yaml.Unmarshal(text, &cases))
	if len(cases) < 10 {
		t.Fatalf("%d cases", len(cases))
	}
	for _, c := range cases {
		set, err := Read([]byte(c.Configuration))
		if err != nil {
			t.Errorf("%s: %v", c.Says, err)
			continue
		}
		for _, r := range c.Requests {
			domain, entries := "d", []string(nil)
			for _, word := range strings.Fields(r.Is) {
				if key, value, ok := strings.Cut(word, "="); ok {
					entries = append(entries, key, value)
				} else {
					domain = word
				}
			}
			if got := verdict(set, request(domain, entries...)); got != r.Want {
				t.Errorf("%s: %s: got %s, want %s", c.Says, r.Is, got, r.Want)
			}
		}
	}
}
