// Package offpath starts a checker in a service, which decides in this process and shares its
// limits with the other checkers of its fleet.
//
// [Start] does in one call what the daemon cmd/checker does, and the daemon uses it: it connects to
// the fleet's NATS, follows the fleet's rules and blocks, and runs a checker (package check). Pass
// that to an adapter, such as package httplimit or grpclimit, or ask it yourself. Rules that change
// and keys that operators block come into force within a second. The fleet's consoles list the
// checker. Where NATS is away, or closes a connection for good, the checker decides by what it
// knows, and hits are reported when NATS is back.
//
// With Options.NATS "none" the limits are this process' own.
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
	// between. "none" joins no fleet: the limits are this process' own, and Rules or RulesFile is
	// required. "" is an error, so that a variable that nobody has set does not divide a fleet.
	NATS string
	// NATSOptions are for credentials and certificates, such as
	// nats.UserCredentials("service.creds").
	NATSOptions []nats.Option
	// Namespace is the fleet's name: fleets of different names share a NATS. Default "offpath".
	Namespace string
	// Name is the checker's name in NATS' accounts, which may hold it to subjects with this name in
	// them; several checkers may share one. "" suits a NATS without accounts.
	Name string

	// Rules are the rules, as YAML; RulesFile is the path of a file of them, or of a directory of
	// such files, which is watched. With neither, the rules are those of the fleet's bucket, which
	// "offpath rules apply" writes.
	//
	// Checkers of one fleet that bring rules of their own should bring the same. While they differ,
	// hits are counted by the limits with the highest revision. It is a modification time: of the
	// file, of the newest in the directory, or for Rules of the executable. Builds that give all
	// executables the same time give all Rules the same revision, and each checker's hits are then
	// counted by its own limits: use RulesFile or the bucket with such builds.
	Rules, RulesFile string
	// Shadow evaluates all rules as if each had `shadow: true`: what they would deny is counted,
	// and nobody is denied, also by blocks.
	Shadow bool
	// RulesVerifier and BlocksVerifier hold the public keys of those who may write rules and blocks
	// into the fleet's buckets. Nil takes whatever is there.
	RulesVerifier, BlocksVerifier *signature.Verifier
	// CacheDir is a directory in which the rules of the bucket and the blocks are kept, for a start
	// while NATS is away. "" keeps none: such a start then waits for NATS.
	CacheDir string

	// Checker are further options of the checker. Rules, Revision and Link are set by Start, and
	// Epoch if it is 0: one that is given has to belong to Name (events.NewEpoch).
	Checker check.Options
	// Begin, if not nil, is called with the checker when the first rules are about to come into
	// force, which may be after Start has returned. An error refuses these rules; the next ones
	// make another checker.
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

// alone reports whether there is no fleet to join.
func (o Options) alone() bool { return o.NATS == "none" }

func (o Options) validate() error {
	switch {
	case o.NATS == "":
		return errors.New(`offpath: Options.NATS is empty: want the URL of the fleet's NATS, ` +
			`or "none" for limits of this process alone`)
	case o.Rules != "" && o.RulesFile != "":
		return errors.New("offpath: Options.Rules and RulesFile are both set: want one of them")
	case o.alone() && o.Rules == "" && o.RulesFile == "":
		return errors.New("offpath: Options.Rules and RulesFile are empty: want one of them, " +
			"since without NATS there are no other rules")
	case o.Name != "" && !events.IsEpochOf(o.Name, o.Checker.Epoch):
		return fmt.Errorf("offpath: epoch %x does not belong to name %q", o.Checker.Epoch, o.Name)
	}
	probe := o.Checker
	probe.Rules = new(rules.Set)
	_, err := check.New(probe) // it starts nothing
	return err
}

const (
	// rulesWait bounds how long Start waits for the bucket's rules when the cache has some.
	rulesWait = 2 * time.Second
	// blocksWait bounds how long Start waits for the blocks, so that the checker admits nobody
	// whom the rest of the fleet keeps out.
	blocksWait = time.Second
)

