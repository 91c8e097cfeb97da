package filewatch

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
)

// TestSettle: it waits until the file has been quiet for a while, whatever else happens beside it, but not for ever. Lost
// events are no noise.
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
