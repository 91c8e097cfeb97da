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
	rules  map[string]*ruleSeries
	// By key, of those that are or lately were among the top.
	used, denied map[keyID]*keySeries
}

type keyID struct{ rule, key string }

// ruleSeries are a rule's decisions in each slot; slot n is at n % slots.
type ruleSeries struct {
	allowed, denied [slots]int64
	last            int64 // the slot in which something last came
}

// keySeries is how often a key came per second, in each slot.
type keySeries struct {
	rate [slots]float64
	last int64
}

func newPast() past {
	return past{rules: make(map[string]*ruleSeries), used: make(map[keyID]*keySeries), denied: make(map[keyID]*keySeries)}
}

// addRule adds to the present slot.
func (p *past) addRule(rule string, more decisions) {
	if more == (decisions{}) {
		return
	}
	s := p.rules[rule]
	if s == nil {
		if len(p.rules) >= maxSeries {
			return
		}
		s = new(ruleSeries)
		p.rules[rule] = s
	}
	at := p.number % slots
	s.allowed[at] += more.allowed
	s.denied[at] += more.denied
	s.last = p.number
}

// next ends the present slot, in which keys came as often as this, and begins another.
func (p *past) next(used, denied []topKey) {
	noteKeys(p.used, used, p.number)
	noteKeys(p.denied, denied, p.number)
	p.number++
	at := p.number % slots
	for name, s := range p.rules {
		s.allowed[at], s.denied[at] = 0, 0
		if p.number-s.last >= slots {
			delete(p.rules, name)
		}
	}
	for _, all := range []map[keyID]*keySeries{p.used, p.denied} {
		for id, s := range all {
			s.rate[at] = 0
			if p.number-s.last >= slots {
				delete(all, id)
			}
		}
	}
}

func noteKeys(all map[keyID]*keySeries, top []topKey, number int64) {
	for _, k := range top {
		s := all[k.keyID]
		if s == nil {
			if len(all) >= maxSeries {
				continue
			}
			s = new(keySeries)
			all[k.keyID] = s
		}
		s.rate[number%slots], s.last = k.rate, number
	}
}

// unroll returns a ring oldest first, up to the slot before the present one; nil if there is none.
func unroll[T any](ring *[slots]T, number int64) []T {
	if ring == nil {
		return nil
	}
	list := make([]T, 0, slots-1)
	for i := number - slots + 1; i < number; i++ {
		list = append(list, ring[(i%slots+slots)%slots])
	}
	return list
}

// topKey is a key, and how often it came per second.
type topKey struct {
	keyID
	rate float64
}

// topKeys puts together what all parts that are not silent say. The lock is held.
func (p *picture) topKeys(now time.Time) (used, denied []topKey) {
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

// merge adds up how often keys came per second.
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
	return top[:min(len(top), topShown)]
}