// Participant is a checker and all that joins it to its fleet. Its methods may be called from any
// goroutine.
type Participant struct {
	link   *link // nil: there is no fleet
	rules  *reloadable
	blocks *blockSource
	caches caches
	labels labels
	denied *topkeys.Top

	ready    chan struct{} // closed when the checker may decide
	reported chan struct{} // closed when no hits are reported any more
	failed   error         // of the reporter; set before reported is closed

	// What runs in the background, in the order in which it ends; nil: without a fleet it does not.
	starting, watchingRules, watchingBlocks, reporting, announcing, saving, connecting *task

	drain, close sync.Once
	drained      error
}

// Start starts a checker, which decides until the process ends, and reports until Close. It does
// not need NATS to be up: it tries each of its servers once, for 2 s at most. It waits until there
// are rules, and for the fleet's blocks for 1 s at most. Rules of Options are there at once; those
// of the fleet's bucket may be waited for until ctx is done, which means nothing afterwards.
//
// The error is that of options that make no sense or of rules that are not good; or it wraps that
// of ctx, and says why there are no rules. With Options.Begin, which says when there are rules,
// that is no error: Start returns, and the participant goes on waiting.
func Start(ctx context.Context, o Options) (*Participant, error) {
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
	source, err := openRules(o)
	if err != nil {
		return nil, err
	}
	if !o.alone() {
		if m.link, err = openLink(o); err != nil {
			return nil, err
		}
	}
	m.blocks = newBlockSource(o, m.link, m.rules, m.caches.blocks)
	m.blocks.restore()
	if source == nil {
		source = newBucket(o, m.link, m.caches.rules)
	}
	if err := source.begin(m.rules); err != nil {
		m.link.close()
		return nil, err
	}
	m.start(source, newAnnouncer(o, m))
	if err := m.await(ctx); err != nil && (o.Begin == nil || ctx.Err() == nil) {
		_ = m.Close() // nothing has been decided
		return nil, err
	}
	return m, nil
}

// newChecker returns what makes the checker of the first rules.
func (m *Participant) newChecker(o Options) func(*rules.Set, uint64) (*check.Checker, error) {
	return func(set *rules.Set, revision uint64) (*check.Checker, error) {
		c := o.Checker
		if c.Rules, c.Revision = set, revision; m.link != nil {
			c.Link = m.link
		}
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
	if m.link != nil {
		m.connecting = begin(m.link.run)
		m.announcing = begin(a.run)
		m.watchingBlocks = begin(m.blocks.watch)
	}
	m.saving = begin(m.caches.save)
	m.reporting = begin(m.report)
	m.watchingRules = begin(func(ctx context.Context) { source.watch(ctx, m.rules) })
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

// await waits until the checker may decide.
func (m *Participant) await(ctx context.Context) error {
	select {
	case <-m.ready:
		return nil
	case <-m.reported:
		return m.failed
	case <-ctx.Done():
		return fmt.Errorf("offpath: no checker; rules: %v: %w", m.rules.now(), ctx.Err())
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

// Checker returns the checker, which stays the same while rules and blocks change. It goes on
// deciding after Close, and reports nothing then. It is nil while there are no rules, which is only
// possible if Options.Begin is set.
func (m *Participant) Checker() *check.Checker { return m.rules.checker.Load() }

// Conn returns the present connection to NATS. It stays the participant's, which replaces it when
// the library closes it for good. It is nil if Options.NATS is "none".
func (m *Participant) Conn() *nats.Conn {
	if m.link == nil {
		return nil
	}
	return m.link.conn()
}

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
		m.link.close()
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

// end waits until it has ended. A nil one has.
func (t *task) end() {
	if t == nil {
		return
	}
	t.stop()
	<-t.ended
}

func newCaches(o Options) caches {
	if o.alone() {
		return caches{}
	}
	c := caches{blocks: newCache(o.CacheDir, blocks.Name(o.Namespace), o.Log)}
	if o.Rules == "" && o.RulesFile == "" {
		c.rules = newCache(o.CacheDir, natssource.Name(o.Namespace), o.Log)
	}
	return c
}

// nameOf is the checker's name on NATS: its epoch, below Options.Name if there is one.
func nameOf(o Options) string { return natsbus.CheckerName(o.Name, o.Checker.Epoch) }
