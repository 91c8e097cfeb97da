package console

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/tlsfiles"
)

const good = "a-token-that-nobody-guesses"

// readTokens are those of a moment.
func readTokens(file, text string) (Tokens, error) {
	current, err := OpenTokens(tlsfiles.New(slog.New(slog.DiscardHandler)), file, text)
	if err != nil {
		return nil, err
	}
	return current(), nil
}

// TestTokensAreReadAgain: a change of the file is in force without a restart: who is taken out may
// do nothing any more, and a broken one changes nothing.
func TestTokensAreReadAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	write := func(text string) { must(t, os.WriteFile(file, []byte(text), 0o600)) }
	write("kristie:" + good + "1")
	files := tlsfiles.New(slog.New(slog.DiscardHandler))
	current, err := OpenTokens(files, file, good)
	must(t, err)
	daemontest.Background(t, files.Run)
	for _, step := range []struct {
		why, text string
		holds     func(Tokens) bool
	}{
		{"another one", "amara:" + good + "2", func(t Tokens) bool { return len(t) == 2 && !t.has(good+"1") && t.has(good+"2") }},
		{"broken: the one before holds", "amara:short", func(t Tokens) bool {
			return len(t) == 2 && t.has(good+"2") && files.States()[0].Refusals > 0
		}},
		{"all are locked out but the one of the environment", "# nobody\n", func(t Tokens) bool { return len(t) == 1 && t.has(good) }},
	} {
		write(step.text)
		daemontest.Eventually(t, step.why, func() bool { return step.holds(current()) })
	}
}

func (t Tokens) has(token string) bool {
	_, ok := t.of(token)
	return ok
}

// TestTokens: names and tokens of a file and of the environment, and what neither may hold, which
// no error repeats.
func TestTokens(t *testing.T) {
	write := func(text string) (path string) { return daemontest.File(t, "tokens", text) }
	tokens, err := readTokens(write("# who may\n\n kristie: "+good+"1 \r\namara:"+good+":2\n"), good)
	must(t, err)
	for token, want := range map[string]string{
		good + "1": "kristie", good + ":2": "amara", good: anonymous, good + "3": "", "": "", "kristie:" + good + "1": "", "# who may": "",
	} {
		if got, ok := tokens.of(token); got != want || ok != (want != "") {
			t.Errorf("%q is %q's", token, got)
		}
	}
	if none, err := readTokens("", ""); err != nil || len(none) != 0 {
		t.Errorf("none: %v, %v", none, err)
	}
	for text, want := range map[string]string{
		"short":                              "line 1: a token of 5 bytes",
		good + "\nkristie:short":             "line 2: a token of 5 bytes",
		":" + good:                           "line 1: a name of 0 bytes",
		strings.Repeat("x", 65) + ":" + good: "line 1: a name of 65 bytes",
	} {
		_, err := readTokens("", text)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), good) || strings.Contains(err.Error(), "short") {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, path := range []string{filepath.Join(t.TempDir(), "missing"), write("# nobody\n")} {
		if _, err := readTokens(path, ""); err == nil {
			t.Errorf("%s: no error", path)
		}
	}
}
