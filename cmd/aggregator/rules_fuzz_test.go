package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/offpath-io/offpath/deploy"
	"github.com/offpath-io/offpath/pkg/rules"
)

// FuzzWithout takes the first rule out of whatever is a set of several: what is left is a set of
// the others, unchanged, unless one of them names the one that is gone.
func FuzzWithout(f *testing.F) {
	f.Add(string(deploy.Rules))
	f.Add(twoRules)
	f.Add(`{"rules": [{"name": "a", "key": ["x"], "limit": "1/s"}, {"name": "\u00e9'\"", "match": {"y": "# no: comment"}, "key": ["- "], "limit": "2/h"}]}`)
	f.Add("rules:\n- name: a\n  key: [x]\n  limit: 1/s\n# of b\n- name: 'b'\n  match: {p: \"a\\tb\", q: ''}\n  key: [x]\n  limit: 3/d\n")
	f.Fuzz(func(t *testing.T, text string) {
		set, err := parseRules([]byte(text))
		if err != nil || len(set.Rules()) < 2 {
			return
		}
		gone := set.Rules()[0].Name
		rest, err := without(set.text, []string{gone})
		must(t, err)
		left, err := parseRules(rest)
		if err != nil {
			if strings.Contains(err.Error(), fmt.Sprintf("%q", gone)) {
				return
			}
			t.Fatalf("%v\n%s", err, rest)
		}
		changes := rules.Diff(set.Set, left.Set)
		if len(changes) != 1 || changes[0].Kind != rules.Removed || changes[0].Name != gone {
			t.Errorf("without %q: %v\n%s", gone, changes, rest)
		}
	})
}
