// Package filesource watches a file of rules.
//
// Files change in many ways: editors write a new file and rename it over the old one, or truncate and
// write; Kubernetes swaps a symbolic link to a directory; people copy. So what is watched is the directory that the path
// names, and the one in which its links end; after any event there that may concern the file, and now and
// then without one, the file is read again. Only what it holds counts: the same content is no change.
package filesource

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Options of Watch. The zero value suits.
type Options struct {
	// Poll is the time between looks without an event, for file systems that tell of none (network mounts)
	// and for links to links. Default 5 s.
	Poll time.Duration
	// Settle is how long the directory has to be quiet before the file is read, so that it is not caught half written.
	// Default 50 ms. It waits ten times as long at most.
	Settle time.Duration
}

const (
	defaultPoll   = 5 * time.Second
	defaultSettle = 50 * time.Millisecond
	// mostSettles bounds the wait in a directory that is never quiet.
	mostSettles = 10
)

// Watch calls changed whenever the file at path holds something else than before, first of all than last; and
// trouble with the reason when it cannot be read, and with nil when it can again. Both are called by this
// goroutine, one at a time. It returns nil when ctx is done.
//
// A path that is no regular file, such as a pipe, is not watched: it can only be read once.
func Watch(ctx context.Context, path string, last File, o Options, changed func(File), trouble func(error)) error {
	if o.Poll <= 0 {
		o.Poll = defaultPoll
	}
	if o.Settle <= 0 {
		o.Settle = defaultSettle
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		<-ctx.Done()
		return nil
	}
	w := &watch{path: filepath.Clean(path), last: last, options: o, changed: changed, trouble: trouble}
	defer w.close()
	w.run(ctx)
	return nil
}

// watch is one call of Watch.
type watch struct {
	path    string
	last    File
	options Options
	changed func(File)
	trouble func(error)

	why     string            // the trouble last told, "" if all is well
	notify  *fsnotify.Watcher // nil where the system has none left: then polling must do
	watched []string          // directories
	target  string            // where the path's links end
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
			if file, err := Read(w.path); err == nil && !file.same(w.last) {
				w.settle(ctx) // it may be being written
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

// concerns reports whether an event may be of the file. Another file that appears or goes may be a link on the
// way to it; what is written to others is not.
func (w *watch) concerns(event fsnotify.Event) bool {
	if event.Op == fsnotify.Chmod {
		return false
	}
	if name := filepath.Clean(event.Name); name == w.path || name == w.target {
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

// look reads the file, and tells what is new. It watches first, so that no change falls between.
func (w *watch) look() {
	w.follow()
	file, err := Read(w.path)
	if err != nil {
		w.tell(err)
		return
	}
	w.tell(nil)
	if !file.same(w.last) {
		w.last = file
		w.changed(file)
	}
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
	wanted := []string{filepath.Dir(w.path)}
	w.target = w.path
	if target, err := filepath.EvalSymlinks(w.path); err == nil {
		w.target = target
		if dir := filepath.Dir(target); dir != wanted[0] {
			wanted = append(wanted, dir)
		}
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
