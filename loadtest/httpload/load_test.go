package httpload

import (
	"sync"
	"sync/atomic"
	"testing"
)

// However many workers take at the same time, each request is taken once. (The race detector, which slows them
// down, makes them meet.)
func TestTake(t *testing.T) {
	const workers, total = 4, 100_000
	l := &load{schedule: schedule{total: total}}
	taken := make([]atomic.Int32, total)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := l.take(); i < total; i = l.take() {
				taken[i].Add(1)
			}
		})
	}
	wg.Wait()
	for i := range taken {
		if n := taken[i].Load(); n != 1 {
			t.Fatalf("request %d was taken %d times", i, n)
		}
	}
}
