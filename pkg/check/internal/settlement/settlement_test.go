package settlement

import (
	"errors"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/events"
)

func receipt(number uint64) *events.Receipt { return &events.Receipt{Epoch: 7, Number: number} }

// list is settlements made at time 0, that give back 1, 2, 3 … hits.
func list(n int) (all []*events.Settlement) {
	for i := range n {
		all = append(all, &events.Settlement{Epoch: 7, Hits: int64(-1 - i)})
	}
	return all
}

func take(t *testing.T, q *Queue, number uint64, n int) {
	t.Helper()
	if err := q.Take(receipt(number), list(n), 10, true); err != nil {
		t.Fatal(err)
	}
}

// due returns the settlements that are due.
func (q *Queue) due(now int64) (all []Settlement) {
	q.PopDue(now, func(s Settlement) { all = append(all, s) })
	return all
}

func counts(t *testing.T, q *Queue, taken, answered, lost int64) {
	t.Helper()
	if a, b, c := q.Counts(); a != taken || b != answered || c != lost {
		t.Errorf("taken, answered, lost: %d, %d, %d, want %d, %d, %d", a, b, c, taken, answered, lost)
	}
}

// TestReceiptsAreUsedOnce, and not when there is no room for their settlements.
func TestReceiptsAreUsedOnce(t *testing.T) {
	var q Queue
	if err := q.Take(receipt(1), list(3), 2, true); !errors.Is(err, ErrFull) {
		t.Errorf("three settlements where two may wait: %v", err)
	}
	take(t, &q, 1, 3)
	if err := q.Take(receipt(1), list(3), 10, true); !errors.Is(err, ErrSettled) {
		t.Errorf("again: %v", err)
	}
	if err := q.Take(receipt(2), list(3), 0, false); err != nil {
		t.Errorf("what need not be reported: %v", err)
	}
	counts(t, &q, 6, 3, 0)
	if n := len(q.due(0)); n != 3 {
		t.Errorf("%d to report, want 3", n)
	}
	if n := len(q.due(0)); n != 0 {
		t.Errorf("%d are left", n)
	}
}

func TestUnansweredSettlementsReturn(t *testing.T) {
	var q Queue
	take(t, &q, 1, 2)
	q.Return(q.due(0)...)
	again := q.due(0)
	if len(again) != 2 || again[0].Hits != -1 {
		t.Fatalf("again: %v", again)
	}
	q.Answered(again, nil, 0)
	counts(t, &q, 2, 2, 0)
	take(t, &q, 2, 1)
	q.due(0)
	q.GiveUp(1)
	counts(t, &q, 3, 2, 1)
}

// TestUncoveredSettlementsBackOff, each by itself, and are given up after a while.
func TestUncoveredSettlementsBackOff(t *testing.T) {
	var q Queue
	take(t, &q, 1, 3)
	start := int64(time.Hour)
	q.Answered(q.due(start), []uint32{1, 2, 2, 99}, start)
	counts(t, &q, 3, 1, 0)
	if n := len(q.due(start + int64(uncoveredLeast) - 1)); n != 0 {
		t.Errorf("%d at once", n)
	}
	now := start + int64(uncoveredLeast)
	again := q.due(now)
	if len(again) != 2 || again[0].Hits != -2 || again[1].Hits != -3 {
		t.Fatalf("again: %v", again)
	}
	q.Answered(again, []uint32{1}, now)
	counts(t, &q, 3, 2, 0)
	sent := 0
	for ; now < start+int64(uncoveredFor+2*uncoveredMost); now += int64(uncoveredLeast) {
		if one := q.due(now); len(one) > 0 {
			sent++
			q.Answered(one, []uint32{0}, now)
		}
	}
	counts(t, &q, 3, 2, 1)
	if sent < 15 || sent > 25 { // twice as long each time, until every 5 s
		t.Errorf("sent %d times in a minute", sent)
	}
}

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
