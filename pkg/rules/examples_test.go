package rules

import (
	"path/filepath"
	"testing"
)

// The examples of docs/rules.md are read by envoyrules' tests, which know all formats in it.
func TestExamplesInDeployAreGood(t *testing.T) {
	files, _ := filepath.Glob("../../deploy/rules/*.yaml") // no error: the pattern is good
	if len(files) < 6 {
		t.Errorf("%d files: where are the others?", len(files))
	}
	for _, file := range files {
		if _, err := Load(file); err != nil {
			t.Error(err)
		}
	}
}
