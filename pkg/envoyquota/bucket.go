package envoyquota

import (
	"math"
	"slices"
	"time"

	quotapb "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"

	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/envoyquota/internal/shares"
	"github.com/offpath-io/offpath/pkg/identity"
)

// shortest is the shortest time over which demand is measured.
const shortest = 500 * time.Millisecond

// bucket is one of an Envoy's buckets.
type bucket struct {
	client *client
	id     *quotapb.BucketId
	name   string
	attrs  identity.Attributes
	shares []share

	want, sent assignment // to be sent, and last sent
	refill     bool       // send want even if it equals sent, and with a full token bucket
	until      int64      // when sent ends
	renew      bool       // send it again
	changed    bool       // it is in client.changed
	dropped    bool       // its client does not have it any more

	used        bool  // requests were allowed since the last decision
	usedAt      int64 // when a request was last reported
	demandFrom  int64 // demand before this time has been measured
	demand      int64 // requests since demandFrom
	pending     int64 // allowed requests that are not counted yet
	slice       int64 // how many of them are counted at each tick
	joining     bool  // its demand is not known yet
	isSpreading bool  // it is in client.spreading
}

// share is a bucket's share of one limit.
type share struct {
	ledger *ledger
	holder *shares.Holder
}

func (d *distributor) open(now int64, c *client, u *usage) *bucket {
	b := &bucket{
		client: c, id: u.id, name: u.name, attrs: attributes(c.domain, u.bucket, d.costs),
		usedAt: now, demandFrom: now - int64(min(u.elapsed, d.o.TTL)), joining: true,
	}
	c.buckets[b.name] = b
	d.limit(now, b)
	return b
}

// spend adds the reported requests of a bucket, allowed and denied.
func (d *distributor) spend(now int64, b *bucket, u *usage) {
	b.demand += u.allowed + u.denied
	if u.allowed+u.denied > 0 {
		b.usedAt = now
	}
	b.used = b.used || u.allowed > 0
	if over := time.Duration(now - b.demandFrom); over >= shortest {
		for _, p := range b.shares {
			p.ledger.Demand(p.holder, float64(b.demand), over)
		}
		b.joining = len(b.shares) == 0
		b.demand, b.demandFrom = 0, now
	}
	if b.pending += u.allowed; !b.hasRate() {
		d.count(now, b, b.pending)
		b.pending = 0
		return
	}
	// The requests of several windows must not be counted in one.
	ticks := int64(d.o.ReportEvery / tick)
	b.slice = (b.pending + ticks - 1) / ticks
	d.countSlice(now, b)
	if b.pending > 0 && !b.isSpreading {
		b.isSpreading = true
		b.client.spreading = append(b.client.spreading, b)
	}
}

func (d *distributor) countSlice(now int64, b *bucket) {
	slice := min(b.slice, b.pending)
	b.pending -= slice
	d.count(now, b, slice)
}

// hasRate reports whether one of its shares is a rate.
func (b *bucket) hasRate() bool {
	return slices.ContainsFunc(b.shares, func(p share) bool { return p.ledger.key.isRate })
}

// count counts allowed requests as hits.
func (d *distributor) count(now int64, b *bucket, hits int64) {
	if hits <= 0 {
		return
	}
	d.checker.Do(check.Request{Attributes: b.attrs, Cost: hits, Mode: check.Record})
	for _, p := range b.shares {
		p.ledger.add(now, hits)
	}
}

// decide decides what a bucket may use.
func (d *distributor) decide(now int64, b *bucket) {
	limited := d.limit(now, b)
	if limited.barred || len(limited.all) == 0 {
		all := assignment{kind: allowAll}
		if limited.barred {
			all.kind = denyAll
		}
		d.setAssignment(b, all, false)
		return
	}
	until := now + int64(d.o.TTL+grace)
	for i, p := range b.shares {
		x := limited.all[i]
		fraction := d.fraction(now, p.ledger, &limited.terms[i], x, limited.fresh)
		pool := limited.terms[i].pool(d.o.ReportEvery, fraction, limited.ahead[i])
		pool.Expected = len(d.clients)
		for _, other := range p.ledger.Give(now, p.holder, pool, until) {
			o := other.Owner.(*bucket)
			d.setAssignment(o, newAssignment(o.granted(nil)), false)
			o.client.signal()
		}
	}
	g := b.granted(nil)
	for _, p := range b.shares {
		p.ledger.Use(p.holder, g, b.granted(p.holder))
	}
	want := newAssignment(g)
	d.setAssignment(b, want, g.Refill && (b.used || want != b.sent))
	b.used = false
}

