package offpath

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"

	"github.com/offpath-io/offpath/internal/blocks"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/signature"
)

// BlocksState says which blocks are in force.
type BlocksState struct {
	// Keys is how many keys are blocked.
	Keys int
	// Up says that the bucket of blocks can be read. Those that were read last stay while it
	// cannot.
	Up bool
}

// blockSource brings the fleet's blocks to the checker.
type blockSource struct {
	link     *link
	rules    *reloadable
	verifier *signature.Verifier
	cache    *cache
	log      *slog.Logger

	once  sync.Once
	known chan struct{} // closed when it is known which blocks there are, or why not
	count atomic.Int64
	up    atomic.Bool
}

// newBlockSource returns that of the namespace's bucket, which need not be there; with a nil link,
// one that has no blocks.
func newBlockSource(o Options, l *link, r *reloadable, c *cache) *blockSource {
	b := &blockSource{
		link: l, rules: r, verifier: o.BlocksVerifier, cache: c, log: o.Log,
		known: make(chan struct{}),
	}
	if l == nil {
		b.hear()
	}
	return b
}

func (b *blockSource) state() BlocksState { return BlocksState{int(b.count.Load()), b.up.Load()} }

// restore puts the blocks of the cache in force.
func (b *blockSource) restore() {
	if b.link == nil {
		return
	}
	list := b.cache.loadBlocks(b.link.namespace, b.verifier, b.rules.fleetNow())
	if len(list) > 0 {
		b.put(list)
	}
}

// watch follows the bucket, until ctx is done.
func (b *blockSource) watch(ctx context.Context) {
	err := b.link.each(ctx, func(ctx context.Context, s *session) error {
		o := blocks.Options{Now: b.rules.fleetNow, Verifier: b.verifier}
		bucket, err := blocks.New(s.conn, b.link.namespace, o)
		if err == nil {
			bucket.Watch(ctx, b.use, b.trouble)
		}
		return err
	})
	if err != nil { // the namespace makes no bucket's name
		b.trouble(err)
	}
}

// use takes the bucket's blocks.
func (b *blockSource) use(list []blocks.Block) {
	b.up.Store(true)
	b.put(list)
	b.cache.saveBlocks(b.link.namespace, b.verifier, list)
	b.hear()
}

// put puts blocks in force.
func (b *blockSource) put(list []blocks.Block) {
	all := make([]check.Block, len(list))
	for i, one := range list {
		all[i] = check.Block{Rule: one.Rule, Key: one.Key, Until: one.Until}
	}
	b.rules.block(all)
	if before := b.count.Swap(int64(len(list))); before != int64(len(list)) {
		b.log.Info("keys are blocked", "keys", len(list))
	}
}

// trouble takes why the bucket cannot be read. The blocks that were there stay until they end.
func (b *blockSource) trouble(err error) {
	b.up.Store(err == nil)
	switch {
	case err == nil:
		return
	case errors.Is(err, blocks.ErrNoBucket): // nobody has ever blocked a key
		b.log.Debug("no blocks", "error", err)
		b.hear()
	default:
		b.log.Info("blocks cannot be read", "error", err)
		if errors.Is(err, nats.ErrNoResponders) { // without JetStream there is nothing to wait for
			b.hear()
		}
	}
}

func (b *blockSource) hear() { b.once.Do(func() { close(b.known) }) }
