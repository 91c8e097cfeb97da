package architecture

import (
	"errors"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
)

const (
	// module is the path of this module, root its directory as seen from here.
	module = "github.com/offpath-io/offpath"
	root   = "../.."
)

// imports are what the files of one directory import, sorted, without the standard library. Those
// of this module are written without its path: pkg/check; the one at its top is ".".
type imports struct {
	code  []string // of the package itself, on any platform
	tests []string // of its test files, in-package and external
}

// packages reads the imports of every package of this module, by directory (pkg/check). It parses
// the files rather than asking `go list`: that leaves out other platforms' files, and go test would
// not know that its result depends on them and show an old one from its cache.
func packages(t *testing.T) map[string]imports {
	t.Helper()
	found := map[string]imports{}
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return enter(file, entry.Name())
		}
		if !strings.HasSuffix(file, ".go") {
			return nil
		}
		read, err := fileImports(file)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(file))
		if err != nil {
			return err
		}
		dir = filepath.ToSlash(dir)
		all := found[dir]
		if strings.HasSuffix(file, "_test.go") {
			all.tests = merge(all.tests, read)
		} else {
			all.code = merge(all.code, read)
		}
		found[dir] = all
		return nil
	})
	daemontest.Must(t, err)
	return found
}

// enter says whether to look into a directory: not into what the go command ignores, and not into
// nested modules.
func enter(dir, name string) error {
	if dir == root {
		return nil
	}
	if name == "testdata" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") {
		return fs.SkipDir
	}
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	if err == nil {
		return fs.SkipDir
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func fileImports(file string) ([]string, error) {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
	if err != nil {
		return nil, err
	}
	var list []string
	for _, spec := range parsed.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return nil, err
		}
		if imported == module {
			list = append(list, ".")
		} else if !isStandard(imported) {
			list = append(list, strings.TrimPrefix(imported, module+"/"))
		}
	}
	return list, nil
}

// isStandard reports whether an import path is the standard library's: its first element is no
// domain.
func isStandard(imported string) bool {
	first, _, _ := strings.Cut(imported, "/")
	return !strings.Contains(first, ".")
}

func merge(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

// within reports whether an import path or a directory is the pattern, or lies below it if it ends
// in "/...".
func within(name, pattern string) bool {
	above, isTree := strings.CutSuffix(pattern, "/...")
	if isTree {
		return name == above || strings.HasPrefix(name, above+"/")
	}
	return path.Clean(name) == pattern
}
