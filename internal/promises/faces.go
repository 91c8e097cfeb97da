package promises

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Commands are those whose flags are promised.
var Commands = []string{
	"checker", "checker explain", "aggregator", "aggregator ledger",
	"aggregator top", "aggregator fleet", "aggregator get", "aggregator block", "aggregator unblock", "aggregator reset",
	"aggregator rules", "aggregator rules apply", "aggregator rules get", "aggregator rules list", "aggregator rules delete",
	"aggregator rules history", "aggregator rules validate", "aggregator rules diff",
}

// Flags lists the commands' flags, and the environment variables that stand for them. Bin has the commands.
func Flags(ctx context.Context, _, bin string) (lines []string, err error) {
	for _, command := range Commands {
		words := strings.Fields(command)
		help, err := exec.CommandContext(ctx, filepath.Join(bin, words[0]), append(words[1:], "--help")...).Output()
		if err != nil {
			return nil, fmt.Errorf("%s --help: %w", command, err)
		}
		flags := flagsIn(string(help))
		if len(flags) == 0 {
			return nil, fmt.Errorf("%s --help lists no flags", command)
		}
		for _, flag := range flags {
			lines = append(lines, command+" "+flag)
		}
	}
	return lines, nil
}

var (
	flagLine     = regexp.MustCompile(`^  (--[a-z0-9-]+)`)
	variableLine = regexp.MustCompile(`^ +\((OFFPATH_[A-Z0-9_]+)`)
)

// flagsIn lists the flags that a help text describes, each with its variable.
func flagsIn(help string) (flags []string) {
	for line := range strings.Lines(help) {
		if m := flagLine.FindStringSubmatch(line); m != nil {
			flags = append(flags, m[1])
		}
		if m := variableLine.FindStringSubmatch(line); m != nil && len(flags) > 0 {
			flags[len(flags)-1] += " " + m[1]
		}
	}
	return flags
}

// Build builds the commands into a directory of their own. Root is the top of the repository.
func Build(ctx context.Context, root string) (dir string, remove func(), err error) {
	dir, err = os.MkdirTemp("", "offpath-promises")
	if err != nil {
		return "", nil, err
	}
	remove = func() { _ = os.RemoveAll(dir) } // whatever is left is in the system's directory for that
	command := exec.CommandContext(ctx, "go", "build", "-o", dir+string(filepath.Separator), "./cmd/checker", "./cmd/aggregator")
	command.Dir = root
	if out, err := command.CombinedOutput(); err != nil {
		remove()
		return "", nil, fmt.Errorf("build: %w\n%s", err, out)
	}
	return dir, remove, nil
}

// Metrics lists the metrics of both daemons in bin, with the names of their labels.
func Metrics(ctx context.Context, _, bin string) (lines []string, err error) {
	for command, env := range map[string][]string{
		"checker":    {"OFFPATH_LISTEN=127.0.0.1:0", "OFFPATH_GRPC=127.0.0.1:0"},
		"aggregator": {"OFFPATH_NATS=nats://127.0.0.1:1", "OFFPATH_REDIS=redis://127.0.0.1:1"},
	} {
		text, err := scrape(ctx, filepath.Join(bin, command), append(env, "OFFPATH_ADMIN=127.0.0.1:0"))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", command, err)
		}
		for _, metric := range metricsIn(text) {
			lines = append(lines, command+" "+metric)
		}
	}
	slices.Sort(lines)
	return lines, nil
}

var adminLine = regexp.MustCompile(`admin +(http://[^/ ]+/metrics)`)

// scrape runs a daemon until it has told its metrics.
func scrape(ctx context.Context, path string, env []string) (text string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	var says bytes.Buffer
	command := exec.CommandContext(ctx, path)
	command.Env, command.Stderr = append(os.Environ(), env...), &says
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = 10 * time.Second
	out, err := command.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := command.Start(); err != nil {
		return "", err
	}
	defer func() {
		cancel()
		_ = command.Wait() // it was told to stop
	}()
	var said []byte
	for buffer := make([]byte, 4096); ; {
		n, err := out.Read(buffer)
		said = append(said, buffer[:n]...)
		if m := adminLine.FindSubmatch(said); m != nil {
			return get(ctx, string(m[1]))
		}
		if err != nil {
			return "", errors.Join(fmt.Errorf("it said %q and %q", said, says.String()), err)
		}
	}
}

func get(ctx context.Context, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}

var (
	sampleLine = regexp.MustCompile(`^(offpath_[a-z0-9_]+)(?:\{(.*)\})? `)
	label      = regexp.MustCompile(`([a-z_]+)="`)
)

// metricsIn lists the names of offpath's own metrics, each with those of its labels.
func metricsIn(text string) []string {
	names := make(map[string]bool)
	for line := range strings.Lines(text) {
		m := sampleLine.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		var labels []string
		for _, l := range label.FindAllStringSubmatch(m[2], -1) {
			labels = append(labels, l[1])
		}
		names[m[1]+"{"+strings.Join(labels, ",")+"}"] = true
	}
	return slices.Sorted(maps.Keys(names))
}
