package sim

import (
	"runtime"
	"sync"
)

// A large fleet hears each alarm at one time. What one checker makes of it concerns no other, so
// all cores take part; the result is the same, whichever is faster.

// worthCores is how many checkers are worth a goroutine of their own.
const worthCores = 64

// onAllCores calls f for 0 to n−1, from several goroutines if n is large.
func onAllCores(n int, f func(i int)) {
	cores := max(min(runtime.GOMAXPROCS(0), n/worthCores), 1)
	var all sync.WaitGroup
	for core := range cores - 1 {
		all.Go(func() { some(n*core/cores, n*(core+1)/cores, f) })
	}
	some(n*(cores-1)/cores, n, f)
	all.Wait()
}

func some(from, to int, f func(i int)) {
	for i := from; i < to; i++ {
		f(i)
	}
}

// woken are the checkers that ask for an early step, after messages. Its methods are safe for
// concurrent use.
type woken struct {
	mu   sync.Mutex
	list []int
}

func (w *woken) add(i int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.list = append(w.list, i)
}

// each empties the list and calls f for each checker in it. Their order is left to chance.
func (w *woken) each(f func(i int)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, i := range w.list {
		f(i)
	}
	w.list = w.list[:0]
}
