package console

import (
	"cmp"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/offpath-io/offpath/internal/natssource"
	"github.com/offpath-io/offpath/internal/status"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/rules/envoyrules"
)

// ruleBook is the set of rules in the fleet's bucket, if it has one.
type ruleBook struct {
	mu       sync.Mutex
	text     []byte
	revision uint64
	written  time.Time
	signed   bool
	set      *rules.Set // in force: the latest good one; nil if there was none
	inForce  uint64     // the revision of set
	counters map[string]counter
	refused  string // why the text is not good
	why      string // the text cannot be read, or there is none
}

func newRuleBook() *ruleBook { return &ruleBook{why: "not read yet"} }

// take takes in a revision, and returns its rules as reports describe them.
func (b *ruleBook) take(e natssource.Entry) ([]storage.Rule, error) {
	set, err := envoyrules.Read(e.Data)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.text, b.revision, b.written, b.signed = e.Data, e.Revision, e.Created, e.Version > 0
	if err != nil { // checkers keep the one before, and so do we
		b.refused, b.why = "refused: "+err.Error(), ""
		return nil, err
	}
	counters, reported := countersOf(set, e.Order())
	b.set, b.inForce, b.counters, b.refused, b.why = set, e.Revision, counters, "", ""
	return reported, nil
}

func (b *ruleBook) trouble(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case errors.Is(err, natssource.ErrNoRules):
		b.refused, b.why = "", "there are none in the bucket"
	case err != nil:
		b.why = err.Error()
	default:
		b.why = ""
	}
}

// counter is a rule as reports describe it: one of a set, or an override's with a limit of its own.
type counter struct {
	storage.Rule
	of string // the rule that an override's is of, "" for a rule of a set
}

// blocked is the rule under which blocks of the counter's keys are: that of a set, since checkers
// look for no other.
func (c counter) blocked() string {
	if c.of != "" {
		return c.of
	}
	return c.Name
}

// wire is for those who only look.
func (c counter) wire() status.Rule {
	s := wireOf(&c.Rule)
	s.Of = c.of
	return s
}

// countersOf returns a set's rules and the overrides with a limit of their own, by name; and the
// same with the limits that reports have.
func countersOf(
	set *rules.Set, revision uint64,
) (all map[string]counter, reported []storage.Rule) {
	all = make(map[string]counter)
	for _, r := range set.Rules() {
		for i := -1; i < len(r.Overrides); i++ {
			terms, of := r.Terms(i), ""
			one := storage.Rule{
				Name: r.WireName(i), Shape: terms.Window, Limit: terms.Limit, Burst: terms.Burst,
				Revision: revision,
			}
			if one.Name != r.Name {
				of = r.Name
			}
			all[one.Name] = counter{one, of}
			if i < 0 || of != "" {
				one.Limit, one.Loose = r.WireLimit(i), r.Loose()
				reported = append(reported, one)
			}
		}
	}
	return all, reported
}

// BookView is what there is to show of the rules.
type BookView struct {
	Revision uint64    `json:"revision"`
	Written  time.Time `json:"written"`
	Rules    int       `json:"rules"`
	// Why there are none in the bucket, or they are refused; "" if all is well.
	Why string `json:"why,omitempty"`
}

func (b *ruleBook) view() BookView {
	b.mu.Lock()
	defer b.mu.Unlock()
	v := BookView{Revision: b.revision, Written: b.written, Why: cmp.Or(b.why, b.refused)}
	if b.set != nil {
		v.Rules = len(b.set.Rules())
	}
	return v
}

// known are all rules that there are: of the bucket, if rules come from there, and those that
// others tell of. Of two of one name the bucket's counts, whatever revision the other one claims:
// anybody with a checker's credential can tell.
func (c *Console) known() map[string]counter {
	all := make(map[string]counter)
	for name, s := range c.picture.rulesHeard() {
		if r, ok := ruleOf(s); ok {
			all[name] = counter{r, s.Of}
		}
	}
	maps.Copy(all, c.inBucket())
	return all
}

// inBucket are the bucket's rules and counters, none if rules do not come from there. Nobody
// changes them.
func (c *Console) inBucket() map[string]counter {
	if c.o.SetRules == nil {
		return nil
	}
	c.rules.mu.Lock()
	defer c.rules.mu.Unlock()
	return c.rules.counters
}

// blockable are the rules whose keys can be blocked: the bucket's alone, once they are known, since
// a status could name another rule as the one that a block is to be of.
func (c *Console) blockable() map[string]counter {
	if all := c.inBucket(); all != nil {
		return all
	}
	return c.known()
}

// whole is the set as it was written.
func (b *ruleBook) whole() ([]byte, uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text, b.revision
}
