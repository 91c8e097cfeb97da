package rulesfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/offpath-io/offpath/pkg/rules"
)

// Whatever cannot be read, the error says that it was to be rules.
func TestUnreadable(t *testing.T) {
	broken := errors.New("broken")
	for path, want := range map[string]error{Stdin: broken, filepath.Join(t.TempDir(), "none.yaml"): os.ErrNotExist} {
		_, err := Open(path, iotest.ErrReader(broken))
		if !errors.Is(err, want) || !strings.HasPrefix(err.Error(), "load rules: ") {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
	}
}

// The files of a directory make one text, with the same rules, if envoyproxy/ratelimit's format
// allows it.
func TestDirectory(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("a.yaml", "\ufeff---\ndomain: d\ndescriptors: [{key: a, detailed_metric: true, rate_limit: {unit: day, requests_per_unit: 1}}] # no newline")
	write("b.yml", "domain: e\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 2}}]\n...\n")
	r, err := Open(dir, nil)
	if err != nil || r.NotOne != nil || len(r.Set.Rules()) != 2 || len(r.Warnings) != 1 {
		t.Errorf("%v: %+v", err, r)
	}
	if !strings.HasPrefix(r.Warnings[0].String(), filepath.Join(dir, "a.yaml")+":3:") {
		t.Error(r.Warnings[0])
	}
	write("c.yaml", "rules: [{name: a, key: [u], limit: 1/s}]\n")
	if r, err = Open(dir, nil); err != nil || r.NotOne != errNotOne || len(r.Set.Rules()) != 3 {
		t.Errorf("%v: %+v", err, r)
	}
}

// Files that are too long for one text, with what is put between them, are not blamed for their
// format.
func TestTooLongForOneText(t *testing.T) {
	dir := t.TempDir()
	const theirs = "domain: %s\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1}}]\n#"
	left := rules.MaxSize
	for _, name := range []string{"a", "b"} {
		text := fmt.Sprintf(theirs, name)
		if left -= len(text); name == "b" {
			text += strings.Repeat("x", left)
		}
		if err := os.WriteFile(filepath.Join(dir, name+".yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r, err := Open(dir, nil)
	if err != nil || len(r.Set.Rules()) != 2 {
		t.Fatalf("%v: %+v", err, r.Set)
	}
	if r.NotOne == nil || !strings.Contains(r.NotOne.Error(), "is longer than 1048576 bytes") {
		t.Error(r.NotOne)
	}
}
