package blocks

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/offpath-io/offpath/internal/kvwatch"
	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/signaturetest"
	"github.com/offpath-io/offpath/pkg/signature"
)

// update is an entry as the library hands it over; without data it was purged.
type update struct {
	jetstream.KeyValueEntry
	key  string
	data []byte
}

func (e update) Key() string        { return e.key }
func (e update) Value() []byte      { return e.data }
func (e update) Created() time.Time { return time.Now() }
func (e update) Operation() jetstream.KeyValueOp {
	if e.data == nil {
		return jetstream.KeyValuePurge
	}
	return jetstream.KeyValuePut
}

// tell tells a watch of an entry.
func (w *watch) tell(t *testing.T, key string, at, until time.Time) {
	t.Helper()
	data, err := encode(Block{Rule: "r", Key: key, At: at, Until: until})
	daemontest.Must(t, err)
	w.take(update{key: key, data: data})
}

// watching is a watch that hands on how many entries it tells of.
func watching(now func() time.Time, changed func(entries int)) *watch {
	return &watch{changed: func(all []Block) { changed(len(all)) }, trouble: kvwatch.Changes{Tell: func(error) {}}, now: now}
}

// A watch that begins anew knows a part of the entries at first, and a checker that heard of that
// part would let pass who is in the rest. An entry that has ended, and has not been swept yet,
// changes nothing of that.
func TestPartOfTheListIsNotTold(t *testing.T) {
	var lists []int
	w := watching(time.Now, func(n int) { lists = append(lists, n) })
	now := time.Now()
	w.begin(true)
	w.tell(t, "ended", now.Add(-2*time.Hour), now.Add(-time.Hour))
	if wait := w.next(); wait <= 0 {
		t.Errorf("due in %v, before it is known which entries there are", wait)
	}
	w.tell(t, "a", now, now.Add(time.Hour))
	w.offer() // as when something is due
	if len(lists) > 0 {
		t.Fatalf("told of %v entries", lists)
	}
	w.take(nil)
	if wait := w.next(); fmt.Sprint(lists) != "[1]" || wait != tick {
		t.Errorf("told of %v entries, due in %v", lists, wait)
	}
}

// A checker learns the fleet's time after it has learnt of blocks, and clocks are set: what has
// ended by a wrong clock holds when that is corrected. It is looked at without anything that
// happens.
func TestWhatEndedByAWrongClockHolds(t *testing.T) {
	var lists []int
	now := time.Now()
	clock := now.Add(3 * time.Hour)
	w := watching(func() time.Time { return clock }, func(n int) { lists = append(lists, n) })
	w.begin(true)
	w.tell(t, "a", now, now.Add(time.Hour))
	w.take(nil)
	w.due()
	for _, step := range []struct{ after, due time.Duration }{
		{0, tick}, {0, tick}, {time.Hour - 100*time.Millisecond, 100 * time.Millisecond}, {time.Hour, tick},
	} {
		clock = now.Add(step.after)
		if wait := w.next(); wait != step.due {
			t.Errorf("after %v: due in %v", step.after, wait)
		}
		w.due()
	}
	if got := fmt.Sprint(lists); got != "[0 1 0]" {
		t.Errorf("told of %s entries", got)
	}
}

// Many changes at once are told of once: each telling takes as long as there are entries.
func TestChangesAreGathered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tellings, last := 0, 0
		const takes = 20 * time.Millisecond // of a checker, with very many entries
		w := watching(time.Now, func(n int) { tellings++; last = n; time.Sleep(takes) })
		w.begin(true)
		w.take(nil)
		now, changes := time.Now(), 0
		for ; time.Since(now) < 2*time.Second; changes++ { // one each millisecond
			w.tell(t, fmt.Sprint(changes), now, now.Add(time.Hour))
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

// A signed entry that is purged before its end holds; one that was swept after it takes no room.
func TestSweptEntriesTakeNoRoom(t *testing.T) {
	key := signaturetest.NewKey(t)
	v := signaturetest.Verifier(t, key)
	now := time.Now()
	w := watching(func() time.Time { return now }, func(int) {})
	w.bucket, w.verifier = "b", v
	w.begin(true)
	b := &Bucket{kv: &kvwatch.Bucket{Name: "b"}, options: Options{Verifier: v, Key: func() *signature.Key { return key }, Now: time.Now}}
	until := now.Add(time.Hour)
	data, err := encode(Block{Rule: "r", Key: "k", At: now, Until: until})
	daemontest.Must(t, err)
	value, err := b.sign("n", record{}, signature.Put, until, data)
	daemontest.Must(t, err)
	w.take(update{key: "n", data: value})
	w.take(update{key: "n"})
	if len(w.all) != 1 || v.Refusals() != 1 {
		t.Errorf("%d entries, %d refusals", len(w.all), v.Refusals())
	}
	now = until
	w.take(update{key: "n"})
	if len(w.all) != 0 || v.Refusals() != 1 {
		t.Errorf("swept: %d entries, %d refusals", len(w.all), v.Refusals())
	}
}
