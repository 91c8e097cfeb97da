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

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/offpath-io/offpath/internal/flags"
)

const peersSummary = `
Benchmarks one decision by offpath and by other limiters, in one run: in process, over a real Redis,
and by network APIs. The others are in a module of their own, loadtest/peers, so this runs "go test"
there: it needs the sources and redis-server.`

func newPeers() *cobra.Command {
	pattern, cores, count := ".", "1,2", 1
	cmd := &cobra.Command{
		Use: "peers", Short: "benchmark one decision beside other limiters'", Long: peersSummary,
		Args: flags.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runPeers(cmd, pattern, cores, count)
		},
	}
	flags.Topic(cmd, "Benchmarks", func(s *pflag.FlagSet) {
		s.StringVar(&pattern, "bench", pattern, "`PATTERN` of benchmarks, as go test has it: "+
			"Decide, Network or APIs, and names with / between")
		s.StringVar(&cores, "cpu", cores, "`LIST` of numbers of cores")
		flags.Add(s, &count, "count",
			"run each `N` times, at about four minutes each; medians want 5 or more",
			flags.Int(1, 1000))
	})
	return cmd
}

func runPeers(cmd *cobra.Command, pattern, cores string, count int) error {
	ctx := cmd.Context()
	dir, err := peersDir(ctx)
	if err != nil {
		return err
	}
	test := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", pattern, "-cpu", cores,
		"-count", strconv.Itoa(count), "-timeout", "0", ".")
	test.Dir, test.Stdout, test.Stderr = dir, cmd.OutOrStdout(), cmd.ErrOrStderr()
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
