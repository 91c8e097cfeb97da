package offpath

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"time"

	"github.com/offpath-io/offpath/internal/blocks"
	"github.com/offpath-io/offpath/internal/diskcache"
	"github.com/offpath-io/offpath/internal/natssource"
	"github.com/offpath-io/offpath/pkg/signature"
)

// saveEvery is the least time between two writes of one file: an operator who blocks many keys
// writes many times.
const saveEvery = time.Second

// CacheState says what Options.CacheDir has of one bucket.
type CacheState struct {
	// Saved is when the file was written; zero: there is no file, or not a good one.
	Saved time.Time
	// Revision is the bucket's of the rules in it, 0 for none.
	Revision uint64
	// Failures counts reads and writes that failed, and values that did not count.
	Failures int64
}

// caches are the files of the buckets; nil ones are not kept.
type caches struct{ rules, blocks *cache }

// save saves what changes, until ctx is done and everything has been saved.
func (c caches) save(ctx context.Context) {
	var saving sync.WaitGroup
	for _, one := range []*cache{c.rules, c.blocks} {
		if one != nil {
			saving.Go(func() { one.run(ctx) })
		}
	}
	saving.Wait()
}

// cache is a bucket's file in Options.CacheDir. Its methods do nothing on a nil one. Failures are
// logged and counted: a checker works without its cache.
type cache struct {
	file  diskcache.File
	log   *slog.Logger
	dirty chan struct{} // has one element while there is something to save

	mu    sync.Mutex
	next  func() ([]diskcache.Value, error) // what to save
	state CacheState
}

// newCache returns the file of a bucket, nil if there is no directory for it.
func newCache(dir, bucket string, log *slog.Logger) *cache {
	if dir == "" {
		return nil
	}
	file := diskcache.New(dir, bucket)
	return &cache{file: file, log: log.With("cache", file.Path()), dirty: make(chan struct{}, 1)}
}

// load returns what was saved, nothing if there is no good file.
func (c *cache) load() (content diskcache.Content) {
	if c == nil {
		return content
	}
	content, err := c.file.Load()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		c.log.Info("there is no cache yet")
	case err != nil:
		c.fail("the cache is not used", err)
	default:
		c.note(content.Values, content.Saved)
	}
	return content
}

func (c *cache) fail(what string, err error) {
	c.mu.Lock()
	c.state.Failures++
	c.mu.Unlock()
	c.log.Error(what, "error", err)
}

// save has the values saved soon, in place of those that were to be saved before. It does not wait.
func (c *cache) save(values func() ([]diskcache.Value, error)) {
	if c == nil {
		return
	}
	c.mu.Lock()
	c.next = values
	c.mu.Unlock()
	select {
	case c.dirty <- struct{}{}:
	default: // it will be seen
	}
}

// run saves until ctx is done and everything has been saved.
func (c *cache) run(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-c.dirty:
			c.write()
			pause(ctx, saveEvery)
		}
	}
	select {
	case <-c.dirty:
		c.write()
	default:
	}
}

func (c *cache) write() {
	c.mu.Lock()
	values := c.next
	c.mu.Unlock()
	list, err := values()
	now := time.Now()
	if err == nil {
		err = c.file.Save(list, now)
	}
	if err != nil {
		c.fail("what is in force is not in the cache: a start while NATS is away will miss it", err)
		return
	}
	c.note(list, now)
}

// note notes what there is in the file.
func (c *cache) note(values []diskcache.Value, saved time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state.Saved, c.state.Revision = saved, 0
	for _, v := range values {
		c.state.Revision = max(c.state.Revision, v.Revision)
	}
}

// now is what is known of the file; nil if there is none.
func (c *cache) now() *CacheState {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return new(c.state)
}

// saveRules keeps a set that is in force.
func (c *cache) saveRules(e natssource.Entry) {
	c.save(func() ([]diskcache.Value, error) {
		return []diskcache.Value{{
			Key: natssource.Key, Revision: e.Revision, Written: e.Created, Raw: e.Raw,
		}}, nil
	})
}

// loadRules returns the set that was kept; ok is false if there is none that counts.
func (c *cache) loadRules(ns string, v *signature.Verifier) (e natssource.Entry, ok bool) {
	content := c.load()
	for _, kept := range content.Values {
		e, err := natssource.Restore(ns, v, kept)
		if err != nil {
			c.fail("rules of the cache do not count", err)
			continue
		}
		c.log.Info("starting with rules of the cache",
			"revision", e.Revision, "age", age(content), "signed_by", e.SignedBy)
		return e, true
	}
	return e, false
}

// saveBlocks keeps the blocks that are in force.
func (c *cache) saveBlocks(ns string, v *signature.Verifier, list []blocks.Block) {
	c.save(func() ([]diskcache.Value, error) {
		return blocks.Snapshot(ns, v, list, time.Now())
	})
}

// loadBlocks returns the blocks that were kept and have not ended.
func (c *cache) loadBlocks(ns string, v *signature.Verifier, now time.Time) []blocks.Block {
	content := c.load()
	list, refused := blocks.Restore(ns, v, content.Values, now)
	if len(refused) > 0 { // one line: there may be thousands
		err := fmt.Errorf("%w (the first of %d)", refused[0], len(refused))
		c.fail("blocks of the cache do not count", err)
	}
	if len(list) > 0 {
		c.log.Info("starting with blocks of the cache", "keys", len(list), "age", age(content))
	}
	return list
}

// age is for logs.
func age(c diskcache.Content) time.Duration { return time.Since(c.Saved).Round(time.Second) }
