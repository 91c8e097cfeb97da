//go:build !linux

package torture

import "time"

// cores are not told apart here.
func cores() []int { return []int{0} }

func sleeperOn(int) func(time.Duration) { return time.Sleep }
