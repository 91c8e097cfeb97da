package settlement

import (
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/events"
)

func TestIsTooOld(t *testing.T) {
	s := Settlement{Settlement: &events.Settlement{Made: 5}}
	for after, want := range map[time.Duration]bool{0: false, 1: true} {
		if got := s.IsTooOld(5 + int64(events.MaxReceiptAge+after)); got != want {
			t.Errorf("%v after the last moment: too old: %v", after, got)
		}
	}
}

// TestUsedReceiptsAreRemembered: the last ones at least, in bounded memory.
func TestUsedReceiptsAreRemembered(t *testing.T) {
	var u used
	const (
		least  = chunkSize * chunks
		stride = 37 // meets every place of a chunk, and every chunk
	)
	for n := uint64(1); n < 3*least; n += stride {
		if u.has(7, n) {
			t.Fatalf("%d before it was settled", n)
		}
		u.add(7, n)
		if u.has(7, n+1) {
			t.Fatalf("%d is taken for its neighbour", n)
		}
		for _, back := range []uint64{0, 1, 13, 14, 27, least/stride - 1} {
			if back*stride < n && !u.has(7, n-back*stride) {
				t.Fatalf("at %d: %d is forgotten", n, n-back*stride)
			}
		}
	}
	if n := len(u.young) + len(u.old); n > 2*chunks {
		t.Errorf("%d chunks in memory", n)
	}
	if u.has(8, 1) || u.has(7, 1) {
		t.Error("it remembers what it should not")
	}
}
