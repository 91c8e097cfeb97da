package architecture

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/pkg/rules/envoyrules"
)

var (
	fenced   = regexp.MustCompile("(?ms)^ *```(\\w*)\n(.*?)^ *```$")
	inline   = regexp.MustCompile("`[^`\n]*`")
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading  = regexp.MustCompile(`(?m)^#+ (.*)$`)
	unlinked = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// pages are the Markdown documents of the repository, by path from its top.
func pages(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := d.Name(); d.IsDir() && (name == ".git" || name == "node_modules" || name == "testdata") {
			return fs.SkipDir
		}
		if filepath.Ext(path) != ".md" {
			return nil
		}
		text, err := os.ReadFile(path)
		name, _ := filepath.Rel(root, path)
		all[filepath.ToSlash(name)] = string(text)
		return err
	})
	daemontest.Must(t, err)
	return all
}

// anchors are the places of a page that links can name, by GitHub's rules.
func anchors(markdown string) (names []string) {
	for _, h := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(markdown, ""), -1) {
		text := strings.ToLower(unlinked.ReplaceAllString(h[1], "$1"))
		names = append(names, strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || r > 127 || '0' <= r && r <= '9' || 'a' <= r && r <= 'z':
				return r
			}
			return -1
		}, text))
	}
	return names
}

// TestLinksLead: each relative link of each page leads to a file, and to a heading of it.
func TestLinksLead(t *testing.T) {
	all := pages(t)
	links := 0
	for name, text := range all {
		text = inline.ReplaceAllString(fenced.ReplaceAllString(text, ""), "")
		for _, match := range link.FindAllStringSubmatch(text, -1) {
			target, anchor, anchored := strings.Cut(match[1], "#")
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			links++
			path := filepath.ToSlash(filepath.Join(filepath.Dir(name), target))
			if target == "" {
				path = name
			} else if _, err := os.Stat(filepath.Join(root, path)); err != nil {
				t.Errorf("%s links to %s: %v", name, match[1], err)
				continue
			}
			if page, ok := all[path]; ok && anchored && !slices.Contains(anchors(page), anchor) {
				t.Errorf("%s links to %s: it has no such heading", name, match[1])
			}
		}
	}
	if links < 300 {
		t.Errorf("%d links found", links)
	}
}

// TestPagesSayWhomTheyAreFor: each page of docs begins with its readers, and ends with where to go
// from there.
func TestPagesSayWhomTheyAreFor(t *testing.T) {
	for name, text := range pages(t) {
		if !strings.HasPrefix(name, "docs/") {
			continue
		}
		paragraphs := strings.Split(strings.TrimSpace(text), "\n\n")
		if len(paragraphs) < 3 || !strings.HasPrefix(paragraphs[1], "For ") {
			t.Errorf("%s does not begin with whom it is for", name)
		}
		if !strings.HasPrefix(paragraphs[len(paragraphs)-1], "Next: ") {
			t.Errorf("%s does not end with what to read next", name)
		}
	}
}

// TestExamplesOfPagesAreRead: complete rules in any page are valid. Those of docs/rules.md are
// tested with the format.
func TestExamplesOfPagesAreRead(t *testing.T) {
	examples := 0
	for name, text := range pages(t) {
		for _, block := range fenced.FindAllStringSubmatch(text, -1) {
			if block[1] != "yaml" || !strings.HasPrefix(block[2], "rules:") {
				continue
			}
			examples++
			if _, err := envoyrules.Read([]byte(block[2])); err != nil {
				t.Errorf("%s: %v in\n%s", name, err, block[2])
			}
		}
	}
	if examples < 8 {
		t.Errorf("%d examples found", examples)
	}
}

// TestReadmeIsShort: it has to be read in a minute.
func TestReadmeIsShort(t *testing.T) {
	text := pages(t)["README.md"]
	if words := len(strings.Fields(fenced.ReplaceAllString(text, ""))); words > 700 {
		t.Errorf("README.md has %d words beside its code, want at most 700", words)
	}
	before, _, _ := strings.Cut(text, "## Try it")
	if lines := strings.Count(before, "\n"); lines > 45 {
		t.Errorf("the demo comes after %d lines of README.md", lines)
	}
}

// TestReadmeHasTheFiguresOfTheDocuments: a row of its table is one of docs/accuracy.md, whose
// figures tests simulate.
func TestReadmeHasTheFiguresOfTheDocuments(t *testing.T) {
	all := pages(t)
	rows := regexp.MustCompile(`(?m)^\| (\w+ \d+×) \| ([^|]*) \|$`).FindAllStringSubmatch(all["README.md"], -1)
	if len(rows) < 3 {
		t.Fatalf("README.md has the rows %q", rows)
	}
	for _, row := range rows {
		if !strings.Contains(all["docs/accuracy.md"], "| "+row[1]+" | "+row[2]+" |") {
			t.Errorf("docs/accuracy.md does not have the figures of %s in README.md, %s", row[1], row[2])
		}
	}
}
