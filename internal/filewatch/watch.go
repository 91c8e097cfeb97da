// Package filewatch tells when files change that belong together: a file of rules or a directory of
// them, or a certificate and its key.
//
// Files change in many ways: editors write a new file and rename it over the old one, or truncate
// and write; Kubernetes swaps a symbolic link to a directory; people copy. So what is watched is
// the directory that each path names, and the one in which its links end; after any event there
// that may concern a file, and now and then without one, all are read again. Only what they hold
// counts: the same content is no change.
package filewatch

import (
	"context"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Options of Watch. The zero value suits.
type Options struct {
	// Poll is the time between looks without an event, for file systems that tell of none (network
	// mounts) and for links to links. Default 5 s.
	Poll time.Duration
	// Settle is how long the directories have to be quiet before the files are read, so that none
	// is caught half written. Default 50 ms. It waits ten times as long at most.
	Settle time.Duration
	// MaxSize is the most bytes that are read of a file, 1 MiB by default: of a longer one, one
	// byte more than that.
	MaxSize int64
}

const (
	defaultPoll    = 5 * time.Second
	defaultSettle  = 50 * time.Millisecond
	defaultMaxSize = 1 << 20
	// mostSettles bounds the wait in a directory that is never quiet.
	mostSettles = 10
)

// Watch calls changed whenever the files at the paths hold something else than before, first of all
// than last, which has one File for each path; and trouble with the reason when one cannot be read,
// and with nil when all can again. Both are called by this goroutine, one at a time. It returns
// when ctx is done.
//
// Paths that are no regular files, such as pipes, are not watched, nor are the others beside them:
// they can only be read once.
func Watch(ctx context.Context, paths []string, last []File, o Options, changed func([]File), trouble func(error)) {
	if !regular(paths) {
		<-ctx.Done()
		return
	}
	w := &watch{last: last, options: o.withDefaults(), changed: changed, trouble: trouble}
	for _, path := range paths {
		w.paths = append(w.paths, filepath.Clean(path))
	}
	w.read = ReadAll
	defer w.close()
	w.run(ctx)
}

// WatchDir is Watch of all files that ReadDir reads: those that are added, and those that go, are
// changes, too. It bounds their bytes by Options.MaxSize together.
func WatchDir(ctx context.Context, dir string, suffixes []string, last []File, o Options, changed func([]File), trouble func(error)) {
	w := &watch{
		dir: filepath.Clean(dir), suffixes: suffixes,
		last: last, options: o.withDefaults(), changed: changed, trouble: trouble,
	}
	w.read = func(_ []string, maxSize int64) ([]File, error) { return ReadDir(dir, suffixes, maxSize) }
	defer w.close()
	w.run(ctx)
}

func (o Options) withDefaults() Options {
	if o.Poll <= 0 {
		o.Poll = defaultPoll
	}
	if o.Settle <= 0 {
		o.Settle = defaultSettle
	}
	return o
}

// watch is one call of Watch or WatchDir.
type watch struct {
	paths    []string // in a directory, those that there were last
	dir      string   // "" for Watch
	suffixes []string

	last    []File
	options Options
	read    func(paths []string, maxSize int64) ([]File, error) // ReadAll or ReadDir
	changed func([]File)
	trouble func(error)

	why     string            // the trouble last told, "" if all is well
	notify  *fsnotify.Watcher // nil where the system has none left: then polling must do
	watched []string          // directories
	targets []string          // where the paths' links end
}

func (w *watch) run(ctx context.Context) {
	poll := time.NewTicker(w.options.Poll)
	defer poll.Stop()
	w.look() // it may have changed since it was read
	for {
		events, errs := w.channels()
		select {
		case <-ctx.Done():
			return
		case <-poll.C:
			if files, err := w.read(w.paths, w.options.MaxSize); err == nil && !same(files, w.last) {
				w.settle(ctx) // one may be being written
			}
		case event := <-events:
			if !w.concerns(event) {
				continue
			}
			w.settle(ctx)
		case <-errs: // events were lost
		}
		w.look()
	}
}

func (w *watch) channels() (chan fsnotify.Event, chan error) {
	if w.notify == nil {
		return nil, nil
	}
	return w.notify.Events, w.notify.Errors
}

// concerns reports whether an event may be of a file. Another file that appears or goes may be a
// link on the way to one; what is written to others is not.
func (w *watch) concerns(event fsnotify.Event) bool {
	if event.Op == fsnotify.Chmod {
		return false
	}
	if name := filepath.Clean(event.Name); slices.Contains(w.paths, name) || slices.Contains(w.targets, name) {
		return true
	}
	return event.Has(fsnotify.Create) || event.Has(fsnotify.Rename) || event.Has(fsnotify.Remove)
}

// settle waits until there are no more events.
func (w *watch) settle(ctx context.Context) {
	longest := time.NewTimer(mostSettles * w.options.Settle)
	defer longest.Stop()
	quiet := time.NewTimer(w.options.Settle)
	defer quiet.Stop()
	events, errs := w.channels()
	for {
		select {
		case event := <-events:
			if w.concerns(event) {
				quiet.Reset(w.options.Settle)
			}
		case <-errs:
		case <-quiet.C:
			return
		case <-longest.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// look reads the files, and tells what is new. It watches first, so that no change falls between.
func (w *watch) look() {
	w.follow()
	files, err := w.readAll()
	if err != nil {
		w.tell(err)
		return
	}
	w.tell(nil)
	if !same(files, w.last) {
		w.last = files
		w.changed(files)
	}
}

// mostReads bounds the reads of files that change all the time.
const mostReads = 10

// readAll reads the files until two reads in a row agree, if there is anything new. A single read
// may meet a directory that is being swapped: then it finds one file of before and one of after, or
// none, though nobody has ever written such a pair.
func (w *watch) readAll() ([]File, error) {
	files, err := w.read(w.paths, w.options.MaxSize)
	if err == nil && same(files, w.last) {
		return files, nil
	}
	for range mostReads {
		before, wrong := files, err
		files, err = w.read(w.paths, w.options.MaxSize)
		if (err == nil) == (wrong == nil) && same(files, before) {
			break
		}
	}
	return files, err
}

// tell tells of trouble once, and of its end.
func (w *watch) tell(err error) {
	why := ""
	if err != nil {
		why = err.Error()
	}
	if why != w.why {
		w.why = why
		w.trouble(err)
	}
}

// follow watches the directories that matter now. What cannot be watched is polled.
func (w *watch) follow() {
	if w.notify == nil {
		notify, err := fsnotify.NewWatcher()
		if err != nil {
			return
		}
		w.notify = notify
	}
	var wanted []string
	want := func(dir string) {
		if !slices.Contains(wanted, dir) {
			wanted = append(wanted, dir)
		}
	}
	w.targets = w.targets[:0]
	wantFile := func(path string) {
		want(filepath.Dir(path))
		if target, err := filepath.EvalSymlinks(path); err == nil {
			w.targets = append(w.targets, target)
			want(filepath.Dir(target))
		}
	}
	if w.dir != "" {
		w.paths, _ = list(w.dir, w.suffixes) // that it cannot be read is told when it is
		wantFile(w.dir)
		want(w.dir) // even if no file is there
	}
	for _, path := range w.paths {
		wantFile(path)
	}
	for _, dir := range w.watched {
		if !slices.Contains(wanted, dir) {
			_ = w.notify.Remove(dir) // gone already, as a rule
		}
	}
	for _, dir := range wanted {
		_ = w.notify.Add(dir) // again and again: it may be another directory of the same name
	}
	w.watched = wanted
}

func (w *watch) close() {
	if w.notify != nil {
		_ = w.notify.Close()
	}
}
