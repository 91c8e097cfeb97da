package idle

import (
	"testing"
	"time"
)

// TestFewLooks: what is of use for long is considered a few times, and soon after it is of none.
func TestFewLooks(t *testing.T) {
	for _, use := range []time.Duration{time.Second, time.Minute, time.Hour, 24 * time.Hour, 90 * 24 * time.Hour} {
		var q Queue[string]
		q.Add("a", 0)
		now, looks := int64(0), 0
		for now < int64(use) {
			if now = q.Due(); looks == 0 {
				now = int64(FirstLook)
			}
			pop := q.PopKnown
			if looks == 0 {
				pop = q.PopFresh
			}
			if _, ok := pop(now-1, false); ok {
				t.Fatalf("use %v: it is considered before it is due", use)
			}
			item, ok := pop(now, false)
			if !ok || item != "a" {
				t.Fatalf("use %v: %q, %v at its time", use, item, ok)
			}
			looks++
			q.Keep(item, now, use-time.Duration(now))
		}
		if late := time.Duration(now) - use; late > 2*LaterLook || looks > 20 {
			t.Errorf("use %v: considered %d times, the last %v late", use, looks, late)
		}
	}
}

// TestHurry: what has waited longest is considered first, wherever it waits.
func TestHurry(t *testing.T) {
	var q Queue[string]
	q.Keep("later", 2, 0)
	q.Keep("first", 1, time.Hour)
	q.Add("fresh", 0)
	var got []string
	for _, pop := range []func(int64, bool) (string, bool){q.PopKnown, q.PopKnown, q.PopKnown, q.PopFresh, q.PopFresh} {
		item, _ := pop(3, true)
		got = append(got, item)
	}
	if want := [5]string{"first", "later", "", "fresh", ""}; [5]string(got) != want {
		t.Errorf("%q, want %q", got, want)
	}
	q.Keep("a", 0, time.Hour)
	q.LookSoon(7)
	if q.Due() != 7+int64(LaterLook) {
		t.Errorf("due at %d", q.Due())
	}
}

// TestClosedCache remembers nothing, and forgets when it closes.
func TestClosedCache(t *testing.T) {
	var c Cache[int]
	remembers := func() bool {
		c.Put(1, 2)
		c.Wait()
		n, ok := c.Get(1)
		return ok && n == 2 && c.Len() == 1
	}
	if remembers() || c.IsOpen() {
		t.Error("it remembers before it is open")
	}
	if err := c.Open(10); err != nil || !remembers() || !c.IsOpen() {
		t.Errorf("it does not remember: %v", err)
	}
	if c.Close(); remembers() || c.IsOpen() {
		t.Error("it remembers after it was closed")
	}
	c.Close()
}

// TestItemsAreDueAfterAStepBack of the clock, whenever they were added.
func TestItemsAreDueAfterAStepBack(t *testing.T) {
	var q Queue[string]
	const then, now = int64(100 * time.Hour), int64(99 * time.Hour)
	q.Add("fresh", then)
	q.Keep("known", then, 2*LaterLook)
	if item, ok := q.PopFresh(now, false); item != "fresh" || !ok {
		t.Errorf("got %q, %v, want the one that was never considered", item, ok)
	}
	if item, ok := q.PopKnown(now, false); item != "known" || !ok {
		t.Errorf("got %q, %v, want the one that was considered", item, ok)
	}
	q.Add("new", now)
	if item, ok := q.PopFresh(now, false); ok {
		t.Errorf("got %q at once", item)
	}
}
