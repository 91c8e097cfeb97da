package envoyquota

import (
	"math"
	"time"

	quotapb "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"

	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/envoyquota/internal/shares"
	"github.com/offpath-io/offpath/pkg/identity"
)

// shortest is the shortest time over which a demand is reckoned.
const shortest = 500 * time.Millisecond

// bucket is one of an Envoy's buckets.
type bucket struct {
	client *client
	id     *quotapb.BucketId
	name   string
	attrs  identity.Attributes
	parts  []part

	want, told assignment
	anew       bool  // want is to be told even if it is told already, and begins full
	until      int64 // when what was told ends
	renew      bool  // it is to be told again
	changed    bool  // it is in client.changed
	dropped    bool  // it is in no client any more

	used    bool  // something was spent since the last decision
	usedAt  int64 // when a request was last reported
	toldOf  int64 // the time up to which requests have been reckoned as demand
	asked   int64 // requests since
	later   int64 // admitted requests that are still to be counted
	slice   int64 // how many of them at each tick
	comes   bool  // its demand is not known yet
	spreads bool  // it is in client.spreading
}

// part is a bucket's share of one limit.
type part struct {
	ledger *ledger
	holder *shares.Holder
}

func (d *desk) open(now int64, c *client, u *usage) *bucket {
	b := &bucket{
		client: c, id: u.id, name: u.name, attrs: attributes(c.domain, u.bucket, d.costs),
		usedAt: now, toldOf: now - int64(min(u.elapsed, d.o.TTL)), comes: true,
	}
	c.buckets[b.name] = b
	d.limit(now, b)
	return b
}

// spend takes in what was spent of a bucket, and what was turned away.
func (d *desk) spend(now int64, b *bucket, u *usage) {
	b.asked += u.allowed + u.denied
	if u.allowed+u.denied > 0 {
		b.usedAt = now
	}
	b.used = b.used || u.allowed > 0
	if over := time.Duration(now - b.toldOf); over >= shortest {
		for _, p := range b.parts {
			p.ledger.Demand(p.holder, float64(b.asked), over)
		}
		b.comes = len(b.parts) == 0
		b.asked, b.toldOf = 0, now
	}
	if b.later += u.allowed; !b.flows() {
		d.count(now, b, b.later)
		b.later = 0
		return
	}
	// What was spent in so many windows must not be counted in one.
	ticks := int64(d.o.ReportEvery / tick)
	b.slice = (b.later + ticks - 1) / ticks
	d.countSlice(now, b)
	if b.later > 0 && !b.spreads {
		b.spreads = true
		b.client.spreading = append(b.client.spreading, b)
	}
}

func (d *desk) countSlice(now int64, b *bucket) {
	slice := min(b.slice, b.later)
	b.later -= slice
	d.count(now, b, slice)
}

// flows says that a share of it is a rate.
func (b *bucket) flows() bool {
	for _, p := range b.parts {
		if p.ledger.key.flows {
			return true
		}
	}
	return false
}

// count counts admitted requests as hits.
func (d *desk) count(now int64, b *bucket, hits int64) {
	if hits <= 0 {
		return
	}
	d.checker.Do(check.Request{Attributes: b.attrs, Cost: hits, Mode: check.Record})
	for _, p := range b.parts {
		p.ledger.add(now, hits)
	}
}

// decide decides anew what a bucket may spend.
func (d *desk) decide(now int64, b *bucket) {
	limited := d.limit(now, b)
	if limited.barred || len(limited.all) == 0 {
		all := assignment{kind: allowAll}
		if limited.barred {
			all.kind = denyAll
		}
		d.tell(b, all, false)
		return
	}
	until := now + int64(d.o.TTL+heldOn)
	for i, p := range b.parts {
		x := limited.all[i]
		pool := limited.terms[i].pool(d.o.ReportEvery, d.part(now, p.ledger, &limited.terms[i], x, limited.fresh), limited.ahead[i])
		pool.Comers = len(d.clients)
		for _, other := range p.ledger.Give(now, p.holder, pool, until) {
			o := other.Owner.(*bucket)
			d.tell(o, assign(o.granted(nil)), false)
			o.client.signal()
		}
	}
	g := b.granted(nil)
	for _, p := range b.parts {
		p.ledger.Use(p.holder, g, b.granted(p.holder))
	}
	want := assign(g)
	d.tell(b, want, g.Anew && (b.used || want != b.told))
	b.used = false
}

