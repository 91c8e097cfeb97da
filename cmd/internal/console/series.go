package console

import (
	"cmp"
	"slices"
	"time"

	"github.com/offpath-io/offpath/internal/status"
)

const (
	// slots of slotLength each are the past that is drawn: five minutes.
	slots      = 60
	slotLength = 5 * time.Second
	// maxSeries bounds the rules and the keys that have a past.
	maxSeries = 1000
	// topShown is how many keys are shown.
	topShown = 20
)

// past is what came per slot, of rules and of keys.
type past struct {
	number int64 // of the present slot
	rules  map[string]*series[decisions]
	// How often a key came per second; of those that are or lately were among the top.
	used, denied map[keyID]*series[float64]
}

type keyID struct{ rule, key string }

// series has a value for each slot; slot n is at n % slots.
type series[T any] struct {
	ring [slots]T
	last int64 // the slot in which something last came
}

func newPast() past {
	return past{
		rules: make(map[string]*series[decisions]),
		used:  make(map[keyID]*series[float64]), denied: make(map[keyID]*series[float64]),
	}
}

// valueAt returns the value of a slot in one of many series, which it makes if there is room; else
// nil.
func valueAt[K comparable, T any](all map[K]*series[T], key K, slot int64) *T {
	s := all[key]
	if s == nil {
		if len(all) >= maxSeries {
			return nil
		}
		s = new(series[T])
		all[key] = s
	}
	s.last = slot
	return &s.ring[slot%slots]
}

// advance clears a slot, and forgets series in which nothing has come since it was last in use.
func advance[K comparable, T any](all map[K]*series[T], slot int64) {
	for key, s := range all {
		clear(s.ring[slot%slots : slot%slots+1])
		if slot-s.last >= slots {
			delete(all, key)
		}
	}
}

// addRule adds to the present slot.
func (p *past) addRule(rule string, more decisions) {
	if more == (decisions{}) {
		return
	}
	if d := valueAt(p.rules, rule, p.number); d != nil {
		d.allowed += more.allowed
		d.denied += more.denied
	}
}

// next ends the present slot, in which keys came as often as this, and begins another.
func (p *past) next(used, denied []topKey) {
	for _, of := range []struct {
		past map[keyID]*series[float64]
		top  []topKey
	}{{p.used, used}, {p.denied, denied}} {
		for _, k := range of.top {
			if rate := valueAt(of.past, k.keyID, p.number); rate != nil {
				*rate = k.rate
			}
		}
	}
	p.number++
	advance(p.rules, p.number)
	advance(p.used, p.number)
	advance(p.denied, p.number)
}

// unroll returns what of makes of each slot before the present one, oldest first.
func unroll[T, R any](s *series[T], number int64, of func(T) R) []R {
	list := make([]R, 0, slots-1)
	for i := number - slots + 1; i < number; i++ {
		list = append(list, of(s.ring[(i%slots+slots)%slots]))
	}
	return list
}

// topKey is a key, and how often it came per second.
type topKey struct {
	keyID
	rate float64
}

// topKeysLocked puts together what all parts that are not silent say.
func (p *picture) topKeysLocked(now time.Time) (used, denied []topKey) {
	var ofUsed, ofDenied []*status.Keys
	for _, name := range sortedNames(p.aggregators) {
		if h := p.aggregators[name]; !isSilent(&h.Part, h.at, now) {
			ofUsed = append(ofUsed, &h.Used)
		}
	}
	for _, name := range sortedNames(p.checkers) {
		if h := p.checkers[name]; !isSilent(&h.Part, h.at, now) {
			ofDenied = append(ofDenied, &h.Denied)
		}
	}
	return merge(ofUsed), merge(ofDenied)
}

// merge adds up how often keys came per second, the most frequent first.
func merge(lists []*status.Keys) []topKey {
	sums := make(map[keyID]float64)
	for _, l := range lists {
		seconds := max(float64(l.Span)/1000, 1)
		for _, k := range l.List {
			sums[keyID{k.Rule, string(k.Key)}] += float64(k.Count) / seconds
		}
	}
	top := make([]topKey, 0, len(sums))
	for id, rate := range sums {
		top = append(top, topKey{id, rate})
	}
	slices.SortFunc(top, func(a, b topKey) int {
		return cmp.Or(cmp.Compare(b.rate, a.rate), cmp.Compare(a.rule, b.rule), cmp.Compare(a.key, b.key))
	})
	return top
}
