// Package history keeps what a fleet has decided over the last day, for the charts of a console, in
// bounded memory: at three resolutions (see Spans), for the fleet as a whole and for each of the
// first MaxRules rules.
//
// Time is divided into slots. A slot also has for how long somebody listened to the fleet in it: so
// a time in which nothing was heard is a gap and no zero, and of two histories of one fleet the one
// that has listened longer in a slot is right about it ([History.Merge]).
package history

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// Span is one resolution: so many slots of this length.
type Span struct {
	Name  string
	Slots int
	Slot  time.Duration
}

// Spans are the resolutions, the finest first.
var Spans = []Span{
	{"15m", 180, 5 * time.Second},
	{"1h", 180, 20 * time.Second},
	{"24h", 288, 5 * time.Minute},
}

// MaxRules is how many rules have series of their own. With all of them a history takes about
// 2.6 MB: (180 + 180 + 288) slots × 101 series × 40 bytes.
const MaxRules = 100

const (
	// minutes is for how many minutes there are sums of rules without series of their own.
	minutes = 15
	// maxOthers is of how many of these there are sums in a minute: at most 1.5 MB in all.
	maxOthers = 1000
)

// minute has the sums of rules without series of their own.
type minute struct {
	number int64
	rules  map[string]Point
}

// Point is what happened in a slot. The numbers are fractions where something that is only known of
// a longer time is spread over its slots.
type Point struct {
	Allowed, Denied float64
	// Over are admitted hits beyond their limit, False are false denials: both are estimates.
	Over, False float64
	// Lost hits passed, and no aggregator will ever count them.
	Lost float64
}

// add adds a part of another point.
func (p *Point) add(more Point, part float64) {
	p.Allowed += more.Allowed * part
	p.Denied += more.Denied * part
	p.Over += more.Over * part
	p.False += more.False * part
	p.Lost += more.Lost * part
}

// History is the fleet's. It is safe for concurrent use.
type History struct {
	mu     sync.Mutex
	tracks []*track
	last   map[string]int64 // of rules with series of their own, when something last came
	others [minutes]minute  // minute n, since the Unix epoch, is at n % minutes
}

// track is one resolution. Slot number n, since the Unix epoch, is at n % len.
type track struct {
	Span
	number []int64   // of the slot that is at this place; 0: none
	heard  []float64 // seconds
	all    []Point
	rules  map[string][]Point
}

// New returns an empty history.
func New() *History {
	h := &History{last: make(map[string]int64)}
	for _, s := range Spans {
		h.tracks = append(h.tracks, &track{
			Span: s, number: make([]int64, s.Slots), heard: make([]float64, s.Slots),
			all: make([]Point, s.Slots), rules: make(map[string][]Point),
		})
	}
	return h
}

// Add adds what happened under a rule between two times, evenly spread. A rule that is not among
// the first MaxRules counts for the fleet and for [History.Lately] only.
func (h *History) Add(rule string, from, to time.Time, more Point) {
	if more == (Point{}) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	own := h.admitLocked(rule, to)
	for _, t := range h.tracks {
		t.spread(from, to, func(at int, part, _ float64) {
			t.all[at].add(more, part)
			if own {
				t.of(rule)[at].add(more, part)
			}
		})
	}
	if !own {
		h.addOtherLocked(rule, to, more)
	}
}

func (h *History) addOtherLocked(rule string, at time.Time, more Point) {
	n := at.Unix() / 60
	m := &h.others[n%minutes]
	if m.number != n {
		*m = minute{n, make(map[string]Point)}
	}
	if sum, ok := m.rules[rule]; ok || len(m.rules) < maxOthers {
		sum.add(more, 1)
		m.rules[rule] = sum
	}
}

