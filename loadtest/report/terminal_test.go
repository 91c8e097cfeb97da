package report

import (
	"errors"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/offpath-io/offpath/loadtest/report/reporttest"
	"github.com/offpath-io/offpath/loadtest/result"
)

func terminal(t *testing.T, f result.File) string {
	t.Helper()
	var text strings.Builder
	if err := Terminal(&text, f); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// lineOf returns the first line that begins with a name, as fields.
func lineOf(t *testing.T, text, name string) []string {
	t.Helper()
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), name); ok {
			return strings.Fields(rest)
		}
	}
	t.Fatalf("no line begins with %q in\n%s", name, text)
	return nil
}

func widest(text string) int {
	most := 0
	for line := range strings.Lines(text) {
		most = max(most, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")))
	}
	return most
}

func TestTerminalShowsSeveralRunsAsTables(t *testing.T) {
	text := terminal(t, reporttest.Sample())
	for _, test := range []struct{ name, want string }{
		{"steady", "live 100,000 +2.1 % +0.060 % 0.042 % 0.019 % 1.11 µs 57.8 ms holds"},
		{"surge", "live 100,000 +18.4 % +2.1 % 0.71 % 0.040 % 1.29 µs 57.8 ms holds"},
		{"published-a · 2 replicas, 10ms, timer only", "sim 100,000 +2.1 % +0.090 % 0.042 % 0.019 % – 57.8 ms holds"},
	} {
		if got := strings.Join(lineOf(t, text, test.name), " "); got != test.want {
			t.Errorf("%s: the overview says\n%s, want\n%s", test.name, got, test.want)
		}
	}
	for _, run := range reporttest.Sample().Runs {
		if got, want := strings.Count(text, nameOf(run)+" "), 1+len(groups); got != want {
			t.Errorf("%s is in %d tables, want %d", nameOf(run), got, want)
		}
		for _, g := range groups {
			for _, c := range g.columns {
				says(t, text, c.value(run))
			}
		}
	}
	if n := widest(text); n > 140 {
		t.Errorf("a line is %d wide, want at most 140", n)
	}
	if strings.Contains(text, "!!") || strings.Contains(text, " \n") {
		t.Errorf("want no alarm and no line that ends with a space:\n%s", text)
	}
}

func TestTerminalShowsOneRunAsSheet(t *testing.T) {
	f := reporttest.Sample()
	f.Runs = f.Runs[1:2]
	text := terminal(t, f)
	for _, g := range findings() {
		for _, c := range g.columns {
			if got, want := strings.Join(lineOf(t, text, c.label+" "), " "), c.value(f.Runs[0]); got != want {
				t.Errorf("%q is %s, want %s", c.label, got, want)
			}
		}
	}
	says(t, strings.Join(strings.Fields(text), " "),
		"8 checkers", "2 aggregators", "in Redis", "1,000 hits per", "every 50 ms", "seed 1", "2 cores", "go1.26.8")
	if n := widest(text); n > 85 { // where it was measured may be longer than 80
		t.Errorf("a line is %d wide, want at most 85", n)
	}
}

func TestTerminalEndsWithWhatIsWrong(t *testing.T) {
	text := terminal(t, troubled())
	if !strings.HasSuffix(text, `
!! CONSERVATION DOES NOT HOLD: steady: 22,031 charged, but 22,029 accounted for (2 missing).
!! INTERRUPTED: surge was stopped after 7.2 s of 20 s; its figures are of that part.
`) {
		t.Errorf("the end is not about what is wrong:\n%s", text)
	}
	steady, surge := lineOf(t, text, "steady"), lineOf(t, text, "surge")
	if steady[len(steady)-1] != "BROKEN" || surge[1] != "INTERRUPTED" {
		t.Errorf("the overview says %q and %q, want BROKEN and INTERRUPTED", steady, surge)
	}
	if n := widest(text); n > 140 {
		t.Errorf("a line is %d wide, want at most 140", n)
	}
}

// troubled is the sample with a run that lost two hits and one that was interrupted.
func troubled() result.File {
	f := reporttest.Sample()
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

// Without runs there is a word about it. A scenario file's author cannot move the cursor or break a table.
func TestTerminalKeepsNamesOnTheirLine(t *testing.T) {
	f := reporttest.Sample()
	f.Runs[0].Scenario = "one\ntwo\x1b[2J\u2028three"
	text := terminal(t, f)
	if strings.Contains(text, "\x1b") || !strings.Contains(text, "one two [2J three  ") {
		t.Errorf("the name is not on one line:\n%q", text)
	}
	if text := terminal(t, result.File{}); !strings.HasPrefix(text, "No run was measured.\n") {
		t.Errorf("without runs: %q", text)
	}
}

func TestWriteErrorsAreReturned(t *testing.T) {
	full := errors.New("disk full")
	for _, write := range []func(io.Writer, result.File) error{Terminal, HTML} {
		if err := write(refuser{full}, reporttest.Sample()); !errors.Is(err, full) {
			t.Errorf("returned %v, want %v", err, full)
		}
	}
}

type refuser struct{ err error }

func (r refuser) Write([]byte) (int, error) { return 0, r.err }
