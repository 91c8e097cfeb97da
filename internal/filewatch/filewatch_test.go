package filewatch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
)

// watched is a file under watch.
type watched struct {
	t       *testing.T
	path    string
	changes chan File
	trouble chan error
}

// begin watches the file at path. Without a poll only events can tell of changes.
func begin(t *testing.T, path string, poll time.Duration) *watched {
	t.Helper()
	first, err := Read(path, 0)
	must(t, err)
	w := &watched{t: t, path: path, changes: make(chan File, 100), trouble: make(chan error, 100)}
	daemontest.Background(t, func(ctx context.Context) error {
		Watch(ctx, []string{path}, []File{first}, Options{Poll: poll, Settle: 5 * time.Millisecond},
			func(all []File) { w.changes <- all[0] }, func(err error) { w.trouble <- err })
		return nil
	})
	return w
}

// await waits for the content, and returns all that came until then: it may be seen in pieces
// before, but never again after.
func (w *watched) await(content string) []File {
	w.t.Helper()
	return daemontest.Collect(w.t, "it tells of "+content, w.changes, func(f File) bool { return string(f.Data) == content })
}

var must = daemontest.Must

func write(t *testing.T, path, content string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(content), 0o600))
}

// file is one in a directory of its own.
func file(t *testing.T, content string) string { return daemontest.File(t, "rules.yaml", content) }

// turn makes the path a link to a file, in place of what was there.
func turn(t *testing.T, path, to string) {
	t.Helper()
	must(t, os.Symlink(to, path+".new"))
	must(t, os.Rename(path+".new", path))
}

// ways are the ways in which a file's content is replaced.
var ways = []struct {
	name    string
	replace func(t *testing.T, path, content string)
}{
	{"truncated and written", write},
	{"written in two pieces", func(t *testing.T, path, content string) {
		f, err := os.Create(path)
		must(t, err)
		_, err = f.WriteString(content[:1])
		must(t, err)
		must(t, f.Sync())
		_, err = f.WriteString(content[1:])
		must(t, err)
		must(t, f.Close())
	}},
	{"renamed over", func(t *testing.T, path, content string) {
		write(t, path+".new", content)
		must(t, os.Rename(path+".new", path))
	}},
	{"backed up, then written anew", func(t *testing.T, path, content string) {
		must(t, os.Rename(path, path+"~"))
		write(t, path, content)
		must(t, os.Remove(path+"~"))
	}},
	{"removed, then written", func(t *testing.T, path, content string) {
		must(t, os.Remove(path))
		write(t, path, content)
	}},
	{"with the time of before", func(t *testing.T, path, content string) {
		info, err := os.Stat(path)
		must(t, err)
		write(t, path+".new", content)
		must(t, os.Chtimes(path+".new", info.ModTime(), info.ModTime()))
		must(t, os.Rename(path+".new", path))
	}},
}

// Three times each, by events alone.
func TestEveryWayToSaveAFileIsNoticed(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			path := file(t, "first")
			w := begin(t, path, time.Hour)
			for _, content := range []string{"second", "third", "fourth"} {
				way.replace(t, path, content)
				w.await(content)
			}
		})
	}
}

// The file is a link through a link to a directory, and the latter is swapped; the old directory
// may go before anybody looks, or much later.
func TestAMountedConfigMapIsFollowed(t *testing.T) {
	for name, goes := range map[string]bool{"the old directory goes": true, "the old directory stays": false} {
		t.Run(name, func(t *testing.T) {
			mount := t.TempDir()
			publish := func(version, content string) {
				dir := filepath.Join(mount, "..2026_"+version)
				must(t, os.Mkdir(dir, 0o700))
				write(t, filepath.Join(dir, "rules.yaml"), content)
				old, _ := os.Readlink(filepath.Join(mount, "..data"))
				turn(t, filepath.Join(mount, "..data"), filepath.Base(dir))
				if goes && old != "" {
					must(t, os.RemoveAll(filepath.Join(mount, old)))
				}
			}
			publish("1", "first")
			path := filepath.Join(mount, "rules.yaml")
			must(t, os.Symlink(filepath.Join("..data", "rules.yaml"), path))
			w := begin(t, path, time.Hour)
			for version, content := range map[string]string{"2": "second", "3": "third", "4": "fourth"} {
				publish(version, content)
				w.await(content)
			}
		})
	}
}

// What the link leads to is written in another directory.
func TestLinksAreFollowed(t *testing.T) {
	target, path := file(t, "first"), filepath.Join(t.TempDir(), "rules.yaml")
	turn(t, path, target)
	w := begin(t, path, time.Hour)
	write(t, target, "second")
	w.await("second")
	// The link itself is turned to another file, in a third directory; and that is followed too.
	other := file(t, "third")
	turn(t, path, other)
	w.await("third")
	write(t, other, "fourth")
	w.await("fourth")
}

