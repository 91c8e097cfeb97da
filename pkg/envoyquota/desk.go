package envoyquota

import (
	"fmt"
	"sync"
	"time"
	"unicode/utf8"

	quotapb "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/envoyquota/internal/shares"
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

// desk is where reports come in and assignments go out, for all Envoys. Its methods are functions of the time that they are given, and safe for
// concurrent use.
type desk struct {
	checker Checker
	o       Options

	mu       sync.Mutex
	ledgers  map[ledgerKey]*ledger
	clients  map[*client]bool
	set      *rules.Set      // that costs was made for
	costs    map[string]bool // attributes that hits cost
	checkers int             // in the fleet
	stats    Stats
	askAt    int64 // for how many checkers there are
}

// ledgerKey is a key under a rule. With another window, shares are of another kind.
type ledgerKey struct {
	counter, key string
	shape        window.Shape
	flows        bool
}

type ledger struct {
	shares.Ledger
	tally
	key ledgerKey
}

// client is one Envoy, as long as its stream lasts.
type client struct {
	from      string // its host; "" if that is not known
	domain    string
	buckets   map[string]*bucket
	set       *rules.Set          // that its buckets were looked at by
	spreading []*bucket           // that have requests to count later
	changed   []*bucket           // that the Envoy is to be told about
	away      []*quotapb.BucketId // that it is to forget
	wake      chan struct{}
	lookAt    int64 // at all buckets
}

func newDesk(c Checker, o Options) *desk {
	return &desk{checker: c, o: o, ledgers: make(map[ledgerKey]*ledger), clients: make(map[*client]bool)}
}

// join adds an Envoy, if there is room for it. One from the same host as one that has gone may be that one.
func (d *desk) join(from string) (*client, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.clients) >= d.o.MaxStreams {
		d.stats.Refused++
		return nil, status.Errorf(codes.ResourceExhausted, "there are %d streams: no more", d.o.MaxStreams)
	}
	c := &client{from: from, buckets: make(map[string]*bucket), wake: make(chan struct{}, 1)}
	d.clients[c] = true
	d.stats.Opened++
	return c, nil
}

// leave takes an Envoy out. What it was assigned stays held until it ends; what it reported is counted.
func (d *desk) leave(now int64, c *client) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.clients, c)
	for _, b := range c.buckets {
		d.drop(now, b, b.told.kind != bucketOf)
	}
	c.buckets, c.spreading, c.changed, c.away = nil, nil, nil, nil
}

// drop forgets a bucket.
func (d *desk) drop(now int64, b *bucket, gaveBack bool) {
	d.count(now, b, b.later)
	b.later, b.dropped = 0, true
	d.release(now, b, gaveBack)
	delete(b.client.buckets, b.name)
}

// release gives up a bucket's shares.
func (d *desk) release(now int64, b *bucket, gaveBack bool) {
	for _, p := range b.parts {
		p.ledger.Leave(p.holder, gaveBack)
		if p.ledger.Empty(now) {
			delete(d.ledgers, p.ledger.key)
		}
	}
	b.parts = nil
}

// sweep forgets what was held by those who have gone.
func (d *desk) sweep(now int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for key, l := range d.ledgers {
		if l.Empty(now) {
			delete(d.ledgers, key)
		}
	}
}

// report takes in what an Envoy reports.
//
// Of a message with an error, which says what is wrong with it, nothing is taken.
func (d *desk) report(now int64, c *client, message []byte) error {
	wrong, n := "", 0
	domain, err := parseReports(message, func(w *wireUsage) {
		if wrong == "" {
			if what := w.wrong(); what != "" {
				wrong = fmt.Sprintf("bucket_quota_usages[%d]: %s", n, what)
			}
		}
		n++
	})
	if err != nil {
		return err
	}
	if err := c.inDomain(string(domain)); err != nil {
		return err
	}
	if wrong != "" {
		return status.Error(codes.InvalidArgument, wrong)
	}
	d.follow(now, c)
	_, err = parseReports(message, func(w *wireUsage) { d.take(now, c, readUsage(w)) })
	if err != nil {
		return err
	}
	c.signal()
	return nil
}

// inDomain checks a message's domain. The first must have one, the others may.
func (c *client) inDomain(domain string) error {
	switch {
	case len(domain) > maxDomain || !utf8.ValidString(domain):
		return status.Errorf(codes.InvalidArgument, "domain: want at most %d bytes of UTF-8", maxDomain)
	case domain == "" && c.domain == "":
		return status.Error(codes.InvalidArgument, "domain: the first message has none")
	case domain != "" && c.domain != "" && domain != c.domain:
		return status.Errorf(codes.InvalidArgument, "domain: %.40q after %.40q: another domain needs another stream", domain, c.domain)
	case c.domain == "":
		c.domain = domain
	}
	return nil
}

// take takes in one bucket's usage.
func (d *desk) take(now int64, c *client, u *usage) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stats.Allowed += u.allowed
	d.stats.Denied += u.denied
	b := c.buckets[u.name]
	if !u.fits || b == nil && len(c.buckets) >= d.o.MaxBuckets {
		d.turnAway(now, c, u)
		return
	}
	if b == nil {
		b = d.open(now, c, u)
	}
	d.spend(now, b, u)
	d.decide(now, b)
}

// turnAway counts what is reported of a bucket that there is no room for, and has Envoy forget the bucket, or it would report it for
// ever.
func (d *desk) turnAway(now int64, c *client, u *usage) {
	d.stats.TurnedAway++
	if u.allowed > 0 {
		attrs := attributes(c.domain, u.bucket, d.costs)
		d.checker.Do(check.Request{Attributes: attrs, Cost: u.allowed, Mode: check.Record})
	}
	if u.id != nil && len(c.away) < d.o.MaxBuckets {
		c.away = append(c.away, u.id)
	}
}

// follow keeps up with the rules, and with how many checkers there are.
func (d *desk) follow(now int64, c *client) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if now >= d.askAt {
		d.checkers, d.askAt = d.checker.Stats().Checkers, now+int64(time.Second)
	}
	set := d.checker.Rules()
	if set != d.set {
		d.set, d.costs = set, make(map[string]bool)
		for _, r := range set.Rules() {
			if r.Cost != "" {
				d.costs[r.Cost] = true
			}
		}
	}
	if c.set == set {
		return
	}
	c.set = set
	for _, b := range c.buckets {
		b.attrs = attributes(c.domain, b.id.Bucket, d.costs)
		d.decide(now, b)
	}
}
