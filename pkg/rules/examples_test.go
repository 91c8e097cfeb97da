package rules

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestExamples: the files in deploy/rules and the examples in docs/rules.md are good.
func TestExamples(t *testing.T) {
	texts := make(map[string]string)
	files, _ := filepath.Glob("../../deploy/rules/*.yaml") // no error: the pattern is good
	for _, file := range append(files, "../../docs/rules.md") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		texts[file] = string(text)
	}
	const docs = "../../docs/rules.md"
	examples := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(texts[docs], -1)
	delete(texts, docs)
	for _, example := range examples {
		text := example[1]
		if strings.HasPrefix(text, "domain:") { // envoyproxy/ratelimit's
			continue
		}
		if strings.HasPrefix(text, "- ") {
			text = "rules:\n" + text
		}
		texts["docs/rules.md: "+text] = text
	}
	if len(files) < 6 || len(examples) < 20 {
		t.Errorf("%d files, %d examples: where are the others?", len(files), len(examples))
	}
	for name, text := range texts {
		if _, err := Parse([]byte(text)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
