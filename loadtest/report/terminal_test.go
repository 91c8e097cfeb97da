package report

import (
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/offpath-io/offpath/loadtest/result"
)

// written is what a writer makes of figures.
func written(t *testing.T, write func(io.Writer, result.File) error, f result.File) string {
	t.Helper()
	var text strings.Builder
	must(t, write(&text, f))
	return text.String()
}

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares a text with a file of testdata. After a change that is meant: go test -update,
// and look at the difference.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		must(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	must(t, err)
	lines := strings.Split(string(want), "\n")
	for i, line := range strings.Split(got, "\n") {
		if i >= len(lines) || line != lines[i] {
			t.Fatalf("line %d of %s is\n%s", i+1, path, line)
		}
	}
}

// TestTerminal: several runs are tables of at most 140 columns, one run is a sheet of at most 85.
// What is wrong comes last.
func TestTerminal(t *testing.T) {
	tables := written(t, Terminal, troubled(t))
	one := sample(t)
	one.Runs = one.Runs[1:2]
	sheet := written(t, Terminal, one)
	golden(t, "terminal.txt", tables+sheet+written(t, Terminal, result.File{}))
	if n := widest(tables); n > 140 {
		t.Errorf("a table is %d wide", n)
	}
	if n := widest(sheet); n > 85 { // where it was measured may be longer than 80
		t.Errorf("the sheet is %d wide", n)
	}
}

func widest(text string) int {
	most := 0
	for line := range strings.Lines(text) {
		most = max(most, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")))
	}
	return most
}

// sample is three runs, two live and one simulated, with all figures that such runs have. The
// figures are invented, but of the size that real ones are.
func sample(t *testing.T) (f result.File) {
	t.Helper()
	text, err := os.ReadFile("testdata/sample.json")
	must(t, err)
	must(t, json.Unmarshal(text, &f))
	return f
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// troubled is the sample with a run that lost two hits and one that was interrupted.
func troubled(t *testing.T) result.File {
	f := sample(t)
	f.Runs[0].Conservation.Counted -= 2
	f.Runs[0].Conservation.Check()
	f.Runs[1].Interrupted, f.Runs[1].MeasuredSeconds = true, 7.2
	return f
}

func TestMissingHitsAreTold(t *testing.T) {
	for _, test := range []struct {
		admitted, charged, counted int64
		want                       string
	}{
		{10, 10, 9, "10 charged, but 9 accounted for (1 missing)"},
		{10, 10, 1011, "10 charged, but 1,011 accounted for (1,001 too many)"},
		{10, 8, 8, "10 admitted, but 8 charged (2 missing)"},
		{10, 11, 9, "10 admitted, but 11 charged (1 too many); 11 charged, but 9 accounted for (2 missing)"},
	} {
		c := result.Conservation{Admitted: test.admitted, Charged: test.charged, Counted: test.counted}
		if c.Check(); missing(c) != test.want || c.Holds {
			t.Errorf("%+v: %q, want %q", c, missing(c), test.want)
		}
	}
}

// A scenario file's author cannot move the cursor or break a table.
func TestTerminalKeepsNamesOnTheirLine(t *testing.T) {
	f := sample(t)
	f.Runs[0].Scenario = "one\ntwo\x1b[2J\u2028three"
	text := written(t, Terminal, f)
	if strings.Contains(text, "\x1b") || !strings.Contains(text, "one two [2J three  ") {
		t.Errorf("the name is not on one line:\n%q", text)
	}
}

func TestWriteErrorsAreReturned(t *testing.T) {
	full := errors.New("disk full")
	r, w := io.Pipe()
	_ = r.CloseWithError(full)
	for _, write := range []func(io.Writer, result.File) error{Terminal, HTML} {
		if err := write(w, sample(t)); !errors.Is(err, full) {
			t.Errorf("returned %v, want %v", err, full)
		}
	}
}
