package promises

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Nothing that users of a release could rely on is gone: of the Go API, the flags and variables, the metrics. What is
// taken back on purpose is listed in the recording's gone.txt, with the reason.
func TestNothingIsGone(t *testing.T) {
	root := filepath.Join("..", "..")
	bin, remove, err := Build(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	defer remove()
	for file, face := range faces {
		t.Run(file, func(t *testing.T) {
			today, err := face(t.Context(), root, bin)
			if err != nil {
				t.Fatal(err)
			}
			recordings(t, file, func(t *testing.T, files []string) {
				was := linesOf(string(read(t, files[0])))
				if len(was) < 10 {
					t.Errorf("%s has only %q", files[0], was)
				}
				excused, err := excuses(filepath.Join(filepath.Dir(files[0]), "gone.txt"))
				if err != nil {
					t.Fatal(err)
				}
				for _, line := range missing(was, today) {
					if !slices.Contains(excused, line) {
						t.Errorf("gone, or changed:\n%s", line)
					}
				}
				for _, line := range excused {
					if slices.Contains(today, line) {
						t.Errorf("gone.txt lists what is there:\n%s", line)
					}
				}
			})
		})
	}
}

func linesOf(text string) []string { return strings.Split(strings.TrimSpace(text), "\n") }

// missing are the lines of was that today does not have.
func missing(was, today []string) (list []string) {
	for _, line := range was {
		if !slices.Contains(today, line) {
			list = append(list, line)
		}
	}
	return list
}

// excuses reads a file of lines that may be gone, each below a reason, which begins with a number sign.
func excuses(path string) (lines []string, err error) {
	data, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return nil, nil
	}
	return slices.DeleteFunc(linesOf(string(data)), func(line string) bool { return line == "" || strings.HasPrefix(line, "#") }), err
}

func TestMissing(t *testing.T) {
	if got := missing([]string{"a", "b", "c"}, []string{"d", "c", "a"}); !slices.Equal(got, []string{"b"}) {
		t.Errorf("missing are %q", got)
	}
}

func TestFlagsAndMetricsAreFound(t *testing.T) {
	flags := flagsIn("Usage: x --not-one\n\nFlags:\n  --rules FILE|nats\n        rules --neither\n        (OFFPATH_RULES; default x)\n  --json\n        as JSON\n")
	if want := []string{"--rules OFFPATH_RULES", "--json"}; !slices.Equal(flags, want) {
		t.Errorf("flags %q, want %q", flags, want)
	}
	metrics := metricsIn("# TYPE offpath_a counter\noffpath_a{rule=\"x\",outcome=\"y\"} 1\noffpath_a{rule=\"z\",outcome=\"y\"} 2\noffpath_b 3\ngo_c 4\n")
	if want := []string{"offpath_a{rule,outcome}", "offpath_b{}"}; !slices.Equal(metrics, want) {
		t.Errorf("metrics %q, want %q", metrics, want)
	}
}

// TestAPI lists a package that has one of everything.
func TestAPI(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"pkg/a/a.go": `package a
			const A, b = 1, 2
			const C Kind = 3
			var V []string
			type Kind uint8
			type S struct { X, Y int; z int; T; F func(n int) error }
			type I interface { M(a, b string) (n int, err error); n() }
			func F(a, b int, c ...string) (x *S) { return nil }
			func (s *S) Do() {}
			func (s *S) do() {}
			func (h hidden) Do() {}
			func G[K comparable](k K) {}
			type hidden struct { X int }`,
		"pkg/a/a_test.go":      "package a\nfunc Test() {}",
		"pkg/a/internal/b.go":  "package b\nfunc B() {}",
		"cmd/checker/main.go":  "package main\nfunc M() {}",
		"pkg/a/deeper/none.go": "package deeper\nfunc none() {}",
	} {
		path := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	got, err := API(t.Context(), root, "")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"I.M(string, string) (int, error)", "S has T", "S.F(int) (error)", "S.X int", "S.Y int", "const A", "const C Kind",
		"func (*S) Do()", "func F(int, int, ...string) (*S)", "func G[comparable](K)", "type I interface", "type Kind uint8",
		"type S struct", "var V []string",
	}
	for i := range want {
		want[i] = "pkg/a: " + want[i]
	}
	if !slices.Equal(got, want) {
		t.Errorf("listed are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
