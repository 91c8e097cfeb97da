package entries

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/offpath-io/offpath/pkg/internal/kvwatch"
)

// told is an entry as the library tells of it.
type told struct {
	jetstream.KeyValueEntry
	key  string
	data []byte
}

func (e told) Key() string                        { return e.key }
func (e told) Value() []byte                      { return e.data }
func (e told) Operation() jetstream.KeyValueOp    { return jetstream.KeyValuePut }
func tell(t *testing.T, key string, e Entry) told { return told{key: key, data: must(t, e)} }

func must(t *testing.T, e Entry) []byte {
	t.Helper()
	data, err := encode(e)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestPartOfTheListIsNotTold: a watch that begins anew knows of a part at first, and whoever were told of that would let pass who is in
// the rest. One that has ended, and has not been swept yet, must not make it tell.
func TestPartOfTheListIsNotTold(t *testing.T) {
	var lists []string
	w := &watch{
		changed: func(all []Entry) { lists = append(lists, fmt.Sprint(len(all))) },
		trouble: kvwatch.Changes{Tell: func(error) {}},
		now:     time.Now,
	}
	now := time.Now()
	ended := Entry{Rule: "r", Key: "ended", At: now.Add(-2 * time.Hour), Until: now.Add(-time.Hour)}
	holds := Entry{Rule: "r", Key: "a", At: now, Until: now.Add(time.Hour)}
	w.begin(true)
	w.take(tell(t, "ended", ended))
	if wait := w.next(); wait <= 0 {
		t.Errorf("due in %v, before it is known which entries there are", wait)
	}
	w.take(tell(t, "a", holds))
	w.offer() // as when something is due
	if len(lists) > 0 {
		t.Fatalf("told of %v entries", lists)
	}
	w.take(nil)
	if fmt.Sprint(lists) != "[1]" {
		t.Errorf("told of %v entries", lists)
	}
	if wait := w.next(); wait != tick {
		t.Errorf("due in %v", wait)
	}
}

// A checker learns the fleet's time after it has learnt of blocks, and clocks are set: what has ended by a wrong clock holds when that is
// corrected. It is looked at without anything that happens.
func TestEndedByAWrongClock(t *testing.T) {
	var lists []int
	now := time.Now()
	clock := now.Add(3 * time.Hour)
	w := &watch{
		changed: func(all []Entry) { lists = append(lists, len(all)) },
		trouble: kvwatch.Changes{Tell: func(error) {}},
		now:     func() time.Time { return clock },
	}
	w.begin(true)
	w.take(tell(t, "a", Entry{Rule: "r", Key: "a", At: now, Until: now.Add(time.Hour)}))
	w.take(nil)
	w.due()
	clock = now
	if wait := w.next(); wait > tick {
		t.Errorf("due in %v", wait)
	}
	w.due()
	w.due()
	clock = now.Add(59*time.Minute + 59*time.Second + 900*time.Millisecond)
	if wait := w.next(); wait != 100*time.Millisecond {
		t.Errorf("a moment before it ends: due in %v", wait)
	}
	w.due()
	clock = now.Add(time.Hour)
	w.due()
	if got := fmt.Sprint(lists); got != "[0 1 0]" {
		t.Errorf("told of %s entries", got)
	}
}

// Many changes at once are told of once: each telling takes as long as there are entries.
func TestChangesAreGathered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tellings, last := 0, 0
		const takes = 20 * time.Millisecond // of a checker, with very many entries
		w := &watch{
			changed: func(all []Entry) { tellings++; last = len(all); time.Sleep(takes) },
			trouble: kvwatch.Changes{Tell: func(error) {}},
			now:     time.Now,
		}
		w.begin(true)
		w.take(nil)
		now, changes := time.Now(), 0
		for ; time.Since(now) < 2*time.Second; changes++ { // one each millisecond
			w.take(tell(t, fmt.Sprint(changes), Entry{Rule: "r", Key: fmt.Sprint(changes), At: now, Until: now.Add(time.Hour)}))
			if w.next() == 0 {
				w.due()
			}
			time.Sleep(time.Millisecond)
		}
		time.Sleep(w.next())
		w.due()
		if last != changes || tellings < 5 || tellings > 15 {
			t.Errorf("%d changes told of in %d times, at last %d", changes, tellings, last)
		}
	})
}