// granted is what all limits of a bucket allow, but one.
func (b *bucket) granted(but *shares.Holder) shares.Grant {
	g := shares.Grant{Burst: math.MaxInt64, Rate: math.Inf(1)}
	for _, p := range b.parts {
		if p.holder != but {
			g = g.And(p.holder.Grant)
		}
	}
	return g
}

func (d *desk) part(now int64, l *ledger, t *terms, x *check.Explanation, fresh check.Freshness) float64 {
	switch {
	case fresh == check.LocalShare || fresh == check.Outage:
		return 1 / float64(max(d.checkers, 1)) // others' counts are not heard of
	case d.checkers <= 1 && !t.flows(d.o.ReportEvery):
		return 1 // nobody else grants, and what others spend is in the counts
	}
	return l.part(now, x.Count, d.checkers)
}

// limits are those that a bucket is decided by.
type limits struct {
	barred bool
	fresh  check.Freshness
	all    []*check.Explanation
	terms  []terms
	// ahead is what will still count later, of those whose shares are stocks.
	ahead []outlook
}

// limit finds the limits of a bucket, and makes its parts theirs.
func (d *desk) limit(now int64, b *bucket) limits {
	standing := d.standing(b, 0)
	all := standing.Explanations
	l, stock := limits{fresh: standing.Freshness}, false
	for i := range all {
		x := &all[i]
		if x.Shadow {
			continue
		}
		l.barred = l.barred || x.Barred != ""
		if t := termsOf(d.set, x); t.limit > 0 { // else it is of another set
			l.all, l.terms = append(l.all, x), append(l.terms, t)
			stock = stock || !t.flows(d.o.ReportEvery)
		}
	}
	if l.barred {
		l = limits{barred: true}
	}
	l.ahead = make([]outlook, len(l.all))
	if stock && !l.barred {
		d.lookAhead(b, &l)
	}
	d.hold(now, b, l)
	return l
}

// lookAhead asks what will still count later.
func (d *desk) lookAhead(b *bucket, l *limits) {
	lag := d.o.ReportEvery / 2
	soon := d.standing(b, lag).Explanations
	then := d.standing(b, 3*lag).Explanations
	for i, x := range l.all {
		l.ahead[i] = outlook{x.Count, x.Count}
		if !l.terms[i].shape.Fixed {
			l.ahead[i] = outlook{countBy(soon, x), countBy(then, x)}
		}
	}
}

// standing is where a bucket stands with its limits, now or in some time.
func (d *desk) standing(b *bucket, ahead time.Duration) check.Result {
	return d.checker.Do(check.Request{Attributes: b.attrs, Mode: check.Standing, Ahead: ahead})
}

// countBy is what counts by the same rule at another time; if the rules have changed in between, what counts now: they are looked at again.
func countBy(all []check.Explanation, x *check.Explanation) float64 {
	for i := range all {
		if all[i].Counter == x.Counter && all[i].Rule == x.Rule {
			return all[i].Count
		}
	}
	return x.Count
}

// hold makes a bucket's parts those of its limits.
func (d *desk) hold(now int64, b *bucket, l limits) {
	keys := make([]ledgerKey, len(l.all))
	same := len(keys) == len(b.parts)
	for i, x := range l.all {
		keys[i] = ledgerKey{x.Counter, x.Key, l.terms[i].shape, l.terms[i].flows(d.o.ReportEvery)}
		same = same && b.parts[i].ledger.key == keys[i]
	}
	if same {
		return
	}
	d.release(now, b, b.told.kind != bucketOf)
	b.comes = true
	for _, key := range keys {
		p := part{ledger: d.ledgers[key]}
		if p.ledger == nil {
			p.ledger = &ledger{key: key, tally: tally{shape: key.shape}}
			d.ledgers[key] = p.ledger
		}
		p.holder = p.ledger.Join(now, b, b.client.from)
		b.parts = append(b.parts, p)
	}
}
