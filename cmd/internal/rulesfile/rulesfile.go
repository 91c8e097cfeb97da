// Package rulesfile reads files of rules for the commands.
package rulesfile

import (
	"errors"
	"fmt"
	"io"

	"github.com/offpath-io/offpath/internal/filewatch"
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/rules/envoyrules"
)

// Stdin is the path that means standard input.
const Stdin = "-"

// Open returns the content of the file at path, or of stdin for Stdin, and its set. The file is in
// offpath's own format or in envoyproxy/ratelimit's. An error names the file, and the place in it.
func Open(path string, stdin io.Reader) ([]byte, *rules.Set, error) {
	var file filewatch.File
	var err error
	name := path
	if path == Stdin {
		name = "standard input"
		// Read refuses the one byte more.
		file.Data, err = io.ReadAll(io.LimitReader(stdin, rules.MaxSize+1))
	} else {
		file, err = filewatch.Read(path, rules.MaxSize)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("load rules: %w", err)
	}
	set, err := envoyrules.Read(file.Data)
	if refusal, ok := errors.AsType[*rules.Error](err); ok {
		refusal.File = name
	}
	return file.Data, set, err
}
