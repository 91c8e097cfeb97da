package console

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/offpath-io/offpath/internal/status"
	"github.com/offpath-io/offpath/internal/topkeys"
	"github.com/offpath-io/offpath/internal/version"
	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
)

const (
	// maxRules is how many rules a tally knows; those that were not seen for longest make room, so
	// many at a time that to look for them costs little for each that comes.
	maxRules, forgotten = 1000, maxRules / 4
	// rulesTold is how many of them it tells others of, those seen last.
	rulesTold = 300
	// topTold is how many keys it tells others of.
	topTold = 50
	// maxNear is how many keys near their limits a tally knows, and nearFor for how long after a
	// report.
	maxNear, nearFor = 1000, time.Minute
)

// Tally counts what one aggregator applies: which rules there are, which keys have most hits, and
// how far behind it is. It is safe for concurrent use.
type Tally struct {
	used *topkeys.Top

	mu     sync.Mutex
	rules  map[string]*seen
	behind time.Duration // the most since it was last told; -1 for none
	number int64         // of folds

	near      map[keyID]nearKey
	uncounted int64 // keys, for want of room
}

// nearKey is a key near its limit.
type nearKey struct {
	count float64
	limit int64
	at    time.Time // of its last report
}

// use is which part of the limit is used.
func (k nearKey) use() float64 { return k.count / float64(max(k.limit, 1)) }

// seen is a rule of a fold.
type seen struct {
	rule    storage.Rule
	last    int64 // number of the fold in which it was last
	counted int64
	over    float64
}

// NewTally returns an empty one.
func NewTally() *Tally {
	return &Tally{used: topkeys.New(time.Now), rules: make(map[string]*seen), near: make(map[keyID]nearKey), behind: -1}
}

// Observe is for aggregate.Options.OnApply.
func (t *Tally) Observe(info aggregate.ApplyInfo) {
	if info.Err != nil || info.Repeated > 0 {
		return
	}
	fold := info.Batch
	for i := range fold.Keys {
		key := &fold.Keys[i]
		rule := &fold.Rules[key.Rule]
		if rule.Kind != storage.Admitted {
			continue
		}
		var hits int64
		for _, cell := range key.Cells {
			hits = storage.Sum(hits, cell.Count)
		}
		if hits > 0 {
			t.used.AddSome(rule.Name, key.Text, hits)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.number++
	for i := range fold.Rules {
		if rule := &fold.Rules[i]; rule.Kind == storage.Admitted && fold.Made > 0 {
			t.see(rule, fold.Ledger[i].Counted)
		}
	}
	for _, e := range info.Excess {
		if s := t.rules[fold.Rules[e.Rule].Name]; s != nil {
			s.over += e.Hits
		}
	}
	for _, o := range info.Overflow {
		t.uncounted += o.Keys
	}
	t.seeNear(info, time.Now())
	if fold.Made > 0 {
		t.behind = max(t.behind, time.Duration(fold.Now-fold.Made)+info.Took, 0)
	}
}

func (t *Tally) see(rule *storage.Rule, counted int64) {
	s := t.rules[rule.Name]
	if s == nil {
		if len(t.rules) >= maxRules {
			t.forget()
		}
		s = &seen{rule: *rule}
		t.rules[rule.Name] = s
	}
	if rule.Revision >= s.rule.Revision {
		s.rule = *rule
	}
	s.last, s.counted = t.number, storage.Sum(s.counted, counted)
}

// seeNear takes in which of a fold's keys are near their limits now, and which are not any more. A
// key for which there is no room is left out: fill makes room, once a second, since to look for
// expired keys here would cost each further key of a fold a walk through all of them.
func (t *Tally) seeNear(info aggregate.ApplyInfo, now time.Time) {
	near := info.Near
	for i := range info.Batch.Keys {
		key := &info.Batch.Keys[i]
		rule := &info.Batch.Rules[key.Rule]
		isNear := len(near) > 0 && near[0].Key == i
		if rule.Kind != storage.Admitted || !isNear && len(t.near) == 0 {
			continue
		}
		id := keyID{rule.Name, key.Text}
		if !isNear {
			delete(t.near, id)
			continue
		}
		if _, ok := t.near[id]; ok || len(t.near) < maxNear {
			// A copy: the batch's text is part of a report.
			id.key = strings.Clone(id.key)
			t.near[id] = nearKey{near[0].Count, rule.Room(), now}
		}
		near = near[1:]
	}
}

// forgetNear forgets keys that nobody has reported lately.
func (t *Tally) forgetNear(now time.Time) {
	for id, k := range t.near {
		if now.Sub(k.at) > nearFor {
			delete(t.near, id)
		}
	}
}

// forget makes room for other rules.
func (t *Tally) forget() {
	all := slices.SortedFunc(maps.Values(t.rules), func(x, y *seen) int {
		return cmp.Or(cmp.Compare(x.last, y.last), cmp.Compare(x.rule.Name, y.rule.Name))
	})
	for _, s := range all[:forgotten] {
		delete(t.rules, s.rule.Name)
	}
}

// fill adds to a status what was counted.
func (t *Tally) fill(a *status.Aggregator) {
	list, span := t.used.Top(topTold)
	a.Used.Span = span.Milliseconds()
	for _, k := range list {
		a.Used.List = append(a.Used.List, status.Key{Rule: k.Rule, Key: status.Text(k.Text), Count: k.Count})
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	a.Behind = -1
	if t.behind >= 0 {
		a.Behind = t.behind.Milliseconds()
	}
	t.behind = -1
	all := slices.SortedFunc(maps.Values(t.rules), func(x, y *seen) int {
		return cmp.Or(cmp.Compare(y.last, x.last), cmp.Compare(x.rule.Name, y.rule.Name))
	})
	for _, s := range all[:min(len(all), rulesTold)] {
		told := wireOf(&s.rule)
		told.Counted, told.Over = s.counted, math.Round(s.over*100)/100
		a.Rules = append(a.Rules, told)
	}
	a.Uncounted = t.uncounted
	t.forgetNear(time.Now())
	for id, k := range t.near {
		a.Near = append(a.Near, status.Near{Rule: id.rule, Key: status.Text(id.key), Count: round(k.count), Limit: k.limit})
	}
	slices.SortFunc(a.Near, byUse)
	a.Near = a.Near[:min(len(a.Near), topTold)]
}

// byUse puts those first that have used most of their limits.
func byUse(x, y status.Near) int {
	use := func(k status.Near) float64 { return nearKey{count: k.Count, limit: k.Limit}.use() }
	return cmp.Or(cmp.Compare(use(y), use(x)), cmp.Compare(x.Rule, y.Rule), cmp.Compare(x.Key, y.Key))
}

func wireOf(r *storage.Rule) status.Rule {
	return status.NewRule(r.Name, r.Shape, r.Limit, r.Burst, r.Revision)
}

// ruleOf is the opposite of wireOf; false if there can be no such rule.
func ruleOf(s status.Rule) (storage.Rule, bool) {
	shape, ok := s.Shape()
	return storage.Rule{
		Name: s.Name, Shape: shape, Limit: s.Limit, Burst: s.Burst, Revision: s.Revision,
	}, ok
}

// ownPart is what this process says of itself, under a name that nobody else has.
func ownPart() status.Part {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return status.Part{Name: fmt.Sprintf("%x", rand.Uint64()), Host: host, Version: version.Get().Version, Started: time.Now()}
}
