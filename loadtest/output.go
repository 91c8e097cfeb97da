package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/spf13/pflag"

	"github.com/offpath-io/offpath/internal/flags"
	"github.com/offpath-io/offpath/internal/version"
	"github.com/offpath-io/offpath/loadtest/report"
	"github.com/offpath-io/offpath/loadtest/result"
)

// output is where the figures go.
type output struct {
	html, json string
}

func (o *output) add(s *pflag.FlagSet) {
	s.StringVar(&o.html, "html", o.html, "`FILE` for the page with charts; empty for none")
	s.StringVar(&o.json, "json", o.json,
		"`FILE` for all figures as JSON; - prints them instead of the table")
}

// write writes the files, and then prints the table, so that nobody who stops reading keeps the
// files from being written. The page is left out beside JSON on stdout, unless it was asked for.
func (o *output) write(runs []result.Run, stdout, stderr io.Writer, htmlGiven bool) error {
	if len(runs) == 0 {
		return nil
	}
	f := result.File{Version: result.Version, Offpath: version.Get().Version, Machine: machine(), Runs: runs}
	var errs []error
	note := func(what string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", what, err))
		}
	}
	if o.json != "" && o.json != "-" {
		note("write the figures", toFile(o.json, func(w io.Writer) error { return writeJSON(w, f) }))
	}
	if o.html != "" && (o.json != "-" || htmlGiven) {
		err := toFile(o.html, func(w io.Writer) error { return report.HTML(w, f) })
		note("write the page", err)
		if err == nil {
			fmt.Fprintf(stderr, "page with charts: %s\n", o.html)
		}
	}
	if o.json == "-" {
		note("print the figures", writeJSON(stdout, f))
	} else {
		note("print the table", report.Terminal(stdout, f))
	}
	return errors.Join(errs...)
}

// check refuses files that cannot be written, before anything is measured for them.
func (o *output) check() error {
	if o.html == "-" {
		return flags.Usagef("--html -: want a file; --json - prints figures")
	}
	for _, name := range []string{o.html, o.json} {
		if name == "" || name == "-" {
			continue
		}
		if err := checkFile(name); err != nil {
			return flags.Usagef("%v", err)
		}
	}
	return nil
}

// checkFile returns an error if there is no writing a file of this name.
func checkFile(name string) error {
	target, regular, err := target(name)
	if err != nil {
		return err
	}
	if !regular { // to open a pipe would wait for its reader
		return nil
	}
	f, err := os.CreateTemp(filepath.Dir(target), ".offpath-loadtest-*")
	if err != nil {
		return fmt.Errorf("%s: there is no writing in the directory: %w", name, err)
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// target returns the file that a name stands for, behind any links, and whether it is, or will be,
// a regular one.
func target(name string) (path string, regular bool, err error) {
	if path, err = filepath.EvalSymlinks(name); errors.Is(err, os.ErrNotExist) {
		return name, true, nil
	}
	if err != nil {
		return "", false, err
	}
	info, err := os.Stat(path)
	if err == nil && info.IsDir() {
		err = fmt.Errorf("%s: is a directory", name)
	}
	if err != nil {
		return "", false, err
	}
	return path, info.Mode().IsRegular(), nil
}

func writeJSON(w io.Writer, f any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	return e.Encode(f)
}

// toFile writes a regular file whole or not at all, and into anything else, such as a pipe, as it
// comes.
func toFile(name string, write func(io.Writer) error) error {
	path, regular, err := target(name)
	if err != nil {
		return err
	}
	if regular {
		return replace(path, write)
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

func replace(name string, write func(io.Writer) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(name), ".offpath-loadtest-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	if err := errors.Join(write(f), f.Chmod(0o644), f.Close()); err != nil {
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
