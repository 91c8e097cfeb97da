// Package rulesfile reads rules for the commands: what a file may hold, the bucket may hold, and
// the other way round.
package rulesfile

import (
	"errors"
	"fmt"
	"io"

	"github.com/offpath-io/offpath/internal/filewatch"
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/rules/envoyrules"
)

// Read makes a set of a file's text, which is in offpath's own format or in envoyproxy/ratelimit's.
func Read(data []byte) (*rules.Set, error) { return envoyrules.Read(data) }

// Stdin is the path that means standard input.
const Stdin = "-"

// Open returns what is at path, or on stdin for Stdin, and its set. An error names the file, and
// the place in it.
func Open(path string, stdin io.Reader) (data []byte, set *rules.Set, err error) {
	name := path
	if path == Stdin {
		name = "standard input"
		data, err = io.ReadAll(io.LimitReader(stdin, rules.MaxSize+1)) // Read refuses the one byte more
	} else {
		var file filewatch.File
		file, err = filewatch.Read(path, rules.MaxSize)
		data = file.Data
	}
	if err != nil {
		return nil, nil, fmt.Errorf("load rules: %w", err)
	}
	set, err = Read(data)
	if refusal, ok := errors.AsType[*rules.Error](err); ok {
		refusal.File = name
	}
	return data, set, err
}
