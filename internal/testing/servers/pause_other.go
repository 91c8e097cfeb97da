//go:build !unix

package servers

import (
	"errors"
	"fmt"
)

func (p *process) pause() error { return fmt.Errorf("pause process: %w", errors.ErrUnsupported) }

// resume has nothing to do, since nothing can be paused.
func (p *process) resume() error { return nil }
