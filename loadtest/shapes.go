package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/offpath-io/offpath/internal/flags"
	"github.com/offpath-io/offpath/loadtest/shapes"
)

// drawShapes draws what each algorithm lets through, to a file or to standard output.
func drawShapes(_ context.Context, c call) error {
	if len(c.args) > 1 {
		return flags.Usagef("argument %q: want one file, or none", c.args[1])
	}
	all, err := shapes.All()
	if err != nil {
		return fmt.Errorf("draw shapes: %w", err)
	}
	picture := shapes.SVG(shapes.Asked(), all)
	if len(c.args) == 1 {
		return os.WriteFile(c.args[0], []byte(picture), 0o644)
	}
	_, err = io.WriteString(c.stdout, picture)
	return err
}
