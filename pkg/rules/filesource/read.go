package filesource

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/offpath-io/offpath/pkg/rules"
)

// File is what a file held at one time.
type File struct {
	// Data is its content; of a file longer than rules.MaxSize, which no reader takes, one byte more than
	// that.
	Data []byte
	// Modified is when it was written, as its file system says.
	Modified time.Time
}

// Revision is when the file was written, in Unix milliseconds: so of two checkers, the one with the newer
// file has the higher revision, and a restart changes nothing. 1 for a file that says it is older than 1970.
func (f File) Revision() uint64 { return uint64(max(f.Modified.UnixMilli(), 1)) }

// same reports whether the contents are equal.
func (f File) same(other File) bool { return bytes.Equal(f.Data, other.Data) }

// Read reads the file at path.
func Read(path string) (File, error) {
	file, err := os.Open(path)
	if err != nil {
		return File{}, fmt.Errorf("load rules: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return File{}, fmt.Errorf("load rules: %w", err)
	}
	data, err := io.ReadAll(io.LimitReader(file, rules.MaxSize+1))
	if err != nil {
		return File{}, fmt.Errorf("load rules: %w", err)
	}
	return File{Data: data, Modified: info.ModTime()}, nil
}
