package envoylimit

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/rules/envoyrules"
)

const (
	// MaxStats bounds the descriptors whose hits are counted by themselves.
	MaxStats = 1000
	// OtherStats is the Descriptor of all others, of any domain.
	OtherStats = "other"
	// nearLimit is the part of a limit above which hits are near it.
	nearLimit = 0.8
)

// Hits are the hits that requests have had for one descriptor of a file of envoyproxy/ratelimit.
type Hits struct {
	Domain string
	// Descriptor is the way to it: key_value.key, as the original's metrics have it.
	Descriptor string
	// Total is Within and Over. Near is the part of Within above 80 % of the limit. Shadow is the
	// part of Over that passed, because the rule denies nobody.
	Total, Within, Near, Over, Shadow int64
}

// hits are counters for Hits.
type hits struct{ within, near, over, shadow atomic.Int64 }

// stats are the hits of the descriptors of the rules in force.
type stats struct {
	mu  sync.Mutex
	all map[label]*hits
}

type label struct{ domain, descriptor string }

// Stats returns the hits of all descriptors in force, by domain and descriptor.
func (s *Service) Stats() []Hits {
	s.stats.mu.Lock()
	defer s.stats.mu.Unlock()
	list := make([]Hits, 0, len(s.stats.all))
	for l, h := range s.stats.all {
		of := Hits{
			Domain: l.domain, Descriptor: l.descriptor, Within: h.within.Load(), Near: h.near.Load(),
			Over: h.over.Load(), Shadow: h.shadow.Load(),
		}
		of.Total = of.Within + of.Over
		list = append(list, of)
	}
	slices.SortFunc(list, func(a, b Hits) int {
		return cmp.Or(cmp.Compare(a.Domain, b.Domain), cmp.Compare(a.Descriptor, b.Descriptor))
	})
	return list
}

// of returns the counters of the set's rules, by name, and forgets those of other descriptors.
// Descriptors keep theirs through changes of rules.
func (s *stats) of(set *rules.Set) map[string]*hits {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, byRule := s.all, make(map[string]*hits)
	s.all = make(map[label]*hits)
	for _, r := range set.Rules() {
		if _, theirs := r.Origin.(*envoyrules.Origin); !theirs || r.Unlimited {
			continue
		}
		l := labelOf(r)
		if s.all[l] == nil && len(s.all) >= MaxStats {
			l = label{"", OtherStats}
		}
		if s.all[l] == nil {
			if s.all[l] = before[l]; s.all[l] == nil {
				s.all[l] = new(hits)
			}
		}
		byRule[r.Name] = s.all[l]
	}
	return byRule
}

// repeated is what envoyrules.Attribute adds to a key.
var repeated = regexp.MustCompile(`#[0-9]+$`)

// labelOf returns the domain of a rule of these files, and the way to its descriptor.
func labelOf(r *rules.Rule) label {
	parts := make([]string, 0, len(r.Match))
	for _, c := range r.Match[1:] {
		key := repeated.ReplaceAllString(c.Name, "")
		if c.Op != rules.Present {
			key += "_" + c.Pattern()
		}
		parts = append(parts, key)
	}
	return label{r.Match[0].Value, strings.Join(parts, ".")}
}

// countHits counts the hits of a descriptor that has been decided.
func (c *call) countHits(q *descriptor) {
	d := &q.decision
	name := d.Rule
	if name == "" {
		name = d.Observed
	}
	h := c.plan.hits[name]
	switch {
	case h == nil || q.hits == 0 || q.inline != nil:
	case !d.Allowed:
		h.over.Add(q.hits)
	case d.Shadow != "":
		h.over.Add(q.hits)
		h.shadow.Add(q.hits)
	default:
		h.within.Add(q.hits)
		above := d.Limit - d.Remaining - int64(nearLimit*float64(d.Limit))
		if above > 0 {
			h.near.Add(min(above, q.hits))
		}
	}
}
