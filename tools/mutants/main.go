// Command mutants measures what the tests hold: it changes one place of the code at a time, as a
// slip of the hand would, runs the tests of that package, and of the one that it is internal to,
// and tells which changes no test has noticed.
//
// The changes are a list in the repository, so that two versions of the tests are held against the
// same ones. Each is named by file, function, kind of change, and the text that it changes, not by
// a line, so that it survives edits elsewhere; where code moves, its lines in the list move with
// it. A mutant is compiled through go's -overlay: the tree is never touched.
//
//	go run ./mutants -root ..                           run the list
//	go run ./mutants -root .. -propose 170 -seed 1      print a new list, drawn from the files on
//	                                                    standard input
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	root := flags.String("root", ".", "directory of the module whose code is changed")
	list := flags.String("list", "mutants/mutants.txt", "the list of mutants")
	only := flags.String("only", "", "run only the mutants whose line contains this text")
	propose := flags.Int("propose", 0, "print a list of this many mutants of the files named on standard input, and end")
	seed := flags.Uint64("seed", 1, "of -propose")
	jobs := flags.Int("jobs", 2, "how many mutants run at once")
	patience := flags.Duration("timeout", 2*time.Minute, "after which tests that have not ended have noticed a mutant")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *propose > 0 {
		return proposeList(ctx, *root, in, out, *propose, *seed)
	}
	file, err := os.Open(*list)
	if err != nil {
		return err
	}
	defer file.Close()
	mutants, err := readList(file)
	if err != nil {
		return fmt.Errorf("%s: %w", *list, err)
	}
	var chosen []mutant
	for _, m := range mutants {
		if strings.Contains(m.String(), *only) {
			chosen = append(chosen, m)
		}
	}
	return (&campaign{root: *root, patience: *patience, out: out}).run(ctx, chosen, *jobs)
}

// A campaign runs mutants and counts what became of them.
type campaign struct {
	root     string
	patience time.Duration
	out      io.Writer

	mu    sync.Mutex
	total map[verdict]int
}

type verdict string

const (
	killed   verdict = "killed"
	timedOut verdict = "timed out" // noticed as well: an endless loop, or a wait for what does not come
	survived verdict = "SURVIVED"
)

func (c *campaign) run(ctx context.Context, mutants []mutant, jobs int) error {
	if len(mutants) == 0 {
		return errors.New("no mutants to run")
	}
	if err := c.checkUnchanged(ctx, mutants); err != nil {
		return err
	}
	c.total = map[verdict]int{}
	work := make(chan mutant)
	failures := make(chan error, len(mutants))
	var group sync.WaitGroup
	for range jobs {
		group.Go(func() {
			for m := range work {
				if err := c.one(ctx, m); err != nil {
					failures <- fmt.Errorf("%s: %w", m, err)
				}
			}
		})
	}
	for _, m := range mutants {
		work <- m
	}
	close(work)
	group.Wait()
	close(failures)
	var all []error
	for err := range failures {
		all = append(all, err)
	}
	fmt.Fprintf(c.out, "%d mutants: %d killed, %d timed out, %d survived, %d could not be run\n",
		len(mutants), c.total[killed], c.total[timedOut], c.total[survived], len(all))
	return errors.Join(all...)
}

// testedBy is the packages whose tests run: the mutant's own, if it has some, and for an internal
// one that to which it belongs.
func (c *campaign) testedBy(m mutant) (packages []string) {
	own := filepath.Dir(m.file)
	above, _, internal := strings.Cut(own, "/internal/")
	tests, _ := filepath.Glob(filepath.Join(c.root, own, "*_test.go")) // the pattern is valid
	if !internal || len(tests) > 0 {
		packages = append(packages, own)
	}
	if internal {
		packages = append(packages, above)
	}
	return packages
}

// checkUnchanged runs the tests without a change: where they fail already, they would seem to
// notice every mutant.
func (c *campaign) checkUnchanged(ctx context.Context, mutants []mutant) error {
	seen := map[string]bool{}
	for _, m := range mutants {
		for _, pkg := range c.testedBy(m) {
			if seen[pkg] {
				continue
			}
			seen[pkg] = true
			if got, output, err := c.test(ctx, pkg, ""); err != nil || got != survived {
				return fmt.Errorf("the tests of %s fail without a mutant: %s %w\n%s", pkg, got, err, output)
			}
		}
	}
	return nil
}

func (c *campaign) one(ctx context.Context, m mutant) error {
	changed, err := m.apply(c.root)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	overlay, err := writeOverlay(dir, c.root, m.file, changed)
	if err != nil {
		return err
	}
	start := time.Now()
	got := survived
	for _, pkg := range c.testedBy(m) {
		if got, _, err = c.test(ctx, pkg, overlay); err != nil {
			return err
		}
		if got != survived {
			break
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.total[got]++
	_, err = fmt.Fprintf(c.out, "%-9s %5.1fs  %s\n", got, time.Since(start).Seconds(), m)
	return err
}

// test compiles and runs a package's tests, with the overlay if there is one. What does not compile
// is an error.
func (c *campaign) test(ctx context.Context, pkg, overlay string) (got verdict, output string, err error) {
	dir, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return "", "", err
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "tests")
	build := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", binary, "./"+pkg)
	build.Dir = c.root
	if text, err := build.CombinedOutput(); err != nil {
		return "", string(text), fmt.Errorf("does not compile: %w\n%s", err, text)
	}
	limit, cancel := context.WithTimeout(ctx, c.patience)
	defer cancel()
	tests := exec.CommandContext(limit, binary, "-test.short", "-test.failfast", "-test.count=1")
	tests.Dir = filepath.Join(c.root, pkg)
	tests.WaitDelay = 5 * time.Second
	text, err := tests.CombinedOutput()
	switch {
	case ctx.Err() != nil:
		return "", "", ctx.Err()
	case limit.Err() != nil:
		return timedOut, string(text), nil
	case err != nil:
		return killed, string(text), nil
	}
	return survived, string(text), nil
}

// readList reads one mutant a line; empty lines and those that begin with # are left out.
func readList(in io.Reader) ([]mutant, error) {
	var list []mutant
	lines := bufio.NewScanner(in)
	for number := 1; lines.Scan(); number++ {
		text := strings.TrimSpace(lines.Text())
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		m, err := parseMutant(text)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		list = append(list, m)
	}
	return list, lines.Err()
}
