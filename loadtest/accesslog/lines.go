package accesslog

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
)

// lines splits a log. Its one buffer has room for the longest allowed line, so that no input takes
// more memory.
type lines struct {
	in     *bufio.Reader
	limit  int // of a line, in bytes
	number int // of the last line, from 1
}

// gzipMagic begins every gzip file, and no access log.
var gzipMagic = []byte{0x1f, 0x8b}

func newLines(r io.Reader, limit int) (*lines, error) {
	file := bufio.NewReader(r)
	in := io.Reader(file)
	// An error of Peek, most often a file of one byte, shows again in reading.
	if head, _ := file.Peek(len(gzipMagic)); bytes.Equal(head, gzipMagic) {
		unzipped, err := gzip.NewReader(file)
		if err != nil {
			return nil, fmt.Errorf("gzip: %w", err)
		}
		in = unzipped
	}
	return &lines{in: bufio.NewReaderSize(in, limit+len("\r\n")), limit: limit}, nil
}

// next returns a line without its end, valid until the next call. One that is longer than the limit
// is not whole: it is cut, and read past. After the last line the error is io.EOF.
func (l *lines) next() (line []byte, whole bool, err error) {
	l.number++
	line, err = l.in.ReadSlice('\n')
	whole = !errors.Is(err, bufio.ErrBufferFull)
	if !whole {
		line = bytes.Clone(line[:min(len(line), MaxText)])
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = l.in.ReadSlice('\n')
		}
	}
	if errors.Is(err, io.EOF) && len(line) > 0 { // the last line need not have an end
		err = nil
	}
	line = bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
	return line, whole && len(line) <= l.limit, err
}
