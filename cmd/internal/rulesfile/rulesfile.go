// Package rulesfile reads files of rules for the commands.
package rulesfile

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/offpath-io/offpath/internal/filewatch"
	"github.com/offpath-io/offpath/internal/natssource"
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
	named, texts := make([]envoyrules.File, len(files)), make([][]byte, len(files))
	for i, f := range files {
		named[i], texts[i] = envoyrules.File{Name: f.Path, Data: f.Data}, f.Data
	}
	if r.Set, r.Warnings, err = envoyrules.ReadFiles(named...); err != nil {
		return r, err
	}
	if r.Text = natssource.OneText(texts...); len(files) > 1 {
		r.NotOne = r.checkOne()
	}
	return r, nil
}

var errNotOne = errors.New("several files make one text only if all of them are in " +
	"envoyproxy/ratelimit's format: write the rules into one file")

// checkOne returns why the text of several files does not mean what they do.
func (r *Rules) checkOne() error {
	isOwn := func(rule *rules.Rule) bool {
		_, theirs := rule.Origin.(*envoyrules.Origin)
		return !theirs
	}
	again, err := envoyrules.Read(r.Text)
	switch {
	case err == nil && len(rules.Diff(r.Set, again)) == 0:
		return nil
	case err == nil, slices.ContainsFunc(r.Set.Rules(), isOwn):
		return errNotOne
	}
	return fmt.Errorf("the files as one text: %w", err)
}
