package envoylimit

import (
	"slices"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/rules/envoyrules"
	"github.com/offpath-io/offpath/pkg/window"
)

// call is the working memory of one request.
type call struct {
	service     *Service
	plan        *plan
	attrs       identity.Attributes // of all descriptors, one after the other
	descriptors []descriptor        // in the order of the request
	found       []*rules.Rule
	shared      bool // some descriptors share a key
	text        []byte
	counters    []counter
}

// descriptor is one of a request's descriptors, and its decision.
type descriptor struct {
	from, to int          // its attributes
	hits     int64        // that metrics count: 0 if the request wants to charge none
	cost     int64        // at least 1
	peek     bool         // charge nothing
	quota    bool         // others with it may let the request pass, see envoyrules.Origin
	exempt   bool         // nothing limits it, whatever the rules say
	inline   *inlineLimit // nil: the rules decide
	receipt  string       // for a refund of the charge; "" if there is none
	decision check.Decision
}

func invalid(format string, args ...any) error {
	return status.Errorf(codes.InvalidArgument, format, args...)
}

// read reads a request, or returns an error if it is invalid.
func (c *call) read(r *ratelimitv3.RateLimitRequest) error {
	domain, all := r.GetDomain(), r.GetDescriptors()
	switch most := c.service.options.MaxDescriptors; {
	case domain == "": // the first two texts are those of envoyproxy/ratelimit
		return invalid("rate limit domain must not be empty")
	case len(all) == 0:
		return invalid("rate limit descriptor list must not be empty")
	case len(all) > most:
		return invalid("%d descriptors: want at most %d", len(all), most)
	}
	for i, d := range all {
		if err := c.add(i, domain, d, max(int64(r.GetHitsAddend()), 1)); err != nil {
			return err
		}
	}
	c.exemptReplaced()
	c.markQuotas()
	return nil
}

// add adds the descriptor at index i. Unless it has a hits_addend, it costs cost.
func (c *call) add(
	i int, domain string, d *ratelimit.RateLimitDescriptor, cost int64,
) error {
	entries := d.GetEntries()
	if len(entries) > MaxEntries {
		return invalid("descriptor %d: %d entries: want at most %d", i+1, len(entries), MaxEntries)
	}
	q := descriptor{from: len(c.attrs), cost: cost}
	if err := q.readHits(i, d); err != nil {
		return err
	}
	if q.hits = q.cost; q.peek {
		q.hits = 0
	}
	c.attrs = append(c.attrs, identity.Attribute{Name: envoyrules.Domain, Value: domain})
	for i, e := range entries {
		name := envoyrules.Attribute(e.GetKey(), nth(entries, i))
		c.attrs = append(c.attrs, identity.Attribute{Name: name, Value: e.GetValue()})
	}
	q.to = len(c.attrs)
	if limit := d.GetLimit(); limit != nil {
		if err := c.readInline(&q, i, limit); err != nil {
			return err
		}
	}
	c.descriptors = append(c.descriptors, q)
	return nil
}

// nth returns how many attributes there are up to the entry at index i that have its key: the
// domain is one, too.
func nth(entries []*ratelimit.RateLimitDescriptor_Entry, i int) int {
	n := 1
	if entries[i].GetKey() == envoyrules.Domain {
		n++
	}
	for _, other := range entries[:i] {
		if other.GetKey() == entries[i].GetKey() {
			n++
		}
	}
	return n
}

// readHits reads the cost of a descriptor.
func (q *descriptor) readHits(i int, d *ratelimit.RateLimitDescriptor) error {
	given := d.GetHitsAddend() != nil
	switch hits := d.GetHitsAddend().GetValue(); {
	case given && hits == 0:
		q.peek, q.cost = true, 1
	case d.GetIsNegativeHits():
		return invalid("descriptor %d: is_negative_hits: hits cannot be given back here", i+1)
	case hits > uint64(window.MaxCount):
		return invalid("descriptor %d: hits_addend %d: want at most %d",
			i+1, hits, window.MaxCount)
	case given:
		q.cost = int64(hits)
	}
	return nil
}

func (c *call) attributes(q *descriptor) identity.Attributes { return c.attrs[q.from:q.to] }

// exemptReplaced exempts a descriptor if all rules that limit it are replaced by rules that apply
// to other descriptors. The rule set does the same within one descriptor.
func (c *call) exemptReplaced() {
	if !c.plan.replaces || len(c.descriptors) < 2 {
		return
	}
	replaced := make(map[string]bool)
	found := make([][]*rules.Rule, len(c.descriptors))
	for i := range c.descriptors {
		if q := &c.descriptors[i]; q.inline == nil {
			found[i] = c.plan.set.Find(nil, c.attributes(q))
		}
		for _, r := range found[i] {
			for _, name := range r.Replaces {
				if other, _ := c.plan.set.Lookup(name); !r.Shadow || other.Shadow {
					replaced[name] = true
				}
			}
		}
	}
	for i := range c.descriptors {
		limited := func(r *rules.Rule) bool { return !r.Unlimited && !replaced[r.Name] }
		if len(found[i]) > 0 && !slices.ContainsFunc(found[i], limited) {
			c.descriptors[i].exempt = true
		}
	}
}

// markQuotas finds the descriptors that have a limit with quota_mode.
func (c *call) markQuotas() {
	if !c.plan.quotas || len(c.descriptors) < 2 {
		return
	}
	for i := range c.descriptors {
		q := &c.descriptors[i]
		if q.exempt || q.inline != nil {
			continue
		}
		c.found = c.plan.set.Find(c.found[:0], c.attributes(q))
		q.quota = slices.ContainsFunc(c.found, func(r *rules.Rule) bool { return originOf(r).Quota })
	}
}