// Where no event tells of a change, here of a link to a link that is swapped in a directory nobody
// watches, the poll finds it.
func TestPollFindsWhatNoEventTells(t *testing.T) {
	between, path := filepath.Join(t.TempDir(), "link"), filepath.Join(t.TempDir(), "rules.yaml")
	turn(t, between, file(t, "first"))
	turn(t, path, between)
	w := begin(t, path, 10*time.Millisecond)
	turn(t, between, file(t, "second"))
	w.await("second")
}

// The same content again, other files, and modes are no change.
func TestOnlyWhatTheFileHoldsCounts(t *testing.T) {
	path := file(t, "first")
	w := begin(t, path, 10*time.Millisecond)
	write(t, path+".other", "other")
	must(t, os.Chmod(path, 0o640))
	write(t, path+".new", "first")
	must(t, os.Rename(path+".new", path))
	write(t, path, "last")
	for _, seen := range w.await("last") {
		if string(seen.Data) == "first" {
			t.Error("told of the same content")
		}
	}
}

// A file that goes is told once; when it is back, that too, and what it holds only if that is new.
func TestAFileThatGoesIsTroubleUntilItIsBack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "sub")
	must(t, os.Mkdir(dir, 0o700))
	path := filepath.Join(dir, "rules.yaml")
	write(t, path, "first")
	w := begin(t, path, 10*time.Millisecond)
	must(t, os.RemoveAll(dir)) // the directory too, and with it what is watched
	if err := daemontest.Next(t, "it tells of trouble", w.trouble); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("told %v", err)
	}
	must(t, os.Mkdir(dir, 0o700))
	write(t, path+".new", "first")
	must(t, os.Rename(path+".new", path))
	if err := daemontest.Next(t, "it tells of trouble", w.trouble); err != nil {
		t.Errorf("it is back, and told is %v", err)
	}
	write(t, path, "second")
	w.await("second")
	if len(w.changes) > 0 || len(w.trouble) > 0 {
		t.Errorf("told of more: %d, %d", len(w.changes), len(w.trouble))
	}
}

// What was written between the first read and the watch is a change.
func TestChangesBeforeTheWatchAreSeen(t *testing.T) {
	path := file(t, "second")
	ctx, stop := context.WithCancel(t.Context())
	saw := ""
	Watch(ctx, []string{path}, []File{{Data: []byte("first")}}, Options{},
		func(all []File) { saw = string(all[0].Data); stop() }, func(err error) { t.Error(err) })
	if saw != "second" {
		t.Errorf("saw %q", saw)
	}
}

func TestReadIsBounded(t *testing.T) {
	path := file(t, strings.Repeat("x", 3<<20))
	if f, err := Read(path, 0); err != nil || len(f.Data) != 1<<20+1 {
		t.Errorf("%d bytes, %v", len(f.Data), err)
	}
	if _, err := Read(path+".none", 0); err == nil || !strings.Contains(err.Error(), "rules.yaml.none") {
		t.Error(err)
	}
}

// A watch of one does not eat what others write into it, and ends when told.
func TestAPipeIsReadOnce(t *testing.T) {
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer stop()
	Watch(ctx, []string{os.DevNull}, []File{{Data: []byte("first")}}, Options{Poll: time.Millisecond},
		func(all []File) { t.Errorf("read again: %q", all[0].Data) }, func(err error) { t.Error(err) })
}

// TestSettle: it waits until the file has been quiet for a while, whatever else happens beside it,
// but not for ever. Lost events are no noise.
func TestSettle(t *testing.T) {
	const quiet = 50 * time.Millisecond
	for _, test := range []struct {
		why   string
		name  string
		every time.Duration
		times int
		want  time.Duration
	}{
		{"nothing more", "rules.yaml", 0, 0, quiet},
		{"three pieces", "rules.yaml", 40 * time.Millisecond, 3, 3*40*time.Millisecond + quiet},
		{"slower than that", "rules.yaml", 60 * time.Millisecond, 3, quiet},
		{"another file", "other", 40 * time.Millisecond, 3, quiet},
		{"without an end", "rules.yaml", 40 * time.Millisecond, 1000, mostSettles * quiet},
	} {
		t.Run(test.why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				notify := &fsnotify.Watcher{Events: make(chan fsnotify.Event), Errors: make(chan error)}
				w := &watch{paths: []string{"rules.yaml"}, options: Options{Settle: quiet}, notify: notify}
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					for range test.times {
						time.Sleep(test.every) // in the test's own time
						select {
						case notify.Events <- fsnotify.Event{Name: test.name, Op: fsnotify.Write}:
						case <-ctx.Done():
							return
						}
					}
				}()
				begun := time.Now()
				w.settle(ctx)
				if took := time.Since(begun); took != test.want {
					t.Errorf("it waited %v, want %v", took, test.want)
				}
				stop()
				<-ended
			})
		})
	}
}

