package main

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/offpath-io/offpath/internal/blocks"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/signature"
)

// firstBlocks is how long a start waits for the blocks that are there, so that a checker does not let pass whom the others keep out.
const firstBlocks = time.Second

// blocking brings the fleet's blocks to the checker.
type blocking struct {
	at       *lifeline
	living   *living
	verifier *signature.Verifier // nil: unsigned blocks count
	kept     *cached
	log      *slog.Logger

	once  sync.Once
	told  chan struct{} // closed when it is known which blocks there are, or why not
	count atomic.Int64
	up    atomic.Bool
}

// newBlocking returns one for the namespace's bucket, which need not be there.
func newBlocking(at *lifeline, l *living, verifier *signature.Verifier, kept *cached, log *slog.Logger) *blocking {
	return &blocking{at: at, living: l, verifier: verifier, kept: kept, log: log, told: make(chan struct{})}
}

// start puts the blocks in force that were kept, begins to watch, and waits until the bucket's are
// in force, but not for long.
func (b *blocking) start(ctx context.Context) *watching {
	if list := b.kept.loadBlocks(b.at.namespace, b.verifier, b.living.fleetNow()); len(list) > 0 {
		b.put(list)
	}
	w := watch(ctx, b.watch)
	timer := time.NewTimer(firstBlocks)
	defer timer.Stop()
	select {
	case <-b.told:
	case <-timer.C:
	case <-ctx.Done():
	}
	return w
}

// watch follows the bucket, by one connection after the other.
func (b *blocking) watch(ctx context.Context) {
	err := b.at.each(ctx, func(ctx context.Context, s *strand) error {
		o := blocks.Options{Now: b.living.fleetNow, Verifier: b.verifier}
		bucket, err := blocks.New(s.conn, b.at.namespace, o)
		if err == nil {
			bucket.Watch(ctx, b.use, b.trouble)
		}
		return err
	})
	if err != nil { // of a namespace that makes no bucket's name
		b.trouble(err)
	}
}

// use takes the blocks there are: so they can be read.
func (b *blocking) use(list []blocks.Block) {
	b.up.Store(true)
	b.put(list)
	b.kept.saveBlocks(b.at.namespace, b.verifier, list)
	b.once.Do(func() { close(b.told) })
}

// put puts blocks in force.
func (b *blocking) put(list []blocks.Block) {
	blocks := make([]check.Block, len(list))
	for i, e := range list {
		blocks[i] = check.Block{Rule: e.Rule, Key: e.Key, Until: e.Until}
	}
	b.living.block(blocks)
	if before := b.count.Swap(int64(len(list))); before != int64(len(list)) {
		b.log.Info("keys are blocked", "keys", len(list))
	}
}

// trouble takes what the watch says of itself. The blocks that were there stay until they end.
func (b *blocking) trouble(err error) {
	b.up.Store(err == nil)
	switch {
	case err == nil:
		return
	case errors.Is(err, blocks.ErrNoBucket): // nobody has ever blocked a key
		b.log.Debug("no blocks", "error", err)
	default:
		b.log.Info("cannot be told of blocks", "error", err)
	}
	if b.bucketIsMissing(err) {
		b.once.Do(func() { close(b.told) })
	}
}

// bucketIsMissing says whether there is nothing to wait for.
func (b *blocking) bucketIsMissing(err error) bool {
	return errors.Is(err, blocks.ErrNoBucket) || errors.Is(err, nats.ErrNoResponders)
}

// metrics are what Prometheus is told.
func (b *blocking) metrics() []prometheus.Collector {
	return []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "offpath_blocked_keys", Help: "Keys that operators keep out at present."},
			func() float64 { return float64(b.count.Load()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "offpath_blocks_source_up", Help: "1 while the bucket of blocks can be read, else 0."},
			func() float64 { return oneIf(b.up.Load()) }),
	}
}

// block puts blocks in force, in place of those before.
func (l *living) block(list []check.Block) {
	l.blocksMu.Lock()
	defer l.blocksMu.Unlock()
	l.blocks = list
	if at := l.at.Load(); at != nil {
		at.checker.SetBlocks(list)
	}
}

// work lets a checker begin, with the blocks that there are.
func (l *living) work(at *atWork) {
	l.blocksMu.Lock()
	defer l.blocksMu.Unlock()
	at.checker.SetBlocks(l.blocks)
	l.at.Store(at)
}
