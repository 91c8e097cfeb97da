// Package offpath makes a service a participant in a fleet of rate limiters.
//
// [Join] does in one call what the daemon cmd/checker does, and the daemon uses it: it connects to
// the fleet's NATS, follows the fleet's rules and blocks, and starts a checker (package check),
// which decides in this process. Rules that change and keys that operators block come into force
// within a second. The fleet's consoles list the checker. Where NATS is away, or closes a
// connection for good, the checker decides by what it knows, and hits are reported when NATS is
// back.
//
// A limiter that shares its limits with nobody needs no fleet: package check alone makes one.
package offpath

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/offpath-io/offpath/internal/blocks"
	"github.com/offpath-io/offpath/internal/natsclient"
	"github.com/offpath-io/offpath/internal/natssource"
	"github.com/offpath-io/offpath/internal/topkeys"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/events/natsbus"
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/signature"
)

// DefaultNamespace is the namespace of a fleet that nobody has named.
const DefaultNamespace = "offpath"

// Options say which fleet to join, and how. Only NATS is required.
type Options struct {
	// NATS is the URL of the fleet's NATS; of a cluster, URLs of several servers with commas
	// between.
	NATS string
	// NATSOptions are for credentials and certificates, such as
	// nats.UserCredentials("service.creds").
	NATSOptions []nats.Option
	// Namespace is the fleet's name: fleets of different names share a NATS. Default "offpath".
	Namespace string
	// Name is the checker's name in NATS' accounts, which may hold it to subjects with this name in
	// them; several checkers may share one. "" suits a NATS without accounts.
	Name string

	// Rules is the path of a YAML file of rules, or of a directory of such, which is watched. ""
	// takes the rules of the fleet's bucket, which "aggregator rules apply" writes.
	Rules string
	// Shadow evaluates all rules as if each had `shadow: true`: what they would deny is counted, and
	// nobody is denied, also by blocks.
	Shadow bool
	// RulesVerifier and BlocksVerifier hold the public keys of those who may write rules and blocks
	// into the fleet's buckets. Nil takes whatever is there.
	RulesVerifier, BlocksVerifier *signature.Verifier
	// CacheDir is a directory in which the rules of the bucket and the blocks are kept, for a start
	// while NATS is away. "" keeps none: such a start then waits for NATS.
	CacheDir string

	// Checker are further options of the checker. Rules, Revision and Link are set by Join, and
	// Epoch if it is 0: one that is given has to belong to Name (events.NewEpoch).
	Checker check.Options
	// Begin, if not nil, is called with the checker when the first rules are about to come into
	// force. An error refuses these rules; the next ones make another checker.
	Begin func(*check.Checker) error
	// WantsDecisionLog has an aggregator create the stream of the fleet's decision log.
	WantsDecisionLog bool
	// Log takes what an operator should know. Default: nothing is logged.
	Log *slog.Logger
}

func (o Options) withDefaults() Options {
	o.Namespace = cmp.Or(o.Namespace, DefaultNamespace)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Checker.Epoch == 0 {
		o.Checker.Epoch = events.NewEpoch(o.Name)
	}
	return o
}

func (o Options) validate() error {
	switch {
	case o.NATS == "":
		return errors.New("offpath: no URL of NATS")
	case o.Name != "" && !events.IsEpochOf(o.Name, o.Checker.Epoch):
		return fmt.Errorf("offpath: epoch %x does not belong to name %q", o.Checker.Epoch, o.Name)
	}
	probe := o.Checker
	probe.Rules = new(rules.Set)
	_, err := check.New(probe) // it starts nothing
	return err
}

const (
	// rulesWait bounds how long Checker waits for the bucket's rules when the cache has some.
	rulesWait = 2 * time.Second
	// blocksWait bounds how long Checker waits for the blocks, so that the checker admits nobody
	// whom the rest of the fleet keeps out.
	blocksWait = time.Second
)

// Participant is a checker and all that joins it to its fleet. Its methods may be called from any
// goroutine.
type Participant struct {
	link   *link
	rules  *reloadable
	blocks *blockSource
	caches caches
	labels labels
	denied *topkeys.Top

	ready    chan struct{} // closed when the checker may decide
	reported chan struct{} // closed when no hits are reported any more
	failed   error         // of the reporter; set before reported is closed

	// What runs in the background, in the order in which it ends.
	starting, watchingRules, watchingBlocks, reporting, announcing, saving, connecting *task

	drain, close sync.Once
	drained      error
}

// Join joins a fleet. It does not need NATS to be up, and tries each of its servers once, for 2 s
// at most; nor does it wait for rules from a bucket: see [Participant.Checker]. The error is
// that of options that make no sense, or of a file of rules that cannot be read or is not good.
func Join(o Options) (*Participant, error) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	m := &Participant{
		denied: topkeys.New(time.Now),
		caches: newCaches(o), ready: make(chan struct{}), reported: make(chan struct{}),
	}
	m.rules = newReloadable(m.newChecker(o), o.Begin, o.Log)
	if o.Shadow {
		m.rules.read = inShadow(m.rules.read)
	}
	var source ruleSource
	if o.Rules != "" {
		file, err := openFiles(o.Rules)
		if err != nil {
			return nil, err
		}
		source = file
	}
	var err error
	if m.link, err = openLink(o); err != nil {
		return nil, err
	}
	m.blocks = newBlockSource(o, m.link, m.rules, m.caches.blocks)
	m.blocks.restore()
	if source == nil {
		source = newBucket(o, m.link, m.caches.rules)
	}
	if err := source.begin(m.rules); err != nil {
		natsclient.Close(m.link.conn())
		return nil, err
	}
	m.start(source, newAnnouncer(o, m))
	return m, nil
}

