//go:build !torture

package checker

import "time"

// clock returns the process' clock; nil is the machine's.
func clock() func() time.Time { return nil }
