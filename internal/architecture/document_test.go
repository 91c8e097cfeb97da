package architecture

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The package table of docs/architecture.md names every package of this module, and nothing that does not exist.
func TestDocumentNamesEveryPackage(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	named := packageTable(string(text))
	if len(named) == 0 {
		t.Fatal("docs/architecture.md has no table whose first heading is \"package\"")
	}
	for _, name := range slices.Sorted(maps.Keys(packages(t))) {
		if !slices.Contains(named, name) {
			t.Errorf("the package table of docs/architecture.md does not name %s", name)
		}
	}
	for _, name := range named {
		if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(name))); errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the package table of docs/architecture.md names %s, which does not exist", name)
		} else if err != nil {
			t.Error(err)
		}
	}
}

var quoted = regexp.MustCompile("`([^`]+)`")

// packageTable returns the packages named by the table whose first heading is "package": every word in backquotes in
// its first column, from the top of the repository (`pkg/check`, `loadtest/`), in order.
func packageTable(markdown string) []string {
	var names []string
	inside := false
	for line := range strings.Lines(markdown) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) < 3 || cells[0] != "" {
			inside = false
			continue
		}
		first := strings.TrimSpace(cells[1])
		if strings.EqualFold(first, "package") {
			inside = true
			continue
		}
		if !inside {
			continue
		}
		for _, match := range quoted.FindAllStringSubmatch(first, -1) {
			names = append(names, strings.TrimSuffix(match[1], "/"))
		}
	}
	return names
}

// TestSecurityNamesTests: each test that SECURITY.md names is there, so that none of its promises
// loses its test unnoticed.
func TestSecurityNamesTests(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "SECURITY.md"))
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	defined := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	err = filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, match := range defined.FindAllSubmatch(source, -1) {
			there[string(match[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`((?:Test|Fuzz)[^`]*)`").FindAllStringSubmatch(string(text), -1)
	if len(named) < 40 {
		t.Errorf("SECURITY.md names %d tests", len(named))
	}
	for _, match := range named {
		if !there[match[1]] {
			t.Errorf("SECURITY.md names %s, which does not exist", match[1])
		}
	}
}

func TestPackageTable(t *testing.T) {
	const document = `
| word | meaning |
| --- | --- |
| ` + "`pkg/word`" + ` | not a package |

| Package | duty |
| --- | --- |
| ` + "`pkg/a`, `pkg/a/b`" + ` | uses ` + "`pkg/c`" + ` |
| ` + "`loadtest/`" + ` | load |
| plain | no name |

` + "`pkg/d`" + ` is prose.
| ` + "`pkg/e`" + ` | another table |
`
	want := []string{"pkg/a", "pkg/a/b", "loadtest"}
	if got := packageTable(document); !slices.Equal(got, want) {
		t.Errorf("named are %q, want %q", got, want)
	}
}
