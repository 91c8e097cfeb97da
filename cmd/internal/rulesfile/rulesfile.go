// Package rulesfile reads files of rules for the commands.
package rulesfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/offpath-io/offpath/internal/filewatch"
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/rules/envoyrules"
)

// Stdin is the path that means standard input.
const Stdin = "-"

// Rules are the rules of a file, or of all files of a directory.
type Rules struct {
	Set *rules.Set
	// Text is the file, or the files after each other: one for the fleet's bucket, unless NotOne
	// says why that cannot be.
	Text   []byte
	NotOne error
	// Warnings are what the files do not mean here, or what their authors may not expect.
	Warnings []envoyrules.Warning
}

// Open reads the file at path, or a directory's files, or stdin for Stdin. They are in offpath's
// own format or in envoyproxy/ratelimit's. An error names the file, and the place in it.
func Open(path string, stdin io.Reader) (r Rules, err error) {
	var files []filewatch.File
	if path == Stdin {
		files = []filewatch.File{{Path: "standard input"}}
		// Reading refuses the one byte more.
		files[0].Data, err = io.ReadAll(io.LimitReader(stdin, rules.MaxSize+1))
	} else {
		files, _, err = filewatch.ReadPath(path, envoyrules.Suffixes, rules.MaxSize)
	}
	if err != nil {
		return r, fmt.Errorf("load rules: %w", err)
	}
	texts := make([]envoyrules.File, len(files))
	for i, f := range files {
		texts[i] = envoyrules.File{Name: f.Path, Data: f.Data}
	}
	if r.Set, r.Warnings, err = envoyrules.ReadFiles(texts...); err != nil {
		return r, err
	}
	r.join(files)
	return r, nil
}

var errNotOne = errors.New("several files make one text only if all of them are in " +
	"envoyproxy/ratelimit's format: write the rules into one file")

// join makes one text of the files: each is a document of it, or several.
func (r *Rules) join(files []filewatch.File) {
	if r.Text = files[0].Data; len(files) == 1 {
		return
	}
	var text bytes.Buffer
	for i, f := range files {
		if i > 0 {
			text.WriteString("\n---\n")
		}
		text.Write(bytes.TrimPrefix(f.Data, []byte("\ufeff")))
	}
	r.Text = text.Bytes()
	again, err := envoyrules.Read(r.Text)
	if err != nil || len(rules.Diff(r.Set, again)) > 0 {
		r.NotOne = errNotOne
	}
}
