package torture

import (
	"context"
	"sync"
	"time"
)

// standstill knows when the machine, or one core of it, stood still: when a thread that wanted to
// sleep for a moment slept for long. A host may take one core away from a virtual machine, and with
// it whatever process was there.
type standstill struct {
	mu   sync.Mutex
	gaps []span // in order, and apart
}

const (
	tick     = 5 * time.Millisecond
	longTick = 15 * time.Millisecond
)

// watchClock has a thread on each core until ctx is done.
func watchClock(ctx context.Context) *standstill {
	s := new(standstill)
	for _, core := range cores() {
		go func() {
			sleep := sleeperOn(core)
			for last := time.Now(); ctx.Err() == nil; {
				sleep(tick)
				now := time.Now()
				if now.Sub(last) > longTick {
					s.add(last.Add(tick), now)
				}
				last = now
			}
		}()
	}
	return s
}

// add notes that it stood still, as far as that is not known yet.
func (s *standstill) add(from, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n := len(s.gaps); n > 0 && s.gaps[n-1].until.After(from); n-- { // of several cores
		from, until = earlier(from, s.gaps[n-1].from), later(until, s.gaps[n-1].until)
		s.gaps = s.gaps[:n-1]
	}
	s.gaps = append(s.gaps, span{from, until})
}

// within is for how long it stood still between two times.
func (s *standstill) within(from, until time.Time) (d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := len(s.gaps) - 1; i >= 0 && s.gaps[i].until.After(from); i-- {
		if b, e := later(s.gaps[i].from, from), earlier(s.gaps[i].until, until); e.After(b) {
			d += e.Sub(b)
		}
	}
	return d
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
