package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/offpath-io/offpath/internal/flags"
	"github.com/offpath-io/offpath/internal/version"
	"github.com/offpath-io/offpath/loadtest/report"
	"github.com/offpath-io/offpath/loadtest/result"
)

// output is where the figures go.
type output struct {
	html, json string
}

func (o *output) add(s *flags.Set) {
	flags.Add(s, &o.html, "html", "FILE", "where the page with charts goes; empty for none", flags.Text)
	flags.Add(s, &o.json, "json", "FILE", "where all figures go, as JSON; - prints them instead of the table", flags.Text)
}

// write prints the table and writes the files.
func (o *output) write(runs []result.Run, stdout, stderr io.Writer) error {
	if len(runs) == 0 {
		return nil
	}
	f := result.File{Version: result.Version, Offpath: version.Get().Version, Machine: machine(), Runs: runs}
	if o.json == "-" {
		return writeJSON(stdout, f)
	}
	if err := report.Terminal(stdout, f); err != nil {
		return fmt.Errorf("print the table: %w", err)
	}
	if o.json != "" {
		if err := toFile(o.json, func(w io.Writer) error { return writeJSON(w, f) }); err != nil {
			return fmt.Errorf("write the figures: %w", err)
		}
	}
	if o.html != "" {
		if err := toFile(o.html, func(w io.Writer) error { return report.HTML(w, f) }); err != nil {
			return fmt.Errorf("write the page: %w", err)
		}
		fmt.Fprintf(stderr, "page with charts: %s\n", o.html)
	}
	return nil
}

// check refuses files that cannot be written, before anything is measured for them.
func (o *output) check() error {
	for _, name := range []string{o.html, o.json} {
		if name == "" || name == "-" {
			continue
		}
		if info, err := os.Stat(filepath.Dir(name)); err != nil || !info.IsDir() {
			return flags.Usagef("%s: there is no directory %s", name, filepath.Dir(name))
		}
	}
	return nil
}

func writeJSON(w io.Writer, f result.File) error {
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	return e.Encode(f)
}

// toFile writes a file whole or not at all.
func toFile(name string, write func(io.Writer) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(name), ".offpath-loadtest-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	if err := write(f); err != nil {
		_ = f.Close()
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := os.Chmod(f.Name(), 0o644); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}

func machine() result.Machine {
	return result.Machine{
		OS: runtime.GOOS, Arch: runtime.GOARCH, CPU: processor(), Cores: runtime.GOMAXPROCS(0), Go: runtime.Version(),
	}
}

// processor returns the processor's name where Linux tells it, or "".
func processor() string {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(info)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
