package permit

import (
	"slices"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/window"
)

const (
	ms     = int64(time.Millisecond)
	second = int64(time.Second)
	trip   = 2 * time.Millisecond
	limit  = 10
)

var shape = &window.Shape{Length: time.Second, Buckets: 1}

// at is a moment, in ms since the beginning of bucket 0, of a clock that may be 1 ms off.
func at(t int64) Moment {
	return Moment{Shape: shape, Now: t * ms, Bucket: shape.Bucket(t * ms), Error: ms}
}

func equal[T comparable](t *testing.T, got, want T, what string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// granted is an account that has asked, and holds permits of bucket 0.
func granted(t *testing.T, permits int64) *Account {
	t.Helper()
	a := new(Account)
	a.Forget(-1)
	a.Refused(0, permits)
	if !a.ShouldAsk(at(0)) || !a.Ask() || a.Ask() {
		t.Fatal("it does not ask once")
	}
	r, ok := a.Request(at(1), limit, trip, 1, false)
	equal(t, r, Request{Bucket: 0, Want: permits}, "request")
	if !ok || !a.IsOpen() {
		t.Fatal("nothing is on its way")
	}
	a.Answered(at(3), &Grant{Granted: permits, Named: permits}, limit, false)
	return a
}

func TestAskingInVainWaits(t *testing.T) {
	a := granted(t, 1)
	a.Spend(0, 1)
	a.Answered(at(5), &Grant{Granted: 1, Named: 1, Wait: 300 * time.Millisecond}, limit, false)
	a.Refused(6*ms, 1)
	equal(t, a.ShouldAsk(at(6)), false, "asks just after")
	equal(t, a.FreeAt(), 305*ms, "free at")
	equal(t, a.InVainUntil(), 205*ms, "in vain until") // twice what permits may lie idle
	a.Answered(at(210), &Grant{Granted: 1, Named: 1, Wait: time.Minute}, limit, false)
	equal(t, a.InVainUntil(), 610*ms, "in vain again, until") // twice as long
	a.Hasten()
	equal(t, a.ShouldAsk(at(211)), true, "asks once there may be room")
	a.Answered(at(212), &Grant{Granted: 1, Named: 1, Wait: time.Minute}, limit, false)
	a.Answered(at(214), &Grant{Granted: 2, Named: 2}, limit, false)
	equal(t, a.FreeAt(), 0, "free at, once there is room")
}

// TestPermitsAskedForAreAFairShare: a hot key asks for half of its share before the permits are
// needed, not for all there is.
func TestPermitsAskedForAreAFairShare(t *testing.T) {
	d := demand{asked: 5000}
	wanted := func(waiting, want int64, why string) {
		t.Helper()
		equal(t, d.wanted(waiting), want, "wanted, "+why)
	}
	d.measure(10*ms, 0, 5*time.Millisecond, 100*time.Millisecond, 60)
	wanted(0, 60, "the share")
	if d.low >= 60 {
		t.Errorf("more is asked for from %d left", d.low)
	}
	wanted(70, 70, "what waiters need")
	d.refused, d.refusal = 80, 10*ms
	wanted(70, 80, "what was refused")
	d.measure(60*second, 0, 5*time.Millisecond, 100*time.Millisecond, 60)
	wanted(0, 0, "none a minute later")
}

func TestPermitsAreSpentOnceAndInTheirBucket(t *testing.T) {
	a := granted(t, 5)
	equal(t, a.Room(at(3)), 5, "granted")
	a.Spend(0, 3)
	equal(t, a.Room(at(4)), 2, "after three hits")
	equal(t, a.Room(at(998)), 2, "just before the end")
	equal(t, a.Room(at(999)), 0, "within the clock's error of the end")
	equal(t, a.Room(at(1000)), 0, "in the next bucket")
	a.Review(at(999), trip, limit)
	returned := int64(0)
	a.SendReturns(func(_, n int64) { returned += n })
	equal(t, returned, 2, "returned at the end")
	if a.IsIdle(at(1000)) {
		t.Error("idle before the store knows of what it returned")
	}
	a.Answered(at(1001), &Grant{Bucket: 1, Named: 5}, limit, false)
	if !a.IsIdle(at(1001)) {
		t.Error("it has something to say")
	}
	equal(t, a.Newest(), 0, "newest bucket")
}

// TestUnansweredRequestsAreRepeated, and name the same bucket, in the next one too.
func TestUnansweredRequestsAreRepeated(t *testing.T) {
	a := granted(t, 1)
	a.Spend(0, 1)
	a.Refused(4*ms, 2)
	for _, now := range []int64{5, 1500} {
		r, ok := a.Request(at(now), limit, trip, limit, now > 1000)
		equal(t, ok, true, "something to ask")
		equal(t, r.Bucket, 0, "bucket")
		equal(t, r.Known, 1, "known")
	}
}

// woken notes how a caller was woken.
type woken []bool

func (w *woken) Wake(reserved bool) { *w = append(*w, reserved) }

// TestPlacesAreServedInOrder: permits are kept for callers in the order in which they came, checks
// do not overtake, and those who leave leave nothing behind.
func TestPlacesAreServedInOrder(t *testing.T) {
	a := granted(t, 1)
	var callers [4]woken
	var places [4]*Place
	for i, cost := range []int64{1, 2, 1, 1} {
		places[i] = a.Join(&callers[i], cost)
	}
	equal(t, a.Room(at(4)), 0, "room for a check that would overtake")
	expect := func(why string, want ...int) {
		t.Helper()
		for i, c := range callers {
			n := 0
			if slices.Contains(want, i) {
				n = 1
			}
			if len(c) != n || n == 1 && !c[0] {
				t.Errorf("%s: caller %d was woken with %v", why, i, c)
			}
		}
	}
	a.EndTurn(at(4))
	expect("of one permit", 0)
	equal(t, a.waiting, 4, "wanted by the rest")
	a.Leave(places[1])
	a.Leave(places[0])
	equal(t, a.Room(at(4)), 1, "it is the first one's turn")
	a.EndTurn(at(4)) // and it did not take its permit
	expect("when two have left", 0, 2)
	a.Answered(at(5), &Grant{Granted: 2, Named: 2}, limit, false)
	expect("of another one", 0, 2, 3)
	a.Leave(places[2])
	a.Leave(places[3])
	if a.IsAwaited() || a.waiting != 0 || a.reserved != 0 {
		t.Errorf("left behind: %d wanted, %d kept", a.waiting, a.reserved)
	}
}
