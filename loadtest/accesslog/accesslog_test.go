package accesslog

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"testing/iotest"
)

func sample(t testing.TB) []byte {
	t.Helper()
	data, err := os.ReadFile("testdata/sample.log")
	must(t, err)
	return data
}

// Where the sample's parts end; see testdata/README.md.
const (
	sampleEntries = 45
	sampleLines   = 49
)

func checkSample(t *testing.T, log Log, err error) {
	t.Helper()
	must(t, err)
	if len(log.Entries) != sampleEntries || log.RefusedLines != sampleLines-sampleEntries || log.Lines != sampleLines {
		t.Errorf("%d entries, %d refused of %d lines: %v", len(log.Entries), log.RefusedLines, log.Lines, log.Refused)
	}
	for i, entry := range log.Entries {
		if entry.Line != i+1 {
			t.Errorf("entry %d is of line %d", i, entry.Line)
		}
	}
	for i, refusal := range log.Refused { // the blank line lies between
		if refusal.Line != sampleEntries+2+i || refusal.Reason == "" || refusal.Text == "" {
			t.Errorf("refusal %d: %+v", i, refusal)
		}
	}
}

func TestRead(t *testing.T) {
	data := sample(t)
	readers := map[string]io.Reader{
		"whole":           bytes.NewReader(data),
		"byte by byte":    iotest.OneByteReader(bytes.NewReader(data)),
		"no last newline": bytes.NewReader(bytes.TrimSpace(data)),
		"windows":         bytes.NewReader(bytes.ReplaceAll(data, []byte("\n"), []byte("\r\n"))),
		"gzip":            bytes.NewReader(zip(t, data)),
		"two gzips":       io.MultiReader(bytes.NewReader(zip(t, data[:200])), bytes.NewReader(zip(t, data[200:]))),
	}
	for name, r := range readers {
		t.Run(name, func(t *testing.T) {
			log, err := Read(r)
			checkSample(t, log, err)
		})
	}
}

func zip(t testing.TB, data []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write(data)
	must(t, errors.Join(err, w.Close()))
	return out.Bytes()
}

const anEntry = `192.0.2.1 - - [20/May/2015:21:05:02 +0000] "GET / HTTP/1.1" 200 381` + "\n"

func TestReadingFails(t *testing.T) {
	broken := errors.New("disk on fire")
	for _, test := range []struct {
		name    string
		r       io.Reader
		want    string // in the error
		entries int
	}{
		{"no line", strings.NewReader(""), "empty", 0},
		{"blank lines", strings.NewReader("\n \r\n\t\n"), "empty", 0},
		{"one byte", strings.NewReader("x"), "none of its 1 lines", 0},
		{"another kind of file", strings.NewReader("a,b\n1,2\n"),
			`none of its 2 lines is in Common or Combined Log Format: line 1: no time in brackets: "a,b"`, 0},
		{"cannot be read", iotest.ErrReader(broken), "line 1: disk on fire", 0},
		{"ends badly", io.MultiReader(strings.NewReader(anEntry+anEntry[:40]), iotest.ErrReader(broken)),
			"line 2: disk on fire", 1},
		{"bad gzip", strings.NewReader("\x1f\x8bnot"), "gzip", 0},
		{"gzip cut off", bytes.NewReader(zip(t, []byte(anEntry))[:40]), "unexpected EOF", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			log, err := Read(test.r)
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.HasPrefix(err.Error(), "read log: ") {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
			if len(log.Entries) != test.entries {
				t.Errorf("%d entries, want %d", len(log.Entries), test.entries)
			}
		})
	}
}

// A line of 1 MiB is read; one byte more is one refusal, however long it is, and reading goes on
// behind it.
func TestLongLines(t *testing.T) {
	entry := strings.TrimSuffix(anEntry, "\n")
	padded := func(length int) string { return entry + " " + strings.Repeat("x", length-len(entry)-1) + "\n" }
	for _, end := range []string{"", anEntry} {
		log, err := Read(strings.NewReader(padded(MaxLine) + padded(MaxLine+1) + padded(5*MaxLine) + end))
		must(t, err)
		lines := 3 + strings.Count(end, "\n")
		if len(log.Entries) != lines-2 || log.RefusedLines != 2 || log.Lines != lines {
			t.Errorf("%d entries, %d refused of %d lines", len(log.Entries), log.RefusedLines, log.Lines)
		}
		for i, refusal := range log.Refused {
			if refusal.Line != i+2 || refusal.Reason != "longer than 1048576 bytes" || refusal.Text != padded(MaxLine)[:MaxText] {
				t.Errorf("refusal %v", refusal)
			}
		}
	}
}

// All refused lines are counted, and the first kept; what is printed of them is one harmless line.
func TestRefusals(t *testing.T) {
	bad := "\x1b[2J" + strings.Repeat("y", 200) + "\n"
	log, err := Read(strings.NewReader(strings.Repeat(bad, 100) + anEntry))
	must(t, err)
	if log.RefusedLines != 100 || len(log.Refused) != MaxRefusals || log.Refused[19].Line != 20 {
		t.Errorf("refused %d, kept %d", log.RefusedLines, len(log.Refused))
	}
	text := log.Refused[0].String()
	if !strings.HasPrefix(text, `line 1: no time in brackets: "\x1b[2Jyyy`) ||
		strings.ContainsAny(text, "\n\x1b") || len(text) > 200 {
		t.Errorf("printed as %s", text)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
