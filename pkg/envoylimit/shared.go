package envoylimit

import (
	"bytes"
	"cmp"
	"slices"
)

// counter is a key under a rule: text[from:to] of the call.
type counter struct {
	rule     int // its index
	from, to int
}

// shareKey reports whether two descriptors that will be charged share a key. A peek at one does not
// see the hits of the other, so that each may pass alone where there is no room for both.
func (c *call) shareKey() bool {
	c.text, c.counters = c.text[:0], c.counters[:0]
	charged := 0
	for i := range c.descriptors {
		if q := &c.descriptors[i]; !q.peek && !q.exempt && q.inline == nil {
			c.count(q)
			charged++
		}
	}
	if charged < 2 {
		return false
	}
	order := func(a, b counter) int { // the counters of one descriptor differ
		return cmp.Or(a.rule-b.rule, bytes.Compare(c.text[a.from:a.to], c.text[b.from:b.to]))
	}
	slices.SortFunc(c.counters, order)
	for i := 1; i < len(c.counters); i++ {
		if order(c.counters[i-1], c.counters[i]) == 0 {
			return true
		}
	}
	return false
}

// count adds the counters of a descriptor.
func (c *call) count(q *descriptor) {
	attrs := c.attributes(q)
	c.found = c.plan.set.Find(c.found[:0], attrs)
	for _, r := range c.found {
		from := len(c.text)
		text, ok := r.AppendKey(c.text, attrs)
		if ok && !r.Unlimited {
			c.text = text
			c.counters = append(c.counters, counter{r.Place(), from, len(text)})
		}
	}
}

// refund refunds the charges. An error means that too many refunds wait to be reported; the charge
// stays then.
func (c *call) refund() {
	for i := range c.descriptors {
		if q := &c.descriptors[i]; q.receipt != "" {
			_ = c.service.checker.Settle(q.receipt, 0)
		}
	}
}
