package decisionlog

import (
	"context"
	"fmt"
	"io"
)

// Lines is the sink that writes to the process' log.
type Lines struct{ To io.Writer }

// Name is "log".
func (Lines) Name() string { return "log" }

// Write writes all lines at once.
func (l Lines) Write(_ context.Context, _ uint64, lines []byte) error {
	if _, err := l.To.Write(lines); err != nil {
		return fmt.Errorf("write the decision log: %w", err)
	}
	return nil
}
