package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/offpath-io/offpath/internal/flags"
	"github.com/offpath-io/offpath/loadtest/shapes"
)

func newShapes() *cobra.Command {
	return &cobra.Command{
		Use: "shapes [FILE]", Short: "draw what each algorithm lets through, as SVG",
		Long: "Draws what each algorithm lets through of the same hits, as SVG, to FILE or to " +
			"standard output.",
		Args: func(_ *cobra.Command, files []string) error {
			if len(files) > 1 {
				return flags.Usagef("%d files: want one, or none", len(files))
			}
			return nil
		},
		RunE: drawShapes,
	}
}

func drawShapes(cmd *cobra.Command, files []string) error {
	all, err := shapes.All()
	if err != nil {
		return fmt.Errorf("draw shapes: %w", err)
	}
	picture := shapes.SVG(shapes.Asked(), all)
	if len(files) == 1 {
		return os.WriteFile(files[0], []byte(picture), 0o644)
	}
	_, err = io.WriteString(cmd.OutOrStdout(), picture)
	return err
}
