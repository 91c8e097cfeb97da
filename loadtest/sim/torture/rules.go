package torture

import (
	"slices"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

// The rules of a fleet. Each has an attribute of its own, so that a request by attributes may be
// subject to one or to several.
const (
	hundred  = iota // 100 a second
	thousand        // 1000 a second
	hour            // 50 an hour, strict: more than any of its keys lives
	turn            // 20 per 2 s, strict: a slice of time often ends
)

// firstRules are those at the beginning. Strict ones stay as they are: permits that were granted by
// a higher limit may be spent for a while (docs/protocol.md, When rules change).
var firstRules = [...]rules.Rule{
	hundred: {
		Name: "hundred", Key: []string{"user"}, Limit: 100,
		Window: window.Shape{Length: time.Second, Buckets: 1},
	},
	thousand: {
		Name: "thousand", Key: []string{"tenant"}, Limit: 1000,
		Window: window.Shape{Length: time.Second, Buckets: 1},
	},
	hour: {
		Name: "hour", Key: []string{"order"}, Limit: 50, Enforcement: rules.Strict,
		Window: window.Shape{Length: time.Hour, Buckets: 1},
	},
	turn: {
		Name: "turn", Key: []string{"seat"}, Limit: 20, Enforcement: rules.Strict,
		Window: window.Shape{Length: 2 * time.Second, Buckets: 1, Fixed: true},
	},
}

// init makes the rules at the beginning.
func (b *ruleBook) init(w *world) {
	b.publish(w, slices.Clone(firstRules[:]))
}

// publish puts other rules in force.
func (b *ruleBook) publish(w *world, list []rules.Rule) {
	b.list, b.revision = list, max(uint64(w.now/ms), b.revision+1)
	given := slices.Clone(list)
	for i := range given {
		switch {
		case w.o.mutation == strictAsAsync:
			given[i].Enforcement = rules.Async
		case w.o.mutation == limitsDoubled:
			given[i].Limit *= 2
		}
	}
	var err error
	if b.set, err = rules.NewSet(given...); err != nil {
		panic(err)
	}
	for i := range list {
		w.most[i] = max(w.most[i], list[i].Limit)
	}
}

// stored are the rules as aggregators read them.
func (b *ruleBook) stored() (all []storage.Rule) {
	for _, r := range b.set.Rules() {
		all = append(all, storage.Rule{
			Name: r.Name, Shape: r.Window, Limit: r.WireLimit(-1), Revision: b.revision,
		})
	}
	return all
}

// spread brings the rules in force to everybody, each at another time within 300 ms; to a process
// that stands still or is cut off, when it is back.
func (w *world) spread() {
	for _, s := range w.slots {
		var take func()
		take = func() {
			switch l := s.life; {
			case l == nil: // the next one starts with the rules in force
			case w.now < s.paused, w.now < s.to:
				w.at(w.now+100*ms, take)
			case l.Revision() < w.rules.revision:
				if err := l.SetRules(w.rules.set, w.rules.revision); err != nil {
					w.violate("rules", "%s refuses revision %d: %v", l.name, w.rules.revision, err)
				}
				w.heed(l)
			}
		}
		w.at(w.now+w.rand.Int64N(300*ms), take)
	}
	for i := range w.crew {
		w.at(w.now+w.rand.Int64N(300*ms), func() {
			if k := w.crew[i]; w.trusts && k.Worker != nil {
				k.SetRules(w.rules.stored())
			}
		})
	}
}

// changeLimits multiplies a limit that is not strict, within half and twice the first one.
func (w *world) changeLimits(by, of int64) bool {
	i := w.rand.IntN(2)
	first := firstRules[i].Limit
	list := slices.Clone(w.rules.list)
	list[i].Limit = min(max(list[i].Limit*by/of, first/2), 2*first)
	w.rules.publish(w, list)
	w.spread()
	return true
}

// replaceRule cuts the window of a rule into another number of buckets: it starts clean.
func (w *world) replaceRule() bool {
	i := w.rand.IntN(2)
	list := slices.Clone(w.rules.list)
	list[i].Window = window.Shape{Length: time.Second, Buckets: 2 * list[i].Window.Buckets % 7}
	w.rules.publish(w, list)
	w.spread()
	w.replaced++
	return true
}

// offerInvalid offers sets that must be refused: none, and one of before.
func (w *world) offerInvalid() bool {
	return w.withChecker(func(l *life) {
		revision, set := l.Revision(), l.Rules()
		_, empty := rules.NewSet()
		_, senseless := rules.NewSet(rules.Rule{Name: "hundred", Limit: -1})
		none, older := l.SetRules(nil, revision+1), l.SetRules(set, revision-1)
		for _, err := range []error{empty, senseless, none, older} {
			if err == nil {
				w.violate("rules", "%s takes invalid rules", l.name)
			}
		}
		if l.Revision() != revision || l.Rules() != set {
			w.violate("rules", "%s has other rules in force after it refused some", l.name)
		}
	})
}

// ruleBook is the rules in force.
type ruleBook struct {
	list     []rules.Rule
	set      *rules.Set
	revision uint64
}
