package torture

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// cores are those that this process may use.
func cores() (numbers []int) {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) == nil {
		for i := range 1024 { // as many as a set holds
			if set.IsSet(i) {
				numbers = append(numbers, i)
			}
		}
	}
	return numbers
}

// sleeperOn keeps the calling goroutine on a core for good, and returns what lets it sleep there.
func sleeperOn(core int) func(time.Duration) {
	runtime.LockOSThread()
	var only unix.CPUSet
	only.Set(core)
	_ = unix.SchedSetaffinity(0, &only) // else it is on any
	return func(d time.Duration) {
		t := unix.NsecToTimespec(int64(d))
		_ = unix.Nanosleep(&t, nil) // one that is cut short is no long one
	}
}
