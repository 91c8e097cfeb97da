// Package console is what people look at a fleet through: a page, an API that it uses, and the same
// for commands over NATS.
//
// Every part of a fleet tells how it is every second (package status). A [Console] listens, and so
// has the whole fleet in view, whichever aggregator it is in. It keeps a picture of who is there
// and what was last heard of them (picture.go), and a short past of it to draw (series.go). What
// only an aggregator can do is done through its worker: to look up a key, and to give its hits back
// (keys.go). Blocks are written to their bucket, which all checkers watch (operator.go). Who
// changes anything needs a token, and is written down (audit.go).
//
// The page is in web; it is embedded, and needs nothing from elsewhere.
package console

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/offpath-io/offpath/internal/blocks"
	"github.com/offpath-io/offpath/internal/natssource"
	"github.com/offpath-io/offpath/internal/status"
	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/signature"
)

// Worker is what a console needs of an aggregator.
type Worker interface {
	Lookup(ctx context.Context, rule storage.Rule, key string) (aggregate.KeyState, error)
	Reset(ctx context.Context, rule storage.Rule, key string) (before, after aggregate.KeyState, err error)
	Stats() aggregate.Stats
	Ready() error
	// Now is the fleet's time, by which blocks begin and end.
	Now() time.Time
}

// Options make a Console. All but Hosts, verifiers and keys, SetRules, Heard and Log are required.
type Options struct {
	Conn      *nats.Conn
	Namespace string
	Worker    Worker
	// Tally is what the worker's applied folds are counted in.
	Tally *Tally
	// Tokens gives those of who may change something at present; without any nobody may.
	Tokens func() Tokens
	// Hosts are the names by which it may be asked for, beside localhost and addresses.
	Hosts Hosts
	// RulesVerifier and EntriesVerifier say which rules and blocks count; nil: all that are in the
	// buckets. EntriesKey gives the key that signs blocks; it needs the verifier, which needs it
	// for anything to be blocked.
	RulesVerifier, EntriesVerifier *signature.Verifier
	EntriesKey                     func() *signature.Key
	// RulesKey gives the key that signs rules; nil: none, so rules that are signed cannot be
	// written here.
	RulesKey func() *signature.Key
	// SetRules is told of the rules in the bucket whenever they change. They count, and what
	// statuses say of them does not. Nil: rules are not from the bucket, and statuses are believed.
	SetRules func([]storage.Rule)
	// Heard is told of each checker's status, by one goroutine, and must not wait. Nil: nobody is.
	Heard func(status.Checker)
	Log   *slog.Logger
}

// Console has a fleet in view. It is safe for concurrent use.
type Console struct {
	o        Options
	part     status.Part
	picture  *picture
	rules    *ruleBook
	bucket   *blocks.Bucket
	operator *Operator
	diary    *diary

	mu     sync.Mutex
	blocks []blocks.Block
	why    string // blocks cannot be read, "" if they can

	refusals int64 // of values that are not signed, when they were put right last; keepBucket's own

	stopping chan struct{}
	shown    shown
}

// tick is how often the page is told anew, and a silent part noticed.
const tick = time.Second

// New returns a console, which sees nothing until Run.
func New(o Options) (*Console, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	bucket, err := blocks.New(o.Conn, o.Namespace, blocks.Options{
		Now: o.Worker.Now, Verifier: o.EntriesVerifier, Key: o.EntriesKey,
	})
	if err != nil {
		return nil, err
	}
	c := &Console{
		o: o, part: ownPart(), picture: newPicture(time.Now), rules: newRuleBook(), bucket: bucket,
		why: "not read yet", stopping: make(chan struct{}),
	}
	c.picture.fleet = o.Worker.Now
	c.diary = newDiary(o.Conn, o.Namespace)
	c.operator = NewOperator(bucket, o.Worker.Now, func(ctx context.Context, r Record) error {
		o.Log.Info("audit", r.attributes()...)
		return WriteRecord(ctx, o.Conn, o.Namespace, r)
	})
	return c, nil
}

// rulesRetry is after how long the rules' bucket is looked for again, which fleets with rules in
// files do not have.
const rulesRetry = 2 * time.Second

// Run watches the fleet, and answers commands, until ctx is done.
func (c *Console) Run(ctx context.Context) error {
	defer close(c.stopping)
	rules, err := natssource.New(c.o.Conn, c.o.Namespace, natssource.Options{
		Retry: rulesRetry, Verifier: c.o.RulesVerifier,
	})
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return status.Listen(ctx, c.o.Conn, c.o.Namespace, c.hear, c.picture.aggregator)
	})
	group.Go(func() error {
		status.PublishAggregator(ctx, c.o.Conn, c.o.Namespace, c.own)
		return nil
	})
	group.Go(func() error { rules.Watch(ctx, c.takeRules, c.rules.trouble); return nil })
	group.Go(func() error { c.bucket.Watch(ctx, c.takeBlocks, c.troubleOfBlocks); return nil })
	group.Go(func() error { return c.keepBucket(ctx) })
	group.Go(func() error { return c.diary.read(ctx) })
	group.Go(func() error { return c.serveCommands(ctx) })
	group.Go(func() error { return c.listen(ctx) })
	group.Go(func() error { return c.keepHistory(ctx) })
	return group.Wait()
}

