package lint

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// commands are the built commands' directory.
var commands = sync.OnceValues(func() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "offpath-lint-"); err != nil {
		return "", err
	}
	c := exec.Command("go", "build", "-o", dir, "./cmd/checker", "./cmd/aggregator", "./cmd/offpath")
	c.Dir = "../.."
	if out, err := c.CombinedOutput(); err != nil {
		return dir, fmt.Errorf("%w\n%s", err, out)
	}
	return dir, nil
})

func TestMain(m *testing.M) {
	status := m.Run()
	if dir, err := commands(); err == nil {
		_ = os.RemoveAll(dir)
	}
	os.Exit(status)
}

// parses sees that a command understands its arguments and its environment. Variables are given as
// the flags that they stand for, but for those that --help lists as variables only; any other is an
// error too. Behind all of them, --help keeps the command from starting, and not from refusing what
// is before.
func parses(t *testing.T, command string, args []string, env map[string]string) {
	t.Helper()
	if !slices.Contains([]string{"checker", "aggregator", "offpath"}, command) {
		t.Errorf("%s: no such command", command)
		return
	}
	dir, err := commands()
	must(t, err)
	// Which variables there are depends on the command that the arguments begin with.
	help, err := exec.CommandContext(t.Context(), filepath.Join(dir, command), append(slices.Clone(args), "--help")...).Output()
	must(t, err)
	all := slices.Clone(args)
	for name, value := range env {
		if flag, ours := strings.CutPrefix(name, "OFFPATH_"); ours && !strings.Contains(string(help), "\n      "+name+" ") {
			all = append(all, "--"+strings.ReplaceAll(strings.ToLower(flag), "_", "-")+"="+value)
		}
	}
	out, err := exec.CommandContext(t.Context(), filepath.Join(dir, command), append(all, "--help")...).CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "Usage: "+command) {
		t.Errorf("%s %q: %v\n%.300s", command, all, err, out)
	}
}

// TestParsesRefuses what it should.
func TestParsesRefuses(t *testing.T) {
	dir, err := commands()
	must(t, err)
	for _, args := range [][]string{{"--nosuch", "--help"}, {"--listen=nowhere", "--help"}, {"word", "--nosuch=1", "--help"}} {
		if out, err := exec.CommandContext(t.Context(), filepath.Join(dir, "checker"), args...).CombinedOutput(); err == nil {
			t.Errorf("%q: %s", args, out)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
