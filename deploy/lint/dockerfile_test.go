package lint

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/moby/buildkit/client/llb"
	"github.com/moby/buildkit/client/llb/sourceresolver"
	"github.com/moby/buildkit/frontend/dockerfile/dockerfile2llb"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
	"github.com/opencontainers/go-digest"
	ocispecs "github.com/opencontainers/image-spec/specs-go/v1"
)

// anyImage stands for every image: none can be asked for here.
type anyImage struct{}

func (anyImage) ResolveImageConfig(_ context.Context, ref string, _ sourceresolver.Opt) (string, digest.Digest, []byte, error) {
	config, err := json.Marshal(ocispecs.Image{Platform: ocispecs.Platform{OS: "linux", Architecture: "amd64"}})
	return ref, digest.FromBytes(config), config, err
}

// TestDockerfile asks BuildKit's linter, as "docker build --check" does.
func TestDockerfile(t *testing.T) {
	text := []byte(file(t, "../Dockerfile"))
	source := llb.NewSourceMap(nil, "Dockerfile", "Dockerfile", text)
	source.Definition = new(llb.Definition)
	results, err := dockerfile2llb.DockerfileLint(t.Context(), text, dockerfile2llb.ConvertOpt{SourceMap: source, MetaResolver: anyImage{}})
	must(t, err)
	if results.Error != nil {
		t.Errorf("%+v", results.Error)
	}
	for _, w := range results.Warnings {
		t.Errorf("%s: %s %s", w.RuleName, w.Description, w.Detail)
	}
}

// stages are the Dockerfile's.
func stages(t *testing.T) []instructions.Stage {
	t.Helper()
	tree, err := parser.Parse(strings.NewReader(file(t, "../Dockerfile")))
	must(t, err)
	all, _, err := instructions.Parse(tree.AST, nil)
	if err != nil || len(all) != 2 {
		t.Fatalf("%d stages, %v", len(all), err)
	}
	return all
}

// TestImage: what there is at the end is nobody's, on nothing, and starts a command that was
// copied.
func TestImage(t *testing.T) {
	last := stages(t)[1]
	if last.BaseName != "scratch" {
		t.Errorf("on %s", last.BaseName)
	}
	user, copied := "", ""
	for _, c := range last.Commands {
		switch c := c.(type) {
		case *instructions.UserCommand:
			user = c.User
		case *instructions.CopyCommand:
			if c.From != "build" {
				t.Errorf("%v is from elsewhere", c)
			}
			copied += strings.Join(c.SourcePaths, " ") + " → " + c.DestPath + "\n"
		case *instructions.RunCommand:
			t.Error("there is nothing to run it with")
		}
	}
	if user != "65532:65532" {
		t.Errorf("user %q", user)
	}
	if !strings.Contains(copied, "/out/checker /out/aggregator /out/offpath → /usr/local/bin/\n") {
		t.Errorf("%s", copied)
	}
}

// TestBuild runs the Dockerfile's build on what .dockerignore leaves of the sources: all commands
// come of it, static, and start.
func TestBuild(t *testing.T) {
	build := ""
	for _, c := range stages(t)[0].Commands {
		if c, ok := c.(*instructions.RunCommand); ok && strings.Contains(strings.Join(c.CmdLine, " "), "go build") {
			build = strings.Join(c.CmdLine, " ")
		}
	}
	out := t.TempDir()
	if !strings.Contains(build, " /out/ ") {
		t.Fatalf("%q", build)
	}
	c := exec.CommandContext(t.Context(), "sh", "-euc", strings.ReplaceAll(build, " /out/ ", " "+out+"/ "))
	c.Dir = sources(t)
	c.Env = append(os.Environ(), "TARGETOS=linux", "TARGETARCH="+runtime.GOARCH)
	if text, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	for _, command := range []string{"checker", "aggregator", "offpath"} {
		path := filepath.Join(out, command)
		isStatic(t, path)
		text, err := exec.CommandContext(t.Context(), path, "--version").CombinedOutput()
		if err != nil || !bytes.HasPrefix(text, []byte("offpath ")) {
			t.Errorf("%v: %s", err, text)
		}
	}
}

func isStatic(t *testing.T, path string) {
	t.Helper()
	f, err := elf.Open(path)
	must(t, err)
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Errorf("%s needs a loader", path)
		}
	}
	if libraries, err := f.ImportedLibraries(); err == nil && len(libraries) > 0 {
		t.Errorf("%s needs %v", path, libraries)
	}
}

// sources copies what a builder gets.
func sources(t *testing.T) (dir string) {
	t.Helper()
	patterns, err := ignorefile.ReadAll(strings.NewReader(file(t, "../Dockerfile.dockerignore")))
	must(t, err)
	ignored, err := patternmatcher.New(patterns)
	must(t, err)
	dir = t.TempDir()
	root := filepath.Join("..", "..")
	copied := 0
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		skip, err := ignored.MatchesOrParentMatches(name)
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (skip || name == ".git"): // a checkout's own business
			return filepath.SkipDir
		case entry.IsDir():
			return os.MkdirAll(filepath.Join(dir, name), 0o700)
		case skip || !entry.Type().IsRegular():
			return nil
		}
		copied++
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if strings.HasSuffix(name, "_test.go") || filepath.Base(name) == ".env" {
			t.Errorf("%s is not needed", name)
		}
		return os.WriteFile(filepath.Join(dir, name), text, 0o600)
	})
	if err != nil || copied < 50 {
		t.Fatalf("%d files, %v", copied, err)
	}
	return dir
}
