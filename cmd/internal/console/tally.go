package console

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
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
)

// Tally counts what one aggregator applies: which rules there are, which keys have most hits, and
// how far behind it is. It is safe for concurrent use.
type Tally struct {
	used *topkeys.Top

	mu     sync.Mutex
	rules  map[string]*seen
	behind time.Duration // the most since it was last told; -1 for none
	number int64         // of folds
}

// seen is a rule of a fold.
type seen struct {
	rule    storage.Rule
	last    int64 // number of the fold in which it was last
	counted int64
}

// NewTally returns an empty one.
func NewTally() *Tally {
	return &Tally{used: topkeys.New(time.Now), rules: make(map[string]*seen), behind: -1}
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
		told.Counted = s.counted
		a.Rules = append(a.Rules, told)
	}
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
