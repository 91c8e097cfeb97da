package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/offpath-io/offpath/internal/blocks"
	"github.com/offpath-io/offpath/internal/diskcache"
	"github.com/offpath-io/offpath/internal/natssource"
	"github.com/offpath-io/offpath/pkg/signature"
)

// saveEvery is the least time between two writes of one file: who blocks many keys writes many
// times.
const saveEvery = time.Second

// cached is a bucket's file in --cache-dir. Its methods do nothing on a nil one, which is a checker
// without that directory. What cannot be read or written is logged and counted: a checker works
// without its cache.
type cached struct {
	file   diskcache.File
	bucket string // for the metrics
	log    *slog.Logger
	dirty  chan struct{} // has one element while there is something to save

	mu       sync.Mutex
	next     func() ([]diskcache.Value, error) // what to save
	saved    time.Time                         // zero: there is no file, or not a good one
	revision uint64                            // of the rules in it, 0 for none
	failures int64
}

// newCached returns the file of a bucket, nil if there is no directory for it.
func newCached(dir, name, bucket string, log *slog.Logger) *cached {
	if dir == "" {
		return nil
	}
	file := diskcache.New(dir, name)
	return &cached{file: file, bucket: bucket, log: log.With("cache", file.Path()), dirty: make(chan struct{}, 1)}
}

// load returns what was saved, nothing if there is no good file.
func (c *cached) load() (content diskcache.Content) {
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
		c.isSaved(content.Values, content.Saved)
	}
	return content
}

func (c *cached) fail(what string, err error) {
	c.mu.Lock()
	c.failures++
	c.mu.Unlock()
	c.log.Error(what, "error", err)
}

// save has what is returned then saved soon, in place of what was to be saved before. It does not
// wait.
func (c *cached) save(values func() ([]diskcache.Value, error)) {
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

// start begins to save; when it is closed, everything has been saved.
func (c *cached) start(ctx context.Context) *watching {
	return watch(ctx, func(ctx context.Context) {
		if c == nil {
			return
		}
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
	})
}

func (c *cached) write() {
	c.mu.Lock()
	values := c.next
	c.mu.Unlock()
	list, err := values()
	now := time.Now()
	if err == nil {
		err = c.file.Save(list, now)
	}
	if err != nil {
		c.fail("what is in force is not in the cache: a checker that starts while NATS is away will miss it", err)
		return
	}
	c.isSaved(list, now)
}

// isSaved notes what there is in the file.
func (c *cached) isSaved(values []diskcache.Value, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.saved, c.revision = at, 0
	for _, v := range values {
		c.revision = max(c.revision, v.Revision)
	}
}

// saveRules keeps a set that is in force.
func (c *cached) saveRules(e natssource.Entry) {
	c.save(func() ([]diskcache.Value, error) {
		return []diskcache.Value{{Key: natssource.Key, Revision: e.Revision, Written: e.Created, Raw: e.Raw}}, nil
	})
}

// loadRules returns the set that was kept; ok is false if there is none that counts.
func (c *cached) loadRules(namespace string, v *signature.Verifier) (e natssource.Entry, ok bool) {
	content := c.load()
	for _, kept := range content.Values {
		before := natssource.Entry{Revision: kept.Revision, Created: kept.Written, Raw: kept.Raw}
		e, err := natssource.Restore(namespace, v, before)
		if err != nil {
			c.fail("rules of the cache do not count", err)
			continue
		}
		c.log.Info("starting with rules of the cache",
			"revision", e.Revision, "age", age(content.Saved), "signed_by", e.SignedBy)
		return e, true
	}
	return e, false
}

// saveBlocks keeps the blocks that are in force.
func (c *cached) saveBlocks(namespace string, v *signature.Verifier, list []blocks.Block) {
	c.save(func() ([]diskcache.Value, error) {
		stored, err := blocks.Snapshot(namespace, v, list, time.Now())
		values := make([]diskcache.Value, len(stored))
		for i, s := range stored {
			values[i] = diskcache.Value{Key: s.Name, Written: s.Written, Raw: s.Raw}
		}
		return values, err
	})
}

// loadBlocks returns the blocks that were kept and have not ended.
func (c *cached) loadBlocks(namespace string, v *signature.Verifier, now time.Time) []blocks.Block {
	content := c.load()
	stored := make([]blocks.Stored, len(content.Values))
	for i, kept := range content.Values {
		stored[i] = blocks.Stored{Name: kept.Key, Written: kept.Written, Raw: kept.Raw}
	}
	list, refused := blocks.Restore(namespace, v, stored, now)
	if len(refused) > 0 { // one line: there may be thousands
		c.fail("blocks of the cache do not count", fmt.Errorf("%w (the first of %d)", refused[0], len(refused)))
	}
	if len(list) > 0 {
		c.log.Info("starting with blocks of the cache", "keys", len(list), "age", age(content.Saved))
	}
	return list
}

// age is for people.
func age(saved time.Time) time.Duration { return time.Since(saved).Round(time.Second) }

// cacheMetrics tells Prometheus what a checker that starts while NATS is away would begin with.
type cacheMetrics struct{ rules, blocks *cached } // nil ones are not kept

var (
	cacheRevisionDesc = describe("cache_rules_revision", "Revision of the rules in --cache-dir. 0 while there are none.")
	cacheSavedDesc    = describe("cache_saved_timestamp_seconds",
		"When the bucket's values in --cache-dir were written, as Unix time. 0 while there are none.", "bucket")
	cacheFailuresDesc = describe("cache_failures_total",
		"Times that the bucket's values in --cache-dir could not be read or written, or did not count.", "bucket")
)

// Describe sends nothing, which lets the collector say at each scrape what there is.
func (m cacheMetrics) Describe(descs chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, descs) }

// Collect sends one snapshot.
func (m cacheMetrics) Collect(out chan<- prometheus.Metric) {
	revision := uint64(0)
	for _, c := range []*cached{m.rules, m.blocks} {
		if c == nil {
			continue
		}
		c.mu.Lock()
		revision = max(revision, c.revision)
		saved, failures := float64(c.saved.UnixMilli())/1000, float64(c.failures)
		c.mu.Unlock()
		out <- prometheus.MustNewConstMetric(cacheSavedDesc, prometheus.GaugeValue, max(saved, 0), c.bucket)
		out <- prometheus.MustNewConstMetric(cacheFailuresDesc, prometheus.CounterValue, failures, c.bucket)
	}
	if m.blocks != nil {
		out <- prometheus.MustNewConstMetric(cacheRevisionDesc, prometheus.GaugeValue, float64(revision))
	}
}
