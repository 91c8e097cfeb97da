package filewatch

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestLook: what is new is told once, and so is trouble and its end, however often it looks.
func TestLook(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	var told []string
	w := &watch{
		paths:   []string{path},
		changed: func(files []File) { told = append(told, string(files[0].Data)) },
		trouble: func(err error) {
			if err == nil {
				told = append(told, "well")
			} else if errors.Is(err, os.ErrNotExist) {
				told = append(told, "gone")
			}
		},
	}
	defer w.close()
	for _, content := range []string{"a", "a", "b", "b", "", "", "b", "c"} {
		_ = os.Remove(path) // it may not be there
		if content != "" {
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		w.look()
		w.look()
	}
	if want := []string{"a", "b", "gone", "well", "c"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}
