//go:build !torture

package daemon

import "time"

// Clock returns the process' clock; nil is the machine's.
func Clock() func() time.Time { return nil }
