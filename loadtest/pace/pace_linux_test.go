package pace

import (
	"testing"
	"time"
)

// The kernel's timer is there, is waited for as a connection is, and is never early.
func TestPause(t *testing.T) {
	pause := New()
	defer pause.Close()
	timer, ok := pause.(*timerFile)
	if !ok {
		t.Fatalf("the pauser is a %T", pause)
	}
	if err := timer.file.SetReadDeadline(time.Time{}); err != nil {
		t.Errorf("the runtime's poller does not know the timer: %v", err)
	}
	for _, d := range []time.Duration{1, 1_000, 100_000, 1_500_000, 5_000_000} {
		for range 5 {
			began := time.Now()
			pause.Pause(d)
			if took := time.Since(began); took < d {
				t.Errorf("%v took %v", d, took)
			}
		}
	}
}
