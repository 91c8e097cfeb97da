package filewatch

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// File is what a file held at one time.
type File struct {
	Path string
	Data []byte
	// Modified is when it was written, as its file system says.
	Modified time.Time
}

// Read reads up to one byte more than maxSize (0 for the default) of the file at path. The error
// names the file.
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
	return File{Path: path, Data: data, Modified: info.ModTime()}, nil
}

// mostFiles bounds the files of a directory.
const mostFiles = 1000

// ReadDir reads the files in a directory whose names have one of the suffixes, in the order of
// their names: regular ones, or links to such, that no dot makes hidden. It reads no directories in
// it. All together may have maxSize bytes (0 for the default). The error names the directory or the
// file; that there is no such file is one, too.
func ReadDir(dir string, suffixes []string, maxSize int64) ([]File, error) {
	if maxSize <= 0 {
		maxSize = defaultMaxSize
	}
	paths, err := list(dir, suffixes)
	switch {
	case err != nil:
		return nil, err
	case len(paths) == 0:
		return nil, fmt.Errorf("%s: there is no file *%s", dir, strings.Join(suffixes, ", *"))
	case len(paths) > mostFiles:
		return nil, fmt.Errorf("%s: %d files: want at most %d", dir, len(paths), mostFiles)
	}
	files, left := make([]File, len(paths)), maxSize
	for i, path := range paths {
		if files[i], err = Read(path, max(left, 1)); err != nil {
			return nil, err
		}
		if left -= int64(len(files[i].Data)); left < 0 {
			return nil, fmt.Errorf("%s: its files have more than %d bytes together", dir, maxSize)
		}
	}
	return files, nil
}

// ReadPath reads the file at path, or if it is a directory its files as ReadDir does.
func ReadPath(path string, suffixes []string, maxSize int64) (files []File, isDir bool, err error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		files, err = ReadDir(path, suffixes, maxSize)
		return files, true, err
	}
	files, err = ReadAll([]string{path}, maxSize)
	return files, false, err
}

// list returns the paths of the files that ReadDir reads.
func list(dir string, suffixes []string) (paths []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		name, path := entry.Name(), filepath.Join(dir, entry.Name())
		wanted := func(suffix string) bool { return strings.HasSuffix(name, suffix) }
		if !strings.HasPrefix(name, ".") && slices.ContainsFunc(suffixes, wanted) &&
			regular([]string{path}) {
			paths = append(paths, path)
		}
	}
	return paths, nil
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

// same reports whether the contents are equal, and those of the same files.
func same(files, others []File) bool {
	return slices.EqualFunc(files, others, func(a, b File) bool {
		return a.Path == b.Path && bytes.Equal(a.Data, b.Data)
	})
}

// regular reports whether none of the paths is certainly something else than a regular file.
func regular(paths []string) bool {
	return !slices.ContainsFunc(paths, func(path string) bool {
		info, err := os.Stat(path)
		return err == nil && !info.Mode().IsRegular()
	})
}
