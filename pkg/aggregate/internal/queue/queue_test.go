package queue

import (
	"testing"
	"time"
)

type request struct{ Header }

func (q *Queue[R]) woken() bool {
	select {
	case <-q.Wake:
		return true
	default:
		return false
	}
}

// What a full batch leaves in the queue is another goroutine's to take, now.
func TestTakeWakesForTheRest(t *testing.T) {
	q := New[*request](time.Millisecond, 10)
	add := func(epoch uint64) {
		q.Add(&request{Header{Epoch: epoch, Sequence: 1, Weight: 6}})
	}
	add(1)
	add(2)
	add(3)
	q.woken() // who sleeps takes the first
	if q.Due(); q.woken() {
		t.Error("woken by nothing")
	}
	first := q.Take(nil)
	if len(first) != 1 || !q.woken() {
		t.Errorf("%d requests are taken, and nobody is told of the others", len(first))
	}
	if due := q.Due(); due != 0 {
		t.Errorf("the others are due at %d", due)
	}
	second := q.Take(nil)
	third := q.Take(nil)
	if q.woken(); len(second) != 1 || len(third) != 1 {
		t.Errorf("%d and %d requests are taken", len(second), len(third))
	}
	add(1) // while its first is in a batch
	if q.woken(); len(q.Take(nil)) != 0 || q.woken() {
		t.Error("one that has to wait for a batch wakes somebody")
	}
}

// A repeat is answered where it says, not where its first sending did: that may lead nowhere by
// now.
func TestARepeatIsAnsweredAsItAsks(t *testing.T) {
	q := New[*request](time.Millisecond, 10)
	var answered []string
	to := func(name string) func([]byte) error {
		return func([]byte) error {
			answered = append(answered, name)
			return nil
		}
	}
	q.Add(&request{Header{Epoch: 1, Sequence: 2, Size: 9, Reply: to("first")}})
	for _, r := range []struct {
		epoch, sequence uint64
		size            int
		want            bool
	}{{1, 2, 9, true}, {1, 2, 8, false}, {1, 3, 9, false}, {2, 2, 9, false}} {
		if got := q.Repeats(r.epoch, r.sequence, r.size, to("repeat")); got != r.want {
			t.Errorf("%+v: %v", r, got)
		}
	}
	for _, r := range q.Take(nil) {
		_ = r.Reply(nil)
	}
	if len(answered) != 1 || answered[0] != "repeat" {
		t.Errorf("answered to %v", answered)
	}
}
