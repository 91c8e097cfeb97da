package diskcache_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/offpath-io/offpath/internal/diskcache"
	"github.com/offpath-io/offpath/internal/testing/daemontest"
)

var (
	noon   = time.Date(2026, 11, 22, 12, 0, 0, 123456789, time.UTC)
	values = []diskcache.Value{{Key: "rules", Revision: 7, Written: noon.Add(-time.Hour), Raw: []byte("rules: []\n\xff")}, {Key: "b"}}
)

var must = daemontest.Must

// TestWhatIsSavedIsLoaded, whole, by its user alone, and in place of what was there before.
func TestWhatIsSavedIsLoaded(t *testing.T) {
	f := diskcache.New(filepath.Join(t.TempDir(), "made", "for it"), "b")
	if _, err := f.Load(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("nothing is there: %v", err)
	}
	must(t, f.Save(nil, noon))
	killed := filepath.Join(filepath.Dir(f.Path()), "b.1.tmp") // while it wrote, long ago
	must(t, os.WriteFile(killed, nil, 0o600))
	must(t, os.Chtimes(killed, time.Time{}, noon.Add(-2*time.Hour)))
	must(t, f.Save(values, noon))
	got, err := f.Load()
	if err != nil || !got.Saved.Equal(noon) || len(got.Values) != 2 || got.Values[0].Revision != 7 ||
		!got.Values[0].Written.Equal(values[0].Written) || !bytes.Equal(got.Values[0].Raw, values[0].Raw) {
		t.Errorf("%+v, %v", got, err)
	}
	info, err := os.Stat(f.Path())
	must(t, err)
	all, err := os.ReadDir(filepath.Dir(f.Path()))
	must(t, err)
	if info.Mode().Perm() != 0o600 || len(all) != 1 {
		t.Errorf("mode %v, %d files", info.Mode(), len(all))
	}
}

// TestGoldenFile: other versions read these bytes.
func TestGoldenFile(t *testing.T) {
	const golden = "offpath-cache-1 55f1ce249b6c6ea37a2122eb9557dd21050594db7a4a56faa6f422dd6df49137\n" +
		`{"bucket":"b","saved":"2026-11-22T12:00:00.123456789Z","values":[` +
		`{"key":"rules","revision":7,"written":"2026-11-22T11:00:00.123456789Z","raw":"cnVsZXM6IFtdCv8="},` +
		`{"key":"b","written":"0001-01-01T00:00:00Z","raw":null}]}`
	f := diskcache.New(t.TempDir(), "b")
	must(t, f.Save(values, noon))
	if got, err := os.ReadFile(f.Path()); err != nil || string(got) != golden {
		t.Errorf("got %q, %v", got, err)
	}
}

// TestDamagedFilesAreRefused, wherever they are cut off or changed.
func TestDamagedFilesAreRefused(t *testing.T) {
	f := diskcache.New(t.TempDir(), "b")
	must(t, f.Save(values, noon))
	good, err := os.ReadFile(f.Path())
	must(t, err)
	refused := func(why string, data []byte) {
		t.Helper()
		must(t, os.WriteFile(f.Path(), data, 0o600))
		if c, err := f.Load(); !errors.Is(err, diskcache.ErrDamaged) || len(c.Values) > 0 {
			t.Errorf("%s: %+v, %v", why, c, err)
		}
	}
	for i := range good {
		refused("cut off", good[:i])
		refused("changed", append(append(bytes.Clone(good[:i]), good[i]^1), good[i+1:]...))
	}
	other := diskcache.New(t.TempDir(), "another bucket")
	must(t, other.Save(values, noon))
	foreign, err := os.ReadFile(other.Path())
	must(t, err)
	refused("of another bucket", foreign)
	refused("of the future", bytes.Replace(good, []byte("cache-1"), []byte("cache-2"), 1))
	must(t, os.WriteFile(f.Path(), good, 0o600))
	must(t, os.Chmod(f.Path(), 0o606))
	if _, err := f.Load(); !errors.Is(err, diskcache.ErrDamaged) || !strings.Contains(err.Error(), "mode") {
		t.Errorf("others may write it: %v", err)
	}
}

// TestAFailedSaveLeavesTheFileOfBefore, and nothing beside it.
func TestAFailedSaveLeavesTheFileOfBefore(t *testing.T) {
	f := diskcache.New(t.TempDir(), "b")
	must(t, os.Mkdir(f.Path(), 0o700)) // which no file can take the place of
	if err := f.Save(values, noon); err == nil {
		t.Error("a directory has become a file")
	}
	if _, err := f.Load(); err == nil {
		t.Error("a directory is read")
	}
	if all, err := os.ReadDir(filepath.Dir(f.Path())); err != nil || len(all) != 1 {
		t.Errorf("%d files, %v", len(all), err)
	}
}
