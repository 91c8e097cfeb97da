package history

import (
	"slices"
	"time"
)

// Series is a span to draw: a value for each slot, oldest first. Values are per second; those of
// slots in which nobody has listened are nil.
type Series struct {
	Span string `json:"span"`
	// From is when the first slot begins, in Unix milliseconds; Slot is the length of each.
	From    int64      `json:"from_ms"`
	Slot    int64      `json:"slot_ms"`
	Allowed []*float64 `json:"allowed"`
	Denied  []*float64 `json:"denied"`
	Over    []*float64 `json:"over_admitted"`
	False   []*float64 `json:"falsely_denied"`
}

// enough is for how many seconds somebody has to have listened in a slot, at most, for it to say
// anything.
const enough = 10

// Read returns a span of a rule, or of the whole fleet for "", as of a time; false if there is no
// such span. A rule without series of its own has none.
func (h *History) Read(span, rule string, now time.Time) (s Series, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := slices.IndexFunc(h.tracks, func(t *track) bool { return t.Name == span })
	if i < 0 {
		return s, false
	}
	t := h.tracks[i]
	points := t.all
	if rule != "" {
		points = t.rules[rule]
	}
	last := now.UnixNano() / int64(t.Slot)
	first := last - int64(t.Slots) + 1
	s = Series{Span: span, From: first * t.Slot.Milliseconds(), Slot: t.Slot.Milliseconds()}
	for n := first; n <= last; n++ {
		at := int(n % int64(t.Slots))
		known := n > 0 && t.number[at] == n && points != nil && t.heard[at] >= min(enough, t.Slot.Seconds()/2)
		if n == last && t.Slot.Seconds() <= enough { // it is not over
			known = false
		}
		for _, one := range []struct {
			list *[]*float64
			of   func(*Point) float64
		}{
			{&s.Allowed, func(p *Point) float64 { return p.Allowed }},
			{&s.Denied, func(p *Point) float64 { return p.Denied }},
			{&s.Over, func(p *Point) float64 { return p.Over }},
			{&s.False, func(p *Point) float64 { return p.False }},
		} {
			var value *float64
			if known {
				value = new(rounded(one.of(&points[at]) / t.heard[at]))
			}
			*one.list = append(*one.list, value)
		}
	}
	return s, true
}

// Lately returns the sums of the last minutes, up to 15: of the fleet, and of its rules; of those
// without series of their own as of whole minutes of the clock.
func (h *History) Lately(span time.Duration, now time.Time) (all Point, rules map[string]Point) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.tracks[0]
	rules = make(map[string]Point, len(t.rules))
	add := func(name string, p Point) {
		sum := rules[name]
		sum.add(p, 1)
		rules[name] = sum
	}
	last := now.UnixNano() / int64(t.Slot)
	for n := last - int64(min(span/t.Slot, time.Duration(t.Slots))) + 1; n <= last; n++ {
		at := int(n % int64(t.Slots))
		if n <= 0 || t.number[at] != n {
			continue
		}
		all.add(t.all[at], 1)
		for name, list := range t.rules {
			if list[at] != (Point{}) {
				add(name, list[at])
			}
		}
	}
	for _, m := range h.others {
		if age := now.Unix()/60 - m.number; age >= 0 && age < int64(span/time.Minute) {
			for name, p := range m.rules {
				add(name, p)
			}
		}
	}
	return all, rules
}
