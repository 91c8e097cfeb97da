package fleet

import (
	"runtime"
	"testing"
	"time"
)

// TestOwnTime goes on while the machine is suspended, and not when its clock is set.
func TestOwnTime(t *testing.T) {
	slept, asked := int64(0), 0
	o := &OwnTime{began: time.Unix(0, at), measured: func() int64 { asked++; return slept }}
	clock, counter, last := int64(0), int64(0), at
	for i, step := range []struct {
		counts, set, sleeps, measured int64 // by how much the clock is set, and how long the machine sleeps
		want                          int64
		asks                          int
	}{
		{counts: s, want: s},
		{counts: 3600 * s, set: s / 3, want: 3600 * s},
		{counts: s, sleeps: 60 * s, measured: 60 * s, want: 61 * s, asks: 1},
		{counts: s, want: s},
		{counts: s, set: -60 * s, want: s, asks: 1},
		{counts: s, set: 30 * s, measured: -10 * ms, want: s, asks: 1},
		{counts: s, sleeps: 90 * s, measured: 90 * s, want: 91 * s, asks: 1},
		{counts: 0, sleeps: 3600 * s, set: -10 * s, measured: 3600 * s, want: 3600 * s, asks: 1},
		{counts: ms, want: ms},
	} {
		slept += step.measured
		clock, counter = clock+step.counts+step.set+step.sleeps, counter+step.counts
		asked = 0
		now := o.at(clock, counter)
		if off := now - last - step.want; abs(off) > 10*ms || asked != step.asks {
			t.Errorf("%d: it goes on by %d, want %d, and asks %d times", i, now-last, step.want, asked)
		}
		last = now
	}
}

// TestUptime: Linux says for how long the machine has been up. A machine that is awake has not
// slept, as it measures that itself.
func TestUptime(t *testing.T) {
	if runtime.GOOS == "linux" && uptime() == 0 {
		t.Error("the machine does not say for how long it is up")
	}
	o := NewOwnTime(time.Now)
	for range 100 {
		if slept := o.measured(); slept > 20*ms {
			t.Fatalf("it says that it has slept for %v", time.Duration(slept))
		}
	}
	before := time.Now().UnixNano()
	if now := o.Now(); o.slept.Load() != 0 || now < before-10*s || now > time.Now().UnixNano()+10*s {
		t.Errorf("own time is %d, after %d", now, before)
	}
}
