// Package filesource watches a file of rules, however it is changed: by an editor, by a copy, by
// Kubernetes.
package filesource

import (
	"context"
	"fmt"
	"time"

	"github.com/offpath-io/offpath/internal/filewatch"
	"github.com/offpath-io/offpath/pkg/rules"
)

// File is what a file held at one time.
type File struct {
	// Data is the content; of a file longer than rules.MaxSize, which no parser takes, one byte
	// more than that.
	Data []byte
	// Modified is when the file was written, by its file system.
	Modified time.Time
}

// Revision is when the file was written, in Unix milliseconds: so the checker with the newer file
// has the higher revision, and a restart changes nothing. 1 for a file from before 1970.
func (f File) Revision() uint64 { return uint64(max(f.Modified.UnixMilli(), 1)) }

// Read reads the file at path.
func Read(path string) (File, error) {
	file, err := filewatch.Read(path, rules.MaxSize)
	if err != nil {
		return File{}, loading(err)
	}
	return File(file), nil
}

func loading(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("load rules: %w", err)
}

// Options of Watch. The zero value suits.
type Options struct {
	// Poll is the time between two checks without an event, for file systems without events
	// (network mounts) and for links to links. Default 5 s.
	Poll time.Duration
	// Settle is how long the directory has to be quiet before the file is read, so that no
	// half-written file is read; at most ten times as long is waited. Default 50 ms.
	Settle time.Duration
}

// Watch calls changed whenever the content of the file at path differs from before, first of all
// from last. It calls trouble with an error when the file cannot be read, and with nil when it can
// again. Both are called by this goroutine, one at a time. It returns when ctx is done.
//
// A path that is no regular file, such as a pipe, is not watched: it can be read only once.
func Watch(
	ctx context.Context, path string, last File, o Options,
	changed func(File), trouble func(error),
) {
	filewatch.Watch(ctx, []string{path}, []filewatch.File{filewatch.File(last)},
		filewatch.Options{Poll: o.Poll, Settle: o.Settle, MaxSize: rules.MaxSize},
		func(files []filewatch.File) { changed(File(files[0])) },
		func(err error) { trouble(loading(err)) })
}
