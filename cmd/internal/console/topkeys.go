package console

import (
	"cmp"
	"slices"
	"time"

	"github.com/offpath-io/offpath/internal/status"
)

const (
	// topShown is how many keys of each kind are shown.
	topShown = 20
	// deniedTold is how many denied keys a checker tells of at most.
	deniedTold = 30
)

type keyID struct{ rule, key string }

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