// newChecker returns what makes the checker of the first rules.
func (m *Participant) newChecker(o Options) func(*rules.Set, uint64) (*check.Checker, error) {
	return func(set *rules.Set, revision uint64) (*check.Checker, error) {
		c := o.Checker
		c.Rules, c.Revision, c.Link = set, revision, m.link
		c.OnDenied = m.denied.AddSome
		if others := o.Checker.OnDenied; others != nil {
			c.OnDenied = func(rule, key string, decisions int64) {
				m.denied.AddSome(rule, key, decisions)
				others(rule, key, decisions)
			}
		}
		return check.New(c)
	}
}

func (m *Participant) start(source ruleSource, a *announcer) {
	m.connecting = begin(m.link.run)
	m.saving = begin(m.caches.save)
	m.announcing = begin(a.run)
	m.reporting = begin(m.report)
	m.watchingRules = begin(func(ctx context.Context) { source.watch(ctx, m.rules) })
	m.watchingBlocks = begin(m.blocks.watch)
	m.starting = begin(func(ctx context.Context) { m.awaitStart(ctx, source) })
}

// awaitStart notes when the checker may decide: there are rules, none newer than those of the cache
// come soon, and the blocks are there, if they come soon.
func (m *Participant) awaitStart(ctx context.Context, source ruleSource) {
	select {
	case <-m.rules.made:
	case <-ctx.Done():
		return
	}
	rulesLate, blocksLate := time.After(rulesWait), time.After(blocksWait)
	await(ctx, source.heard(), rulesLate)
	await(ctx, m.blocks.known, blocksLate)
	if ctx.Err() == nil {
		close(m.ready)
	}
}

func await(ctx context.Context, event <-chan struct{}, late <-chan time.Time) {
	select {
	case <-event:
	case <-late:
	case <-ctx.Done():
	}
}

// report runs the checker, once there is one.
func (m *Participant) report(ctx context.Context) {
	defer close(m.reported)
	select {
	case <-ctx.Done():
	case <-m.rules.made:
	}
	if c := m.rules.checker.Load(); c != nil { // even if ctx is done: Run delivers what is pending
		m.failed = c.Run(ctx)
	}
}

// Checker waits for the first rules, and returns the checker, which is the same from then on, while
// rules and blocks change. It goes on deciding after Close, and reports nothing then. Rules
// of a file are there at once, but blocks are waited for, for 1 s at most. The error wraps that
// of ctx, and says why there are no rules.
func (m *Participant) Checker(ctx context.Context) (*check.Checker, error) {
	select {
	case <-m.ready:
		return m.rules.checker.Load(), nil
	default:
	}
	select {
	case <-m.ready:
		return m.rules.checker.Load(), nil
	case <-m.reported:
		if c := m.rules.checker.Load(); c != nil {
			return c, nil
		}
		return nil, errors.New("offpath: closed before there were rules")
	case <-ctx.Done():
		return nil, fmt.Errorf("offpath: no checker; rules: %v: %w", m.rules.now(), ctx.Err())
	}
}

// Conn returns the present connection to NATS. It stays the participant's, which replaces it when
// the library closes it for good.
func (m *Participant) Conn() *nats.Conn { return m.link.conn() }

// Done returns a channel that is closed when no hits are reported any more: after Drain or Close,
// or when reporting has failed, which the error of both then says.
func (m *Participant) Done() <-chan struct{} { return m.reported }

// Drain stops following rules and blocks, delivers the hits that have not been reported, within
// Options.Checker.DrainTimeout, and says to the fleet that the checker leaves. The connection stays
// open. The error wraps check.ErrUnreported if hits are left.
func (m *Participant) Drain() error {
	m.drain.Do(func() {
		for _, t := range []*task{
			m.starting, m.watchingRules, m.watchingBlocks, m.reporting, m.announcing, m.saving,
		} {
			t.end()
		}
		m.drained = m.failed
	})
	return m.drained
}

// Close drains, and closes the connection.
func (m *Participant) Close() error {
	err := m.Drain()
	m.close.Do(func() {
		m.connecting.end()
		natsclient.Close(m.link.conn())
	})
	return err
}

// task is something that runs in the background until it is told to end.
type task struct {
	stop  context.CancelFunc
	ended chan struct{}
}

func begin(f func(context.Context)) *task {
	ctx, stop := context.WithCancel(context.Background())
	t := &task{stop, make(chan struct{})}
	go func() {
		defer close(t.ended)
		f(ctx)
	}()
	return t
}

// end waits until it has ended.
func (t *task) end() {
	t.stop()
	<-t.ended
}

func newCaches(o Options) caches {
	c := caches{blocks: newCache(o.CacheDir, blocks.Name(o.Namespace), o.Log)}
	if o.Rules == "" {
		c.rules = newCache(o.CacheDir, natssource.Name(o.Namespace), o.Log)
	}
	return c
}

// nameOf is the checker's name on NATS: its epoch, below Options.Name if there is one.
func nameOf(o Options) string { return natsbus.CheckerName(o.Name, o.Checker.Epoch) }
