//go:build torture

package main

import (
	"os"
	"strings"
	"sync/atomic"
	"time"
)

// clock returns a clock that is ahead of the machine's by what is in a file, such as "-3s", read
// twenty times a second: so that a fault campaign ("loadtest torture") can step it.
func clock() func() time.Time {
	var ahead atomic.Int64
	go func() {
		for ; ; time.Sleep(50 * time.Millisecond) {
			text, _ := os.ReadFile(os.Getenv("OFFPATH_TORTURE_CLOCK"))
			d, _ := time.ParseDuration(strings.TrimSpace(string(text))) // no file, or half of one: 0
			ahead.Store(int64(d))
		}
	}()
	return func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
}
