// Package diskcache keeps on disk what a checker has taken from a NATS bucket, so that one which
// starts while NATS is away begins where the last one ended.
//
// A [File] holds the values of one bucket as they were there, with their signatures, which can be
// verified again when the file is loaded. Its checksum detects damage, but no forgery: that is left
// to signatures and, where there are none, to the file's mode.
package diskcache

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Value is one value of a bucket.
type Value struct {
	Key string `json:"key"`
	// Revision is the bucket's number of the value, 0 if it was not kept.
	Revision uint64 `json:"revision,omitempty"`
	// Written is when the value was written into the bucket, by the server's clock.
	Written time.Time `json:"written"`
	// Raw is the whole value, signature included.
	Raw []byte `json:"raw"`
}

// Content is the content of a file.
type Content struct {
	Bucket string `json:"bucket"`
	// Saved is when the file was written, by this machine's clock.
	Saved  time.Time `json:"saved"`
	Values []Value   `json:"values"`
}

// ErrDamaged is wrapped by the errors of files that are damaged, or of another bucket.
var ErrDamaged = errors.New("not a whole cache file of this bucket")

const (
	// header begins the first line, which ends with the SHA-256 of all lines after it.
	header = "offpath-cache-1 "
	// mostBytes bounds a file: a bucket of blocks holds at most 10,000 of some 6 KB.
	mostBytes = 128 << 20
	// writableByOthers are the bits of a file's mode that no cache has.
	writableByOthers = 0o002
)

// File is the file of one bucket. Its methods may be called by one goroutine at a time; any number
// of processes may share it: the last one to save wins.
type File struct{ dir, bucket string }

// New returns the file for a bucket in a directory. Neither has to exist.
func New(dir, bucket string) File { return File{dir, bucket} }

// Path is where the file is.
func (f File) Path() string { return filepath.Join(f.dir, f.bucket+".cache") }

// Load reads the file. The error wraps fs.ErrNotExist if there is none, and ErrDamaged if Save
// cannot have written it.
func (f File) Load() (Content, error) {
	open, err := os.Open(f.Path())
	if err != nil {
		return Content{}, err
	}
	defer open.Close()
	info, err := open.Stat()
	switch {
	case err != nil:
		return Content{}, err
	case !info.Mode().IsRegular() || info.Mode().Perm()&writableByOthers != 0:
		return Content{}, fmt.Errorf("%w: its mode is %v: anybody may have written it",
			ErrDamaged, info.Mode())
	}
	data, err := io.ReadAll(io.LimitReader(open, mostBytes+1))
	if err != nil {
		return Content{}, err
	}
	return f.read(data)
}

func (f File) read(data []byte) (c Content, err error) {
	first, body, found := bytes.Cut(data, []byte("\n"))
	switch {
	case len(data) > mostBytes:
		return c, fmt.Errorf("%w: it is larger than any", ErrDamaged)
	case !found || !bytes.HasPrefix(first, []byte(header)):
		return c, fmt.Errorf("%w: it does not begin as one", ErrDamaged)
	case string(first) != header+sum(body):
		return c, fmt.Errorf("%w: its checksum is wrong", ErrDamaged)
	}
	if err := json.Unmarshal(body, &c); err != nil {
		return Content{}, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if c.Bucket != f.bucket {
		return Content{}, fmt.Errorf("%w: it is of %q", ErrDamaged, c.Bucket)
	}
	return c, nil
}

func sum(body []byte) string {
	digest := sha256.Sum256(body)
	return hex.EncodeToString(digest[:])
}

// Save replaces the file, which only this user may read. At any time one of the two is there,
// whole. It creates the directory if there is none.
func (f File) Save(values []Value, now time.Time) (err error) {
	body, err := json.Marshal(Content{f.bucket, now.UTC(), values})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(f.dir, 0o700); err != nil {
		return err
	}
	f.removeLeftovers(now)
	temp, err := os.CreateTemp(f.dir, f.bucket+".*.tmp") // of mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, ignore(os.Remove(temp.Name())))
		}
	}()
	_, err = temp.Write(append([]byte(header+sum(body)+"\n"), body...))
	if err == nil {
		err = temp.Sync()
	}
	if err = errors.Join(err, temp.Close()); err != nil {
		return err
	}
	if err := os.Rename(temp.Name(), f.Path()); err != nil {
		return err
	}
	syncDir(f.dir)
	return nil
}

// leftover is the age of a temporary file that no process writes any more.
const leftover = time.Hour

// removeLeftovers removes temporary files of processes that were killed while they wrote.
func (f File) removeLeftovers(now time.Time) {
	names, _ := filepath.Glob(filepath.Join(f.dir, f.bucket+".*.tmp")) // the pattern is a good one
	for _, name := range names {
		if info, err := os.Stat(name); err == nil && now.Sub(info.ModTime()) > leftover {
			_ = os.Remove(name) // it is small, and the next save tries again
		}
	}
}

// ignore ignores that there is nothing to remove.
func ignore(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// syncDir makes the new name durable, on file systems that can. On others the file before may be
// back after a power failure.
func syncDir(dir string) {
	if open, err := os.Open(dir); err == nil {
		_ = open.Sync()
		_ = open.Close()
	}
}
