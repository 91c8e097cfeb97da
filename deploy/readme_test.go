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

// TestReadmesListEverything: each file and directory is listed, and each link leads somewhere.
func TestReadmesListEverything(t *testing.T) {
	ignored := []string{"README.md", "Dockerfile.dockerignore", "lint"}
	for _, dir := range []string{".", "proxies"} {
		var linked []string
		for _, link := range regexp.MustCompile(`\]\(([^)#:]+)\)`).FindAllStringSubmatch(deploytest.Read(t, dir+"/README.md"), -1) {
			linked = append(linked, strings.Split(link[1], "/")[0])
			if _, err := os.Stat(filepath.Join(dir, filepath.FromSlash(link[1]))); err != nil {
				t.Error(err)
			}
		}
		entries, err := os.ReadDir(dir)
		must(t, err)
		for _, e := range entries {
			name := e.Name()
			isOurs := strings.HasSuffix(name, ".go") || strings.HasPrefix(name, ".") || slices.Contains(ignored, name)
			if !isOurs && !slices.Contains(linked, name) {
				t.Errorf("%s/README.md does not list %s", dir, name)
			}
		}
	}
}
