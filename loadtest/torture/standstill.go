package torture

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/prometheus/procfs"
)

// standstill knows when the machine stood still: when a thread that wanted to sleep for a moment
// slept for long, or, in a virtual machine, when its host ran something else on one of its cores.
// (The thread may have been on the other one.)
type standstill struct {
	mu   sync.Mutex
	gaps []span // in order, and apart
}

const (
	tick     = 5 * time.Millisecond
	longTick = 25 * time.Millisecond
)

func watchClock(ctx context.Context) *standstill {
	s := new(standstill)
	go func() {
		runtime.LockOSThread()
		before := stolen()
		for last := time.Now(); ctx.Err() == nil; {
			time.Sleep(tick)
			now, after := time.Now(), stolen()
			if now.Sub(last) > longTick {
				s.add(last.Add(tick), now)
			}
			for core, t := range after {
				if was, known := before[core]; known && t-was > longTick {
					s.add(now.Add(was-t), now)
				}
			}
			last, before = now, after
		}
	}()
	return s
}

// stolen is for how long the host has run something else on each core since the machine's start, as
// far as the system says so.
func stolen() map[int64]time.Duration {
	all := make(map[int64]time.Duration)
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return all
	}
	stat, err := proc.Stat()
	if err != nil {
		return all
	}
	for core, spent := range stat.CPU {
		all[core] = time.Duration(spent.Steal * float64(time.Second))
	}
	return all
}

// add notes that it stood still, as far as that is not known yet.
func (s *standstill) add(from, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.gaps); n > 0 {
		from = later(from, s.gaps[n-1].until)
	}
	if until.After(from) {
		s.gaps = append(s.gaps, span{from, until})
	}
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
