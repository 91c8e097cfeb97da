package httpload

import (
	"math"
	"math/rand/v2"
	"time"
)

// schedule says what is due when. It depends on nothing but the options.
type schedule struct {
	rate float64 // per second
	// warm is how many requests come before those that are measured, and total how many there are
	// of both.
	warm, total int64
	keys, seed  uint64
}

func newSchedule(o Options) schedule {
	s := schedule{rate: o.Rate, keys: uint64(o.Keys), seed: o.Seed}
	s.warm = s.before(o.Warmup)
	s.total = max(s.before(o.Warmup+o.Duration), s.warm+1) // at the lowest rates, none may be due in time
	return s
}

// before returns how many requests are due earlier than t after the start.
func (s schedule) before(t time.Duration) int64 {
	if t <= 0 {
		return 0
	}
	n := int64(math.Ceil(s.rate * t.Seconds()))
	for n > 0 && s.due(n-1) >= t { // what rounding has made too many
		n--
	}
	return n
}

// due returns when a request is due, counted from the start.
func (s schedule) due(i int64) time.Duration {
	return time.Duration(float64(i) / s.rate * float64(time.Second))
}

// key returns which one a request is for: the same, whichever worker sends it.
func (s schedule) key(i int64) int {
	if s.keys == 1 {
		return 0
	}
	return int(rand.NewPCG(s.seed, uint64(i)).Uint64() % s.keys)
}
