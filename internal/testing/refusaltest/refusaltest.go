// Package refusaltest compares what is wrong with YAML documents with comments in them.
package refusaltest

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// Check reads the documents of a file. The mistakes of each line of a document are those that
// comments at its end say, by their column: "# want 12: limit: is missing".
func Check(t *testing.T, path string, parse func(document []byte) error) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var want []string
		for i, line := range strings.Split(document, "\n") {
			for _, reason := range strings.Split(line, " # want ")[1:] {
				want = append(want, fmt.Sprintf("line %d, column %s", i+1, reason))
			}
		}
		got := []string{""}
		if err := parse([]byte(document)); err != nil {
			got = strings.Split(err.Error(), "\n")
		}
		for i := range max(len(got), len(want)) {
			if i >= len(got) || i >= len(want) || got[i] != want[i] {
				t.Errorf("in\n%.80s\ngot  %q\nwant %q", document, got[i:], want[i:])
				break
			}
		}
	}
}
