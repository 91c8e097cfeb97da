package envoylimit

import (
	"strings"

	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/rules/envoyrules"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// prepared is what is known of a rule set before requests come. It does not change.
type prepared struct {
	set      *rules.Set
	limits   map[string]*ratelimitv3.RateLimitResponse_RateLimit // by rule; many answers share one
	strict   bool                                                // some rule is
	replaces bool                                                // some rule replaces others
	silent   bool                                                // some rule is unlimited, so a decision may not name it

	everywhere bool // some rule applies in any domain
	domains    map[string]bool
	prefixes   []string // of domains
}

// prepare returns what is known of the rules in force.
func (s *Service) prepare() *prepared {
	set := s.checker.Rules()
	if p := s.prepared.Load(); p != nil && p.set == set {
		return p
	}
	p := newPrepared(set)
	s.prepared.Store(p) // of two at once either will do
	return p
}

func newPrepared(set *rules.Set) *prepared {
	list := set.Rules()
	p := &prepared{set: set, limits: make(map[string]*ratelimitv3.RateLimitResponse_RateLimit, len(list)), domains: make(map[string]bool)}
	for _, r := range list {
		p.limits[r.Name] = limitOf(r.Name, r.Limit, r.Window.Length)
		p.strict = p.strict || r.Enforcement == rules.Strict
		p.replaces = p.replaces || len(r.Replaces) > 0
		p.silent = p.silent || r.Unlimited
		p.addDomain(r)
	}
	return p
}

func (p *prepared) addDomain(r *rules.Rule) {
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

// knows reports whether some rule speaks of the domain.
func (p *prepared) knows(domain string) bool {
	if p.everywhere || p.domains[domain] {
		return true
	}
	for _, prefix := range p.prefixes {
		if strings.HasPrefix(domain, prefix) {
			return true
		}
	}
	return false
}
