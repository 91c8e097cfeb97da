package deploy_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/offpath-io/offpath/internal/testing/deploytest"
)

// TestReadmeListsEverything: each file and directory is listed, and each link leads somewhere.
func TestReadmeListsEverything(t *testing.T) {
	readme := deploytest.Read(t, "README.md")
	var links []string
	for _, link := range regexp.MustCompile(`\]\(([^)#]+)\)`).FindAllStringSubmatch(readme, -1) {
		links = append(links, link[1])
		if _, err := os.Stat(filepath.FromSlash(link[1])); err != nil {
			t.Error(err)
		}
	}
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		name := e.Name()
		switch {
		case strings.HasSuffix(name, ".go"), strings.HasPrefix(name, "."), name == "README.md", name == "Dockerfile.dockerignore", name == "deploytest", name == "lint":
		case !slices.ContainsFunc(links, func(link string) bool { return strings.Split(link, "/")[0] == name }):
			t.Errorf("README.md does not list %s", name)
		}
	}
}
