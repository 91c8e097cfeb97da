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

// distributor takes in the reports of all Envoys, and makes their assignments. Its methods get the
// time as an argument, and are safe for concurrent use.
type distributor struct {
	checker Checker
	o       Options

	mu       sync.Mutex
	ledgers  map[ledgerKey]*ledger
	clients  map[*client]bool
	set      *rules.Set      // that costs is for
	costs    map[string]bool // attributes that hits cost
	checkers int             // in the fleet
	stats    Stats
	askAt    int64 // the number of checkers again
}

// ledgerKey is a key under a rule. Shares of another window are of another kind.
type ledgerKey struct {
	counter, key string
	shape        window.Shape
	isRate       bool
}

type ledger struct {
	shares.Ledger
	localCounts
	key ledgerKey
}

// client is one Envoy, while its stream lasts.
type client struct {
	from       string // its host; "" if that is not known
	domain     string
	buckets    map[string]*bucket
	set        *rules.Set          // that its buckets were decided by
	spreading  []*bucket           // that have pending requests
	changed    []*bucket           // that actions are to be sent for
	abandoned  []*quotapb.BucketId // that the Envoy shall abandon
	wake       chan struct{}
	maintainAt int64 // all buckets
}

func newDistributor(c Checker, o Options) *distributor {
	return &distributor{
		checker: c, o: o, ledgers: make(map[ledgerKey]*ledger), clients: make(map[*client]bool),
	}
}

// join adds an Envoy, if there is room for it.
func (d *distributor) join(from string) (*client, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.clients) >= d.o.MaxStreams {
		d.stats.Refused++
		return nil, status.Errorf(codes.ResourceExhausted,
			"there are %d streams: no more", d.o.MaxStreams)
	}
	c := &client{from: from, buckets: make(map[string]*bucket), wake: make(chan struct{}, 1)}
	d.clients[c] = true
	d.stats.Opened++
	return c, nil
}

// leave removes an Envoy. Its assignments stay reserved until they end; its pending requests are
// counted.
func (d *distributor) leave(now int64, c *client) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.clients, c)
	for _, b := range c.buckets {
		d.drop(now, b, b.sent.kind != bucketOf)
	}
	c.buckets, c.spreading, c.changed, c.abandoned = nil, nil, nil, nil
}

// drop removes a bucket.
func (d *distributor) drop(now int64, b *bucket, gaveBack bool) {
	d.count(now, b, b.pending)
	b.pending, b.dropped = 0, true
	d.release(now, b, gaveBack)
	delete(b.client.buckets, b.name)
}

// release gives up a bucket's shares.
func (d *distributor) release(now int64, b *bucket, gaveBack bool) {
	for _, p := range b.shares {
		p.ledger.Leave(p.holder, gaveBack)
		if p.ledger.Empty(now) {
			delete(d.ledgers, p.ledger.key)
		}
	}
	b.shares = nil
}

// sweep removes the ended assignments of Envoys that have left.
func (d *distributor) sweep(now int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for key, l := range d.ledgers {
		if l.Empty(now) {
			delete(d.ledgers, key)
		}
	}
}

// report takes in an Envoy's report. It fails on an invalid message, of which it takes nothing.
func (d *distributor) report(now int64, c *client, message []byte) error {
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
	d.refresh(now, c)
	_, err = parseReports(message, func(w *wireUsage) { d.take(now, c, readUsage(w)) })
	if err != nil {
		return err
	}
	c.signal()
	return nil
}

// inDomain checks a message's domain. Only the first message must have one.
func (c *client) inDomain(domain string) error {
	switch {
	case len(domain) > maxDomain || !utf8.ValidString(domain):
		return status.Errorf(codes.InvalidArgument,
			"domain: want at most %d bytes of UTF-8", maxDomain)
	case domain == "" && c.domain == "":
		return status.Error(codes.InvalidArgument, "domain: the first message has none")
	case domain != "" && c.domain != "" && domain != c.domain:
		return status.Errorf(codes.InvalidArgument,
			"domain: %.40q after %.40q: another domain needs another stream", domain, c.domain)
	case c.domain == "":
		c.domain = domain
	}
	return nil
}

// take adds the usage of one bucket.
func (d *distributor) take(now int64, c *client, u *usage) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stats.Allowed += u.allowed
	d.stats.Denied += u.denied
	b := c.buckets[u.name]
	if !u.fits || b == nil && len(c.buckets) >= d.o.MaxBuckets {
		d.reject(now, c, u)
		return
	}
	if b == nil {
		b = d.open(now, c, u)
	}
	d.spend(now, b, u)
	d.decide(now, b)
}

// reject counts the requests of a bucket for which there is no room. Envoy is told to abandon it:
// it would report it for ever otherwise.
func (d *distributor) reject(now int64, c *client, u *usage) {
	d.stats.TurnedAway++
	if u.allowed > 0 {
		attrs := attributes(c.domain, u.bucket, d.costs)
		d.checker.Do(check.Request{Attributes: attrs, Cost: u.allowed, Mode: check.Record})
	}
	if u.id != nil && len(c.abandoned) < d.o.MaxBuckets {
		c.abandoned = append(c.abandoned, u.id)
	}
}

// refresh reads the rules and the number of checkers, and decides again if the rules have changed.
func (d *distributor) refresh(now int64, c *client) {
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
