package envoylimit

import (
	"slices"
	"strings"

	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/rules/envoyrules"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// plan is what a Service prepares for a rule set. It does not change.
type plan struct {
	set      *rules.Set
	limits   map[string]*ratelimitv3.RateLimitResponse_RateLimit // by rule; shared by answers
	strict   bool                                                // some rule is
	replaces bool                                                // some rule replaces others
	quotas   bool                                                // some rule has quota_mode
	hits     map[string]*hits                                    // by rule, of those that have metrics
	// unlimited: some rule is, so a decision may not name it
	unlimited bool

	everywhere bool // some rule applies in any domain
	domains    map[string]bool
	prefixes   []string // of domains
}

// originOf returns what a file of envoyproxy/ratelimit says of the rule besides, or nothing.
func originOf(r *rules.Rule) envoyrules.Origin {
	if o, ok := r.Origin.(*envoyrules.Origin); ok {
		return *o
	}
	return envoyrules.Origin{}
}

func newPlan(set *rules.Set) *plan {
	list := set.Rules()
	p := &plan{
		set: set, domains: make(map[string]bool),
		limits: make(map[string]*ratelimitv3.RateLimitResponse_RateLimit, len(list)),
	}
	for _, r := range list {
		name, origin := r.Name, originOf(r)
		if origin.LimitName != "" {
			name = origin.LimitName
		}
		p.limits[r.Name] = limitOf(name, r.Limit, r.Window.Length)
		p.quotas = p.quotas || origin.Quota
		p.strict = p.strict || r.Enforcement == rules.Strict
		p.replaces = p.replaces || len(r.Replaces) > 0
		p.unlimited = p.unlimited || r.Unlimited
		p.addDomain(r)
	}
	return p
}

func (p *plan) addDomain(r *rules.Rule) {
	for _, c := range r.Match {
		if c.Name != envoyrules.Domain {
			continue
		}
		switch c.Op {
		case rules.Equal:
			p.domains[c.Value] = true
		case rules.Prefix:
			p.prefixes = append(p.prefixes, c.Value)
		default:
			p.everywhere = true
		}
		return
	}
	p.everywhere = true
}

// knows reports whether some rule may match the domain.
func (p *plan) knows(domain string) bool {
	isPrefix := func(prefix string) bool { return strings.HasPrefix(domain, prefix) }
	return p.everywhere || p.domains[domain] || slices.ContainsFunc(p.prefixes, isPrefix)
}
