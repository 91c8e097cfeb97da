//go:build torture

package main

import (
	"os"
	"strings"
	"sync/atomic"
	"time"
)

// clock returns a clock that is ahead of the machine's by what is in a file, such as "-3s", read
// twenty times a second: so that a fault campaign ("loadtest torture") can set it wrong at a start,
// and have it jump ahead later.
func clock() func() time.Time {
	var ahead atomic.Int64
	read := func() {
		text, err := os.ReadFile(os.Getenv("OFFPATH_TORTURE_CLOCK"))
		if d, malformed := time.ParseDuration(strings.TrimSpace(string(text))); err == nil && malformed == nil {
			ahead.Store(int64(d))
		}
	}
	read()
	go func() {
		for ; ; time.Sleep(50 * time.Millisecond) {
			read()
		}
	}()
	return func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
}