// hear takes in a checker's status.
func (c *Console) hear(s status.Checker) {
	c.picture.checker(s)
	if c.o.Heard != nil {
		c.o.Heard(s)
	}
}

// forgetEvery is how often silent parts are forgotten.
const forgetEvery = 5 * time.Second

// listen adds to the history that somebody listens, and forgets who is silent, until ctx is done.
func (c *Console) listen(ctx context.Context) error {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	forgot, last := time.Now(), c.o.Worker.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		now := c.o.Worker.Now()
		if c.o.Conn.IsConnected() && now.Sub(last) < forgetAfter { // the fleet's time may step once
			c.picture.history.Listen(last, now)
		}
		last = now
		if time.Since(forgot) >= forgetEvery {
			forgot = time.Now()
			c.picture.forget()
		}
	}
}

// takeRules takes a set of the bucket, and tells of it if it is a good one.
func (c *Console) takeRules(e natssource.Entry) {
	list, err := c.rules.take(e)
	if err != nil || c.o.SetRules == nil {
		return
	}
	c.o.SetRules(list)
	c.o.Log.Info("reports are held against the bucket's rules", "revision", e.Revision, "counters", len(list))
}

// takeBlocks takes the blocks there are: so they can be read, of which the watch says nothing else
// where there was no trouble before.
func (c *Console) takeBlocks(list []blocks.Block) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.blocks, c.why = list, ""
}

func (c *Console) troubleOfBlocks(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.why = ""
	if err != nil && !errors.Is(err, blocks.ErrNoBucket) {
		c.why = err.Error()
	}
}

// block returns the block of a key, if there is one.
func (c *Console) block(rule, key string) (blocks.Block, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.blocks {
		if e.Rule == rule && e.Key == key && !e.Ended(c.o.Worker.Now()) {
			return e, true
		}
	}
	return blocks.Block{}, false
}

const (
	// sweepEvery is how often what has ended is taken out of the bucket.
	sweepEvery = 10 * time.Minute
	// makeAgain is how often either is tried again that has failed, such as the bucket's making
	// while there is no JetStream.
	makeAgain = 10 * time.Second
	// bucketTimeout is how long either may take.
	bucketTimeout = 5 * time.Second
)

// keepBucket makes the bucket of blocks, so that checkers watch it before there is a first one, and
// sweeps it.
func (c *Console) keepBucket(ctx context.Context) error {
	made, said := false, ""
	for {
		wait, err := sweepEvery, error(nil)
		if c.o.Conn.IsConnected() {
			asking, cancel := context.WithTimeout(ctx, bucketTimeout)
			if made {
				_, err = c.bucket.Sweep(asking, c.o.Worker.Now())
			} else {
				err = c.bucket.Make(asking)
				made = err == nil
			}
			cancel()
		}
		if err != nil && ctx.Err() == nil && said != err.Error() {
			said = err.Error()
			what := "keys cannot be blocked"
			if made {
				what = "blocks that have ended stay in their bucket"
			}
			c.o.Log.Info(what, "error", err)
		}
		if err != nil {
			wait = makeAgain
		}
		if !made {
			wait = makeAgain
			if !c.o.Conn.IsConnected() {
				wait = time.Second
			}
		}
		if !c.pause(ctx, wait) {
			return nil
		}
	}
}

// pause waits, but not after somebody without a key has written into the bucket: what counts is put
// back at once, or as soon as there is a connection. It returns false when ctx is done.
func (c *Console) pause(ctx context.Context, wait time.Duration) bool {
	v, end := c.o.EntriesVerifier, time.Now().Add(wait)
	for ctx.Err() == nil && time.Now().Before(end) {
		select {
		case <-ctx.Done():
		case <-time.After(min(tick, time.Until(end))):
		}
		if v == nil || !c.o.Conn.IsConnected() {
			continue
		}
		if n := v.Refusals(); n != c.refusals {
			c.refusals = n
			break
		}
	}
	return ctx.Err() == nil
}

// own is what this console's aggregator says of itself.
func (c *Console) own() status.Aggregator {
	s := c.o.Worker.Stats()
	a := status.Aggregator{
		Part: c.part, Ready: true, Waiting: s.Waiting, Reports: s.Reports, Folds: s.Batches, Errors: s.ApplyErrors + s.LeaseErrors,
		Checkers: s.Checkers, Shards: s.Shards,
	}
	if err := c.o.Worker.Ready(); err != nil {
		a.Ready, a.Problem = false, fmt.Sprintf("the store: %.500v", err)
	}
	if l := s.LastLoss; l.At > 0 {
		a.Loss = &status.Loss{At: time.Unix(0, l.At), Shard: l.Shard, Size: l.String()}
	}
	c.o.Tally.fill(&a)
	return a
}
