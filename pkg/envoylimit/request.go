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

// asking is the working memory of one request.
type asking struct {
	service  *Service
	prepared *prepared
	attrs    identity.Attributes // of all descriptors, one after the other
	asked    []question          // in the order of the descriptors
	found    []*rules.Rule
	together bool // some descriptors have a key in common
	text     []byte
	counters []counter
}

// question is one descriptor.
type question struct {
	from, to int    // its attributes
	cost     int64  // at least 1
	look     bool   // nothing is to be charged
	spared   bool   // nothing limits it, whatever the rules say
	own      *own   // nil: the rules decide
	receipt  string // by which what was charged is given back; "" if it is not
	decision check.Decision
}

func invalid(format string, args ...any) error {
	return status.Errorf(codes.InvalidArgument, format, args...)
}

// read takes in a request, or says what is wrong with it.
func (a *asking) read(r *ratelimitv3.RateLimitRequest) error {
	domain, all := r.GetDomain(), r.GetDescriptors()
	switch most := a.service.options.MaxDescriptors; {
	case domain == "": // the first two in the words of envoyproxy/ratelimit
		return invalid("rate limit domain must not be empty")
	case len(all) == 0:
		return invalid("rate limit descriptor list must not be empty")
	case len(all) > most:
		return invalid("%d descriptors: want at most %d", len(all), most)
	}
	for i, d := range all {
		if err := a.add(i, domain, d, max(int64(r.GetHitsAddend()), 1)); err != nil {
			return err
		}
	}
	a.spareReplaced()
	return nil
}

// add takes in the descriptor at place i, which costs so much unless it says otherwise.
func (a *asking) add(i int, domain string, d *ratelimit.RateLimitDescriptor, cost int64) error {
	entries := d.GetEntries()
	if len(entries) > MaxEntries {
		return invalid("descriptor %d: %d entries: want at most %d", i+1, len(entries), MaxEntries)
	}
	q := question{from: len(a.attrs), cost: cost}
	if err := q.readHits(i, d); err != nil {
		return err
	}
	a.attrs = append(a.attrs, identity.Attribute{Name: envoyrules.Domain, Value: domain})
	for _, e := range entries {
		a.attrs = append(a.attrs, identity.Attribute{Name: e.GetKey(), Value: e.GetValue()})
	}
	q.to = len(a.attrs)
	if limit := d.GetLimit(); limit != nil {
		if err := a.readOwn(&q, i, limit); err != nil {
			return err
		}
	}
	a.asked = append(a.asked, q)
	return nil
}

// readHits takes in what a descriptor says of its cost.
func (q *question) readHits(i int, d *ratelimit.RateLimitDescriptor) error {
	if d.GetHitsAddend() == nil {
		if d.GetIsNegativeHits() {
			return invalid("descriptor %d: is_negative_hits: hits cannot be given back here", i+1)
		}
		return nil
	}
	switch hits := d.GetHitsAddend().GetValue(); {
	case hits == 0:
		q.look, q.cost = true, 1
	case d.GetIsNegativeHits():
		return invalid("descriptor %d: is_negative_hits: hits cannot be given back here", i+1)
	case hits > uint64(window.MaxCount):
		return invalid("descriptor %d: hits_addend %d: want at most %d", i+1, hits, window.MaxCount)
	default:
		q.cost = int64(hits)
	}
	return nil
}

func (a *asking) attributes(q *question) identity.Attributes { return a.attrs[q.from:q.to] }

// spareReplaced spares the descriptors that only such rules limit as a rule which applies to another
// descriptor replaces. Within one descriptor the rule set has seen to that.
func (a *asking) spareReplaced() {
	if !a.prepared.replaces || len(a.asked) < 2 {
		return
	}
	replaced := make(map[string]bool)
	found := make([][]*rules.Rule, len(a.asked))
	for i := range a.asked {
		if q := &a.asked[i]; q.own == nil {
			found[i] = a.prepared.set.Find(nil, a.attributes(q))
		}
		for _, r := range found[i] {
			if r.Shadow { // it denies nothing in their place
				continue
			}
			for _, name := range r.Replaces {
				replaced[name] = true
			}
		}
	}
	for i := range a.asked {
		limited := func(r *rules.Rule) bool { return !r.Unlimited && !replaced[r.Name] }
		if len(found[i]) > 0 && !slices.ContainsFunc(found[i], limited) {
			a.asked[i].spared = true
		}
	}
}