// granted returns what all limits of a bucket allow, except one.
func (b *bucket) granted(but *shares.Holder) shares.Grant {
	g := shares.Grant{Burst: math.MaxInt64, Rate: math.Inf(1)}
	for _, p := range b.shares {
		if p.holder != but {
			g = g.And(p.holder.Grant)
		}
	}
	return g
}

// fraction returns the part of a limit for the Envoys of this daemon.
func (d *distributor) fraction(
	now int64, l *ledger, t *terms, x *check.Explanation, fresh check.Freshness,
) float64 {
	switch {
	case fresh == check.LocalShare || fresh == check.Outage:
		return 1 / float64(max(d.checkers, 1)) // the counts of other daemons are unknown
	case d.checkers <= 1 && !t.isRate(d.o.ReportEvery):
		return 1 // no other daemon grants, and the counts have all other hits
	}
	return l.fraction(now, x.Count, d.checkers)
}

// limits are those of a bucket.
type limits struct {
	barred bool
	fresh  check.Freshness
	all    []*check.Explanation
	terms  []terms
	// ahead are the counts that will remain, of limits whose shares are stocks.
	ahead []outlook
}

// limit finds the limits of a bucket, and gives it a share of each.
func (d *distributor) limit(now int64, b *bucket) limits {
	standing := d.standing(b, 0)
	all := standing.Explanations
	// The checker may deny what no rule matches.
	barred := standing.Unmatched && !standing.Allowed
	l, stock := limits{fresh: standing.Freshness, barred: barred}, false
	for i := range all {
		x := &all[i]
		if x.Shadow {
			continue
		}
		l.barred = l.barred || x.Barred != ""
		if t := termsOf(d.set, x); t.limit > 0 { // otherwise it is of another set
			l.all, l.terms = append(l.all, x), append(l.terms, t)
			stock = stock || !t.isRate(d.o.ReportEvery)
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

// lookAhead asks which counts will remain.
func (d *distributor) lookAhead(b *bucket, l *limits) {
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
func (d *distributor) standing(b *bucket, ahead time.Duration) check.Result {
	return d.checker.Do(check.Request{Attributes: b.attrs, Mode: check.Standing, Ahead: ahead})
}

// countBy returns the count of the same rule at another time. If the rules have changed in between,
// it returns the count of now; they will be evaluated again.
func countBy(all []check.Explanation, x *check.Explanation) float64 {
	for i := range all {
		if all[i].Counter == x.Counter && all[i].Rule == x.Rule {
			return all[i].Count
		}
	}
	return x.Count
}

// hold replaces a bucket's shares if its limits have changed.
func (d *distributor) hold(now int64, b *bucket, l limits) {
	keys := make([]ledgerKey, len(l.all))
	same := len(keys) == len(b.shares)
	for i, x := range l.all {
		keys[i] = ledgerKey{x.Counter, x.Key, l.terms[i].shape, l.terms[i].isRate(d.o.ReportEvery)}
		same = same && b.shares[i].ledger.key == keys[i]
	}
	if same {
		return
	}
	d.release(now, b, b.sent.kind != bucketOf)
	b.joining = true
	for _, key := range keys {
		p := share{ledger: d.ledgers[key]}
		if p.ledger == nil {
			p.ledger = &ledger{key: key, localCounts: localCounts{shape: key.shape}}
			d.ledgers[key] = p.ledger
		}
		p.holder = p.ledger.Join(now, b, b.client.from)
		b.shares = append(b.shares, p)
	}
}
