package torture

import (
	"fmt"

	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/window"
)

// traffic is who asks.
type traffic struct {
	keys   []*key
	rate   float64 // of all keys
	drawn  int64   // when rates are drawn next
	next   int64   // when the next request comes
	serial int
}

// key is one caller of one rule.
type key struct {
	rule     int
	text     string
	attrs    identity.Attributes
	rate     float64    // requests per second
	rates    [4]float64 // the last ones, the newest first: hits of all of them may be in a window
	ends     int64      // when another key takes its place
	counts   map[window.Shape]*counts
	total    int64 // hits
	asleepIn int64 // the bucket of turn in which a machine that was suspended has spent a permit
	exempt   bool  // strict limits need not hold: the store has lost what it had acknowledged
}

func (t *traffic) init(w *world) {
	for rule, n := range [...]int{hundred: 4, thousand: 1, hour: 2, turn: 2} {
		for range n {
			t.keys = append(t.keys, t.newKey(w, rule))
		}
	}
	t.next = w.now
}

func (t *traffic) newKey(w *world, rule int) *key {
	t.serial++
	r := &firstRules[rule]
	k := &key{
		rule: rule, text: fmt.Sprint("k", t.serial), ends: never, exempt: w.lostHour,
		counts: make(map[window.Shape]*counts),
	}
	k.attrs = identity.Attributes{{Name: r.Key[0], Value: k.text}}
	if rule == hour {
		k.ends = w.now + w.between(second, 6*second)
	}
	return k
}

// draw draws the rates of all keys: most are below their limit, some far above.
func (t *traffic) draw(w *world) {
	t.rate = 0
	for i, k := range t.keys {
		if k.ends <= w.now {
			k = t.newKey(w, k.rule)
			t.keys[i] = k
		}
		r := &firstRules[k.rule]
		limit := float64(r.Limit) / r.Window.Length.Seconds()
		switch {
		case k.rule == hour:
			k.rate = 10 + 50*w.rand.Float64()
		case w.rand.IntN(4) == 0:
			k.rate = limit * (2 + 3*w.rand.Float64())
		default:
			k.rate = limit * (0.02 + 0.8*w.rand.Float64()*w.rand.Float64())
		}
		copy(k.rates[1:], k.rates[:])
		k.rates[0] = k.rate
		t.rate += k.rate
	}
	t.drawn = w.now + w.between(second/2, 2*second)
}

// ask lets requests come until a time: each at a checker at random.
func (w *world) ask(until int64) {
	t := &w.traffic
	t.next = w.now
	for {
		if w.now >= t.drawn {
			t.draw(w)
		}
		t.next += int64(w.rand.ExpFloat64() / t.rate * 1e9)
		if t.next >= until {
			w.advance(until)
			return
		}
		w.advance(t.next)
		w.request()
	}
}

// pick returns a key, by its rate.
func (t *traffic) pick(x float64) *key {
	for _, k := range t.keys {
		if x -= k.rate; x < 0 {
			return k
		}
	}
	return t.keys[0]
}

// request sends one request to a checker: by one rule, or by attributes of one or two rules.
func (w *world) request() {
	k := w.pick(w.rand.Float64() * w.rate)
	l := w.slots[w.rand.IntN(checkers)].life
	if l == nil || l.leaving || w.now < l.slot.paused {
		return // a caller whose service is away
	}
	w.result.Requests++
	if w.result.Requests == 3000 && w.o.mutation == breaksDown {
		panic("planted")
	}
	if w.rand.IntN(10) == 0 {
		w.requestBySeveral(l, k)
		return
	}
	w.requestOf(l, k)
}

// requestOf sends one by one rule.
func (w *world) requestOf(l *life, k *key) {
	limiter, ok := l.Limiter(firstRules[k.rule].Name)
	if !ok {
		panic("no rule " + firstRules[k.rule].Name)
	}
	d := limiter.Check(k.text, 1)
	w.heed(l)
	w.believe(&d)
	if d.Allowed {
		w.admit(l, k, limiter.Rule())
	}
}

// requestBySeveral is charged to all rules or to none.
func (w *world) requestBySeveral(l *life, k *key) {
	keys := [2]*key{k, w.keys[w.rand.IntN(len(w.keys))]}
	n, attrs := 1, k.attrs
	if keys[1].rule != k.rule {
		n, attrs = 2, append(attrs[:1:1], keys[1].attrs...)
	}
	d := l.Check(attrs, 1)
	w.heed(l)
	w.believe(&d)
	if !d.Allowed {
		return
	}
	for _, k := range keys[:n] {
		r, _ := l.Rules().Lookup(firstRules[k.rule].Name)
		w.admit(l, k, r)
	}
}