// TestHalfOfASwapIsNotTold: files that are swapped at once are read one after the other, so a read
// may meet the swap: one file of before and one of after, or none for the moment.
func TestHalfOfASwapIsNotTold(t *testing.T) {
	of := func(contents ...string) (files []File) {
		for _, c := range contents {
			files = append(files, File{Data: []byte(c)})
		}
		return files
	}
	type read struct {
		files []File
		err   error
	}
	before, after := of("cert 1", "key 1"), of("cert 2", "key 2")
	for why, first := range map[string]read{
		"one of before, one of after": {files: of("cert 1", "key 2")},
		"what is gone already":        {err: errors.New("no such file")},
	} {
		t.Run(why, func(t *testing.T) {
			reads := []read{first, {files: after}, {files: after}}
			var told [][]File
			w := &watch{
				paths: []string{filepath.Join(t.TempDir(), "tls.crt")}, last: before,
				read: func([]string, int64) ([]File, error) {
					next := reads[0]
					reads = reads[1:]
					return next.files, next.err
				},
				changed: func(files []File) { told = append(told, files) },
				trouble: func(err error) { t.Errorf("trouble: %v", err) },
			}
			defer w.close()
			w.look()
			if len(told) != 1 || !same(told[0], after) {
				t.Errorf("told of %q", told)
			}
		})
	}
}

var yamls = []string{".yaml", ".yml"}

// text is what files hold, with their names.
func text(files []File) string {
	var b strings.Builder
	for _, f := range files {
		fmt.Fprintf(&b, "%s=%s ", filepath.Base(f.Path), f.Data)
	}
	return b.String()
}

// beginDir watches a directory.
func beginDir(t *testing.T, dir string) (await func(want string), trouble chan error) {
	first, err := ReadDir(dir, yamls, 0)
	must(t, err)
	changes := make(chan string, 100)
	trouble = make(chan error, 100)
	daemontest.Background(t, func(ctx context.Context) error {
		WatchDir(ctx, dir, yamls, first, Options{Poll: time.Hour, Settle: 5 * time.Millisecond},
			func(all []File) { changes <- text(all) }, func(err error) { trouble <- err })
		return nil
	})
	return func(want string) {
		t.Helper()
		daemontest.Collect(t, "it tells of "+want, changes, func(got string) bool { return got == want })
	}, trouble
}

// Files of a directory that are added, changed and removed are changes; others are none.
func TestADirectoryIsFollowed(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	write(t, at("a.yaml"), "1")
	await, trouble := beginDir(t, dir)
	write(t, at("b.yml"), "2")
	await("a.yaml=1 b.yml=2 ")
	write(t, at("a.yaml"), "3")
	await("a.yaml=3 b.yml=2 ")
	write(t, at("README"), "no")
	write(t, at(".hidden.yaml"), "no")
	must(t, os.Mkdir(at("dir.yaml"), 0o700))
	must(t, os.Rename(at("b.yml"), at("c.yaml")))
	await("a.yaml=3 c.yaml=2 ")
	must(t, os.Remove(at("a.yaml")))
	await("c.yaml=2 ")
	must(t, os.Remove(at("c.yaml")))
	if err := daemontest.Collect(t, "it tells that there is none", trouble, func(err error) bool { return err != nil }); !strings.Contains(err[len(err)-1].Error(), "there is no file *.yaml, *.yml") {
		t.Error(err)
	}
	write(t, at("c.yaml"), "4")
	await("c.yaml=4 ")
}

// Kubernetes swaps a link to a directory beside the links to the files in it. A directory may also
// be a link itself, that is swapped.
func TestADirectoryOfLinksIsFollowed(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for version, content := range map[string]string{"..1": "1", "..2": "2", "..3": "3"} {
		must(t, os.Mkdir(at(version), 0o700))
		write(t, filepath.Join(at(version), "a.yaml"), content)
	}
	write(t, filepath.Join(at("..2"), "b.yaml"), "2")
	turn(t, at("..data"), "..1")
	turn(t, at("a.yaml"), "..data/a.yaml")
	await, _ := beginDir(t, dir)
	turn(t, at("..data"), "..2")
	await("a.yaml=2 ")
	turn(t, at("b.yaml"), "..data/b.yaml")
	await("a.yaml=2 b.yaml=2 ")

	turn(t, at("current"), "..1")
	await, _ = beginDir(t, at("current"))
	turn(t, at("current"), "..3")
	await("a.yaml=3 ")
	write(t, filepath.Join(at("..3"), "a.yaml"), "4")
	await("a.yaml=4 ")
}

func TestReadDirIsBounded(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.yaml"), "12345")
	write(t, filepath.Join(dir, "b.yaml"), "12345")
	files, err := ReadDir(dir, yamls, 10)
	must(t, err)
	if text(files) != "a.yaml=12345 b.yaml=12345 " || files[0].Modified.IsZero() {
		t.Errorf("%v", files)
	}
	if _, err := ReadDir(dir, yamls, 9); err == nil || !strings.Contains(err.Error(), "more than 9 bytes together") {
		t.Error(err)
	}
	if _, err := ReadDir(filepath.Join(dir, "none"), yamls, 9); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
