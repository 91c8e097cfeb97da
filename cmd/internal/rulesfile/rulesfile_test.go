package rulesfile

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
)

// Whatever cannot be read, the error says that it was to be rules.
func TestUnreadable(t *testing.T) {
	broken := errors.New("broken")
	for path, want := range map[string]error{Stdin: broken, filepath.Join(t.TempDir(), "none.yaml"): os.ErrNotExist} {
		_, _, err := Open(path, iotest.ErrReader(broken))
		if !errors.Is(err, want) || !strings.HasPrefix(err.Error(), "load rules: ") {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
	}
}
