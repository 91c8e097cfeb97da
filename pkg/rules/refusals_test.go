package rules

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/offpath-io/offpath/internal/testing/refusaltest"
)

// All mistakes of a file are told at once, in its order, each with its line, column and remedy, and
// nothing that only follows from another. The mistakes are comments in the file.
func TestRefusals(t *testing.T) {
	refusaltest.Check(t, "testdata/refusals.yaml", func(document []byte) error {
		_, err := Parse(document)
		return err
	})
}

// A limit that a mistake is told to be written as is one, and so is a span or a percentage.
func TestRemediesAreRead(t *testing.T) {
	text, err := os.ReadFile("testdata/refusals.yaml")
	must(t, err)
	read := 0
	for _, m := range regexp.MustCompile(`(limit|max_wait|exceed): "[^"]*": [^#]*: write (\d\S*)`).FindAllStringSubmatch(string(text), -1) {
		var err error
		switch remedy := strings.TrimSuffix(m[2], ","); m[1] {
		case "limit":
			err = new(overrideLimit).UnmarshalText([]byte(remedy))
		case "max_wait":
			err = new(span).UnmarshalText([]byte(remedy))
		case "exceed":
			err = new(percent).UnmarshalText([]byte(remedy))
		}
		if read++; err != nil {
			t.Errorf("%s: %v", m[0], err)
		}
	}
	if read < 60 {
		t.Errorf("%d remedies", read)
	}
}

// No text has a remedy that is not read either.
func FuzzLimitRemedy(f *testing.F) {
	for _, seed := range []string{"10/sec", "10 per second", "1,000/min", "5k/d", "1/1.5h", "1/30m1h", "10r/s", "0.5/s", "1e3/2 hours", "10/month"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		remedy, ok := strings.CutPrefix(limitRemedy(text), ": write ")
		remedy, _, _ = strings.Cut(remedy, ",")
		if ok && strings.Contains(remedy, "/") {
			must(t, new(rate).UnmarshalText([]byte(remedy)))
		}
		if remedy, ok := strings.CutPrefix(spanRemedy(text), ": write "); ok {
			remedy, _, _ = strings.Cut(remedy, " or ")
			must(t, new(span).UnmarshalText([]byte(remedy)))
		}
		if remedy, ok := strings.CutPrefix(percentRemedy(text), ": write "); ok {
			must(t, new(percent).UnmarshalText([]byte(remedy)))
		}
	})
}

