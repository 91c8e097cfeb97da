package envoyrules

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/offpath-io/offpath/pkg/rules"
)

// FuzzImport: no input panics, every refusal has a reason, and what was accepted is written and
// read as rules.
func FuzzImport(f *testing.F) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		f.Fatal("no examples", err)
	}
	for _, path := range files {
		data, err := os.ReadFile(path)
		must(f, err)
		f.Add(data)
	}
	for _, seed := range []string{with("key: a\n" + ok), with("key: a\nvalue: b*\nshare_threshold: on\n" + ok), laughs(),
		"domain: d\ndescriptors: &a [{key: a, descriptors: *a}]\n", with("key: a\n<<: {rate_limit: {unlimited: yes}}"),
		with("key: a\nrate_limit: {unit: year, requests_per_unit: 0, name: n, replaces: [{name: m}]}"), "domain: *d\n", "domain: &d [*d]\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		set, err := Import(data)
		if err != nil {
			refusal, ok := errors.AsType[*rules.Error](err)
			if !ok || refusal.Reason == "" || set != nil {
				t.Fatalf("%v, %+v", set, err)
			}
			return
		}
		text, err := set.Marshal()
		if err != nil {
			return // it has become too long
		}
		again, err := rules.Parse(text)
		if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		if changes := rules.Diff(set, again); len(changes) > 0 {
			t.Fatalf("changed by %v", changes)
		}
	})
}
