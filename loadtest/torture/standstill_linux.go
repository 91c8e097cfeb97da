package torture

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// cores are those that this process may use, or one for all of them if that cannot be known.
func cores() (numbers []int) {
	var set unix.CPUSet
	_ = unix.SchedGetaffinity(0, &set)
	for i := range 1024 { // as many as a set holds
		if set.IsSet(i) {
			numbers = append(numbers, i)
		}
	}
	if len(numbers) == 0 {
		return []int{-1}
	}
	return numbers
}

// sleeperOn keeps the calling goroutine on a core for good, and returns what lets it sleep there.
func sleeperOn(core int) func(time.Duration) {
	runtime.LockOSThread()
	var only unix.CPUSet
	only.Set(core)                      // no effect of -1
	_ = unix.SchedSetaffinity(0, &only) // else it is on any
	return func(d time.Duration) {
		t := unix.NsecToTimespec(int64(d))
		_ = unix.Nanosleep(&t, nil) // one that is cut short is no long one
	}
}