// Listen says that the whole fleet was listened to between two times, the later of which is the
// present. Slots of the future are dropped: they are of a clock that was ahead before it was set
// back, and would keep the present from its place.
func (h *History) Listen(from, to time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, last := range h.last {
		h.last[name] = min(last, to.UnixNano())
	}
	for _, t := range h.tracks {
		for at, n := range t.number {
			if t.isFuture(n, to) {
				t.number[at] = 0 // which place clears
			}
		}
		t.spread(from, to, func(at int, _, seconds float64) {
			t.heard[at] = min(t.heard[at]+seconds, t.Slot.Seconds())
		})
	}
}

// admitLocked says whether a rule has series of its own. Rules of which nothing has come for the
// longest span make room for others.
func (h *History) admitLocked(rule string, now time.Time) bool {
	at := now.UnixNano()
	if _, ok := h.last[rule]; !ok && len(h.last) >= MaxRules {
		longest := Spans[len(Spans)-1]
		for name, last := range h.last {
			if at-last > int64(longest.Slot)*int64(longest.Slots) {
				delete(h.last, name)
				for _, t := range h.tracks {
					delete(t.rules, name)
				}
			}
		}
		if len(h.last) >= MaxRules {
			return false
		}
	}
	h.last[rule] = max(h.last[rule], at)
	return true
}

func (t *track) of(rule string) []Point {
	list := t.rules[rule]
	if list == nil {
		list = make([]Point, t.Slots)
		t.rules[rule] = list
	}
	return list
}

// spread calls add for each slot between two times, with its place, which part of the time lies in
// it, and how many seconds those are. What is too old for the track is left out.
func (t *track) spread(from, to time.Time, add func(at int, part, seconds float64)) {
	slot, begin, end := int64(t.Slot), from.UnixNano(), to.UnixNano()
	begin = min(begin, end)
	for n := max(begin/slot, end/slot-int64(t.Slots)+1); n <= end/slot; n++ {
		inside := min(end, (n+1)*slot) - max(begin, n*slot)
		part := 1.0
		if end > begin {
			part = float64(inside) / float64(end-begin)
		}
		if at, ok := t.place(n); ok {
			add(at, part, float64(inside)/1e9)
		}
	}
}

// isFuture says whether a slot is after the one that follows the present one: clocks differ.
func (t *track) isFuture(n int64, now time.Time) bool { return n > now.UnixNano()/int64(t.Slot)+1 }

// place returns where a slot is, which it clears if it is new; false if a later one is there.
func (t *track) place(n int64) (at int, ok bool) {
	at = int(n % int64(t.Slots))
	if n <= 0 || t.number[at] > n {
		return at, false
	}
	if t.number[at] < n {
		t.number[at], t.heard[at], t.all[at] = n, 0, Point{}
		for _, list := range t.rules {
			list[at] = Point{}
		}
	}
	return at, true
}

// Merge takes from another history of the same fleet the slots in which that one has listened for
// longer; not those of the future.
func (h *History) Merge(other *History, now time.Time) {
	theirs := other.clone()
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, from := range theirs.tracks {
		t := h.tracks[i]
		for place, n := range from.number {
			if n <= 0 || from.heard[place] <= 0 || t.isFuture(n, now) {
				continue
			}
			at, ok := t.place(n)
			if !ok || t.heard[at] >= from.heard[place] {
				continue
			}
			t.heard[at], t.all[at] = from.heard[place], from.all[place]
			for _, list := range t.rules {
				list[at] = Point{}
			}
			for name, list := range from.rules {
				last := min(theirs.last[name], now.UnixNano())
				if list[place] != (Point{}) && h.admitLocked(name, time.Unix(0, last)) {
					t.of(name)[at] = list[place]
				}
			}
		}
	}
}

func (h *History) clone() *History {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := New()
	for i, t := range h.tracks {
		to := c.tracks[i]
		copy(to.number, t.number)
		copy(to.heard, t.heard)
		copy(to.all, t.all)
		for name, list := range t.rules {
			to.rules[name] = slices.Clone(list)
		}
	}
	maps.Copy(c.last, h.last)
	return c
}
