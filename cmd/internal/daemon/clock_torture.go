//go:build torture

package daemon

import (
	"os"
	"strings"
	"time"
)

// Clock returns a clock that is ahead of the machine's by what is in a file, such as "-3s": so that
// a fault campaign ("loadtest torture") can start a daemon with a wrong one. Nil is the machine's.
func Clock() func() time.Time {
	file, begun := os.Getenv("OFFPATH_TORTURE_CLOCK"), time.Now()
	if file == "" {
		return nil
	}
	var ahead time.Duration
	if text, err := os.ReadFile(file); err == nil {
		ahead, _ = time.ParseDuration(strings.TrimSpace(string(text))) // else it is right
	}
	wall := begun.Add(ahead).Round(0)
	return func() time.Time { return wall.Add(time.Since(begun)) }
}
