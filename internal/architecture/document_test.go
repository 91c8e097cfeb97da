package architecture

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
)

// The package table of docs/packages.md names every package of this module, and nothing that does
// not exist.
func TestDocumentNamesEveryPackage(t *testing.T) {
	named := packageTable(document(t, "packages.md"))
	if len(named) == 0 {
		t.Fatal("docs/packages.md has no table whose first heading is \"package\"")
	}
	for _, name := range slices.Sorted(maps.Keys(packages(t))) {
		if !slices.Contains(named, name) {
			t.Errorf("the package table of docs/packages.md does not name %s", name)
		}
	}
	for _, name := range named {
		checkExists(t, "the package table of docs/packages.md", name)
	}
}

// The overview sends newcomers to files: each one is there.
func TestOverviewNamesFiles(t *testing.T) {
	text := document(t, "architecture.md")
	if lines := strings.Count(text, "\n"); lines > 150 {
		t.Errorf("docs/architecture.md has %d lines, want at most 150: details go to protocol.md", lines)
	}
	paths := regexp.MustCompile("`((?:cmd|internal|loadtest|pkg)/[^`]*)`").FindAllStringSubmatch(text, -1)
	if len(paths) < 20 {
		t.Errorf("docs/architecture.md names %d files", len(paths))
	}
	for _, path := range paths {
		checkExists(t, "docs/architecture.md", path[1])
	}
}

// Each arrow of the picture of packages is an import.
func TestPictureOfPackages(t *testing.T) {
	arrows := picture(document(t, "architecture.md"))
	if len(arrows) < 10 {
		t.Fatalf("docs/architecture.md has a picture with the arrows %q", arrows)
	}
	all := packages(t)
	for _, arrow := range arrows {
		if !slices.Contains(all[arrow[0]].code, arrow[1]) {
			t.Errorf("the picture in docs/architecture.md has an arrow from %q to %q, "+
				"which is not an import", arrow[0], arrow[1])
		}
	}
}

var (
	mermaid = regexp.MustCompile("(?s)```mermaid\n(.*?)\n```")
	node    = regexp.MustCompile(`(\w+)\["((?:cmd|internal|pkg)/[^"]*)"\]`)
	edge    = regexp.MustCompile(`(\w+)(?:\["[^"]*"\])? --> (\w+)`)
)

// picture returns the arrows of those pictures in a document that have packages as nodes: which
// package imports which.
func picture(markdown string) (arrows [][2]string) {
	for _, block := range mermaid.FindAllStringSubmatch(markdown, -1) {
		names := map[string]string{}
		for _, n := range node.FindAllStringSubmatch(block[1], -1) {
			names[n[1]] = n[2]
		}
		if len(names) == 0 {
			continue
		}
		for _, e := range edge.FindAllStringSubmatch(block[1], -1) {
			arrows = append(arrows, [2]string{names[e[1]], names[e[2]]})
		}
	}
	return arrows
}

func document(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs", name))
	daemontest.Must(t, err)
	return string(text)
}

func checkExists(t *testing.T, where, path string) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(path))); err != nil {
		t.Errorf("%s names %s: %v", where, path, err)
	}
}

var quoted = regexp.MustCompile("`([^`]+)`")

// packageTable returns the packages named by the table whose first heading is "package": every word
// in backquotes in its first column, from the top of the repository (`pkg/check`, `loadtest/`), in
// order.
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
	text := document(t, "../SECURITY.md")
	there := map[string]bool{}
	defined := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, match := range defined.FindAllSubmatch(source, -1) {
			there[string(match[1])] = true
		}
		return err
	})
	daemontest.Must(t, err)
	named := regexp.MustCompile("`((?:Test|Fuzz)[^`]*)`").FindAllStringSubmatch(text, -1)
	if len(named) < 40 {
		t.Errorf("SECURITY.md names %d tests", len(named))
	}
	for _, match := range named {
		if !there[match[1]] {
			t.Errorf("SECURITY.md names %s, which does not exist", match[1])
		}
	}
}

var (
	quotation = regexp.MustCompile("(?m)^<!-- from (\\S+) -->\n```\\w*\n((?s:.*?))^```$")
	marker    = regexp.MustCompile(`(?m)^<!-- from \S+ -->$`)
)

// TestQuotedSources: a code block below <!-- from FILE -->, where FILE is a path from the top of
// the repository, has whole lines of that file, so that what readers copy is compiled and tested.
func TestQuotedSources(t *testing.T) {
	from := map[string]bool{}
	documents, err := filepath.Glob(root + "/*.md")
	daemontest.Must(t, err)
	below, err := filepath.Glob(root + "/docs/*.md")
	daemontest.Must(t, err)
	for _, path := range append(documents, below...) {
		data, err := os.ReadFile(path)
		daemontest.Must(t, err)
		found := quotation.FindAllStringSubmatch(string(data), -1)
		if markers := marker.FindAllString(string(data), -1); len(found) != len(markers) {
			t.Errorf("%s has %d markers, and %d of them with a code block below", path, len(markers), len(found))
		}
		for _, match := range found {
			source, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(match[1])))
			daemontest.Must(t, err)
			if match[2] == "" || !strings.Contains("\n"+string(source), "\n"+match[2]) {
				t.Errorf("%s quotes what is not in %s:\n%s", path, match[1], match[2])
			}
			from[filepath.Base(path)+" "+match[1]] = true
		}
	}
	if !from["README.md examples/fleet/main.go"] {
		t.Errorf("README.md does not quote examples/fleet/main.go: %v", from)
	}
}
