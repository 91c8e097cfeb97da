package envoylimit

import (
	"bytes"
	"cmp"
	"slices"
)

// counter is a key under a rule: text[from:to] of what is asked.
type counter struct {
	rule     int // its place
	from, to int
}

// haveKeyInCommon says whether two descriptors that are to be charged count against one key. A look at one does not see the
// hits of the other, so that they may pass one by one where there is no room for both.
func (a *asking) haveKeyInCommon() bool {
	a.text, a.counters = a.text[:0], a.counters[:0]
	charged := 0
	for i := range a.asked {
		if q := &a.asked[i]; !q.look && !q.spared && q.own == nil {
			a.count(q)
			charged++
		}
	}
	if charged < 2 {
		return false
	}
	order := func(c, d counter) int { // of one descriptor no two are equal
		return cmp.Or(c.rule-d.rule, bytes.Compare(a.text[c.from:c.to], a.text[d.from:d.to]))
	}
	slices.SortFunc(a.counters, order)
	for i := 1; i < len(a.counters); i++ {
		if order(a.counters[i-1], a.counters[i]) == 0 {
			return true
		}
	}
	return false
}

// count adds the counters of a descriptor.
func (a *asking) count(q *question) {
	attrs := a.attributes(q)
	a.found = a.prepared.set.Find(a.found[:0], attrs)
	for _, r := range a.found {
		from := len(a.text)
		text, ok := r.AppendKey(a.text, attrs)
		if ok && !r.Unlimited {
			a.text = text
			a.counters = append(a.counters, counter{r.Place(), from, len(text)})
		}
	}
}

// giveBack gives back what has been charged, where that can be: an error would be that too many wait to be given back, and then it
// stays charged.
func (a *asking) giveBack() {
	for i := range a.asked {
		if q := &a.asked[i]; q.receipt != "" {
			_ = a.service.checker.Settle(q.receipt, 0)
		}
	}
}
