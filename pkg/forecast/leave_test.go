package forecast

import "testing"

// TestLeaveLetsOthersTakeRoom: 100 hits leave a full window at once, 10 ms before anybody looks. With 10 hits a ms asked for,
// others have taken them by then, all but what the band keeps.
func TestLeaveLetsOthersTakeRoom(t *testing.T) {
	free := func(told bool) float64 {
		k := newKey(10)
		k.Look(noon, wide(0), of(2))
		if told {
			k.Leave(fromNoon(10), 100)
		}
		return k.Look(fromNoon(20), wide(100), of(2)).Free
	}
	if got := free(false); got < 90 {
		t.Errorf("without a word of it %v are free: nobody could know that there was room", got)
	}
	if got := free(true); got > 12 || got < 0 {
		t.Errorf("%v are free, want what others have probably left", got)
	}
}

// TestNarrowBand: of what leaves at once less stays free.
func TestNarrowBand(t *testing.T) {
	k, w := newKey(10), wide(margin+10)
	near(t, "the part in the band", k.Look(noon, w, of(2)).Part, 10.0/15, 1e-9)
	w.Soon = 1e-6
	near(t, "where hits leave at once", k.Look(noon, w, of(2)).Part, 10/7.5, 1e-9)
}

// TestLearntIsForgotten: hits of others that came in no round are of what was expected then, and of nothing later.
func TestLearntIsForgotten(t *testing.T) {
	k := newKey(0).knowing(0.5)
	w := Word{Now: fromNoon(9), Made: fromNoon(7), Round: 32 * ms, News: 300} // between two rounds
	k.Told(w, of(2))
	later := fromNoon(500)
	k.Note(later, 40, 40)
	w2 := wide(100)
	w2.Unreported = 40
	if o := k.Look(later, w2, of(2)); o.Free > 70 {
		t.Errorf("%v are free, though as many as the own 40 have passed elsewhere", o.Free)
	}
}

// TestYoungTotalsTellTheRate: of a long time a surge would be no more than its average.
func TestYoungTotalsTellTheRate(t *testing.T) {
	w := said(100, 1, 200, 0)
	d := newDemand(noon, tick)
	d.learn(w, 0, true)
	near(t, "by all of the totals", d.rate()*1e6, 2, 1e-9)
	w.Young = Young{Since: fromNoon(80), Admitted: 150, Denied: 50}
	d = newDemand(noon, tick)
	d.learn(w, 0, true)
	near(t, "by the newest", d.rate()*1e6, 10, 1e-9)
}