// Documents that cannot have comments beside their mistakes, or that no YAML is read from.
func TestRefusalsOfDocuments(t *testing.T) {
	keyed := func(key string) string { return "rules: [{name: a, key: [" + key + "], limit: 1/s}]" }
	for _, tt := range []struct{ yaml, want string }{
		{"", "1:1: is empty: want rules, such as rules: [{name: per-user, key: [user], limit: 15/second}]"},
		{"# a\n---", "2:1: is empty"},
		{"~\n", "1:1: is empty"},
		{one() + "---\n" + one(), "5:1: a second document: want one, with all rules, and no --- between them"},
		{one() + "---\n[", "6:2: not YAML: did not find expected node content"},
		{keyed(many(65, "a%d,")), "1:24: key: has 65 attributes: want at most 64"},
		{one("match: {" + many(65, "a%d: b,") + "}"), "5:10: match: has 65 attributes: want at most 64"},
		{one("burst: " + strings.Repeat("9", 1000)), "5:10: burst: "},
		{"rules: [{key: [], limit: 1/s, name: " + strings.Repeat("x", 129) + "}]", "1:37: name: has 129 bytes: want at most 128"},

		{one("match: *x"), "5:10: not YAML: unknown anchor 'x' referenced: write a value that begins with * in quotes"},
		{"rules:\n\t- name: a\n", "2:1: not YAML: found character that cannot start any token: indent by spaces, not tabs"},
		{"rules:\n- name: a\n limit: 1/s\n", "3:2: not YAML: did not find expected"},
		{"rules:\n- key: [u\n  limit: 1/s\n", "3:8: not YAML: did not find expected ',' or ']': close the list with ]"},
		{"rules:\n- {name: a, key: [u]\n  limit: 1/s\n", "3:3: not YAML: did not find expected ',' or '}': close the mapping with }"},
		{one("match: {path: @a}"), "5:17: not YAML: found character that cannot start any token: write a value that begins with @, ` or % in quotes"},
		{one("match: path: /a"), "5:14: not YAML: mapping values are not allowed in this context: write each field on a line of its own, and a value with a colon and a space in quotes"},
		{"rules:\n- name: a\n   key: [u]\n", "3:7: not YAML: mapping values are not allowed in this context: write each field"},
		{"rules:\n- name: \"a\n", "3:1: not YAML: "},
		{"rules: ]\n", "1:8: not YAML: did not find expected node content"},
		{"rules:\n- name: a\x00b\n", "2:10: character U+0000 is not allowed"},
		{"# é\x00\n", "1:4: character U+0000 is not allowed"},
		{"\ufeff\ufeff" + one(), "1:1: character U+FEFF is not allowed"},
		{"rules:\n- name: \xff\n", "2:9: byte 0xff is not UTF-8: save the file as UTF-8"},
		{"rules: " + strings.Repeat("[", 100_000), "1:264: not YAML: exceeded max depth of 256"},
		{"rules: " + strings.Repeat("[", 250) + strings.Repeat("]", 250), "1:9: rule: want a mapping, got a list"},
		{one() + strings.Repeat("#", MaxSize), "0:0: is longer than 1048576 bytes"},
	} {
		_, err := Parse([]byte(tt.yaml))
		refusal, ok := errors.AsType[*Error](err)
		if !ok {
			t.Errorf("%.80q: got %v, want %q", tt.yaml, err, tt.want)
			continue
		}
		got := fmt.Sprintf("%d:%d: %s", refusal.Line, refusal.Column, refusal.Reason)
		if !strings.HasPrefix(got, tt.want) || len(got) > 500 {
			t.Errorf("%.80q: got %q, want %q", tt.yaml, got, tt.want)
		}
	}
}

// A bomb of aliases is refused before it is followed, and a file of mistakes has an end.
func TestMistakesAreBounded(t *testing.T) {
	for _, text := range []string{laughs(), "rules:\n" + strings.Repeat("- {name: 1, nme: 2}\n", 10_000), "rules:\n" + strings.Repeat("- *x\n- ~\n", 1000)} {
		_, err := Parse([]byte(text))
		refusal, ok := errors.AsType[*Error](err)
		if !ok || len(refusal.More) >= 100 || len(err.Error()) > 20_000 {
			t.Errorf("%.300v", err)
		}
	}
	var list []Rule
	for range 200 {
		list = append(list, Rule{})
	}
	_, err := NewSet(list...)
	if refusal, ok := errors.AsType[*Error](err); !ok || len(refusal.More) != 99 || refusal.More[98].Rule != 100 {
		t.Errorf("%.300v", err)
	}
	_, err = Parse(veryMany())
	if refusal, ok := errors.AsType[*Error](err); !ok || len(refusal.More) != 99 {
		t.Errorf("%.300v", err)
	}
}

// BenchmarkManyMistakes takes some 0.2 s. Mistakes beyond the bound cost no search for their
// places, or it would take minutes.
func BenchmarkManyMistakes(b *testing.B) {
	text := veryMany()
	for b.Loop() {
		_, _ = Parse(text)
	}
}

func veryMany() []byte { return []byte(one("exclude: {" + many(80_000, "a%d: [],") + "}")) }

func many(n int, format string) string {
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, format, i)
	}
	return text.String()
}

// laughs would be 9^9 strings if aliases were followed.
func laughs() string {
	text := "a0: &a0 [" + strings.Repeat("ha,", 9) + "]\n"
	for i := range 9 {
		text += fmt.Sprintf("a%d: &a%d [%s]\n", i+1, i+1, strings.Repeat(fmt.Sprintf("*a%d,", i), 9))
	}
	return text
}
