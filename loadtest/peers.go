package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/offpath-io/offpath/internal/flags"
)

const peersSummary = `Benchmarks one decision by offpath and by other limiters, in one run: in process, over a real Redis, and by doors. The others
are in a module of their own, loadtest/peers, so this runs "go test" there: it needs the sources and redis-server.`

func runPeers(ctx context.Context, c call) error {
	pattern, cores, count := ".", "1,2", 1
	s := newFlags("peers", peersSummary)
	flags.Add(s, &pattern, "bench", "PATTERN", "which benchmarks, as go test has it: Decide, Network or Doors, and names with / between", flags.Text)
	flags.Add(s, &cores, "cpu", "LIST", "numbers of cores", flags.Text)
	flags.Add(s, &count, "count", "N", "how often each; medians want 5 or more, at about four minutes each", flags.Int(1, 1000))
	if done, err := s.Parse(c.args, c.getenv, c.stdout); done || err != nil {
		return err
	}
	dir, err := peersDir(ctx)
	if err != nil {
		return err
	}
	test := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", pattern, "-cpu", cores,
		"-count", strconv.Itoa(count), "-timeout", "0", ".")
	test.Dir, test.Stdout, test.Stderr = dir, c.stdout, c.stderr
	test.Cancel = func() error { return test.Process.Signal(os.Interrupt) }
	if err := test.Run(); err != nil {
		if ctx.Err() != nil {
			return errInterrupted
		}
		return fmt.Errorf("go test in %s: %w", filepath.Join("loadtest", "peers"), err)
	}
	return nil
}

// peersDir returns where the benchmarks' sources are.
func peersDir(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/offpath-io/offpath").Output()
	dir := filepath.Join(strings.TrimSpace(string(out)), "loadtest", "peers")
	if err == nil {
		_, err = os.Stat(filepath.Join(dir, "go.mod"))
	}
	if err != nil {
		return "", errors.New("the benchmarks' sources are not here: run it in a checkout of offpath")
	}
	return dir, nil
}
