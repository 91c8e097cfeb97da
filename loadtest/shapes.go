package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/offpath-io/offpath/internal/flags"
	"github.com/offpath-io/offpath/loadtest/shapes"
)

const shapesSummary = `Draws what each algorithm lets through of the same hits, as SVG, to a file or to standard output.`

func drawShapes(_ context.Context, c call) error {
	var files []string
	s := newFlags("shapes", shapesSummary)
	s.Arguments(&files, "[FILE]")
	if done, err := s.Parse(c.args, c.getenv, c.stdout); done || err != nil {
		return err
	}
	if len(files) > 1 {
		return flags.Usagef("%d files: want one, or none", len(files))
	}
	all, err := shapes.All()
	if err != nil {
		return fmt.Errorf("draw shapes: %w", err)
	}
	picture := shapes.SVG(shapes.Asked(), all)
	if len(files) == 1 {
		return os.WriteFile(files[0], []byte(picture), 0o644)
	}
	_, err = io.WriteString(c.stdout, picture)
	return err
}
