package filewatch

import (
	"bytes"
	"io"
	"os"
	"slices"
	"time"
)

// File is what a file held at one time.
type File struct {
	Data []byte
	// Modified is when it was written, as its file system says.
	Modified time.Time
}

// Read reads up to one byte more than maxSize (0 for the default) of the file at path. The error names the file.
func Read(path string, maxSize int64) (File, error) {
	if maxSize <= 0 {
		maxSize = defaultMaxSize
	}
	file, err := os.Open(path)
	if err != nil {
		return File{}, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return File{}, err
	}
	data, err := io.ReadAll(io.LimitReader(file, maxSize+1))
	if err != nil {
		return File{}, err
	}
	return File{Data: data, Modified: info.ModTime()}, nil
}

// ReadAll reads several as Read does. The error is the first one's.
func ReadAll(paths []string, maxSize int64) ([]File, error) {
	files := make([]File, len(paths))
	for i, path := range paths {
		var err error
		if files[i], err = Read(path, maxSize); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// same reports whether the contents are equal.
func same(files, others []File) bool {
	return slices.EqualFunc(files, others, func(a, b File) bool { return bytes.Equal(a.Data, b.Data) })
}

// regular reports whether none of the paths is certainly something else than a regular file.
func regular(paths []string) bool {
	return !slices.ContainsFunc(paths, func(path string) bool {
		info, err := os.Stat(path)
		return err == nil && !info.Mode().IsRegular()
	})
}
