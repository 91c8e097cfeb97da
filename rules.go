package offpath

import (
	"context"
	"fmt"
	"os"
	"sync"

	"github.com/offpath-io/offpath/internal/filewatch"
	"github.com/offpath-io/offpath/internal/natssource"
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/rules/envoyrules"
	"github.com/offpath-io/offpath/pkg/signature"
)

// ruleSource is where rules come from.
type ruleSource interface {
	// begin offers the rules that are there at once; an error is that they are not good.
	begin(r *reloadable) error
	// watch offers rules when they change, until ctx is done.
	watch(ctx context.Context, r *reloadable)
	// heard is closed when the rules in force are known to be the newest, or why they are not.
	heard() <-chan struct{}
}

// ruleFiles are a file of rules, or all of a directory, in this format or that of
// envoyproxy/ratelimit.
type ruleFiles struct {
	path  string
	isDir bool
	first []filewatch.File
}

// openFiles reads the file or the directory, so that a missing or bad one is an error before
// anything starts.
func openFiles(path string) (*ruleFiles, error) {
	first, isDir, err := filewatch.ReadPath(path, envoyrules.Suffixes, rules.MaxSize)
	if err != nil {
		return nil, loading(err)
	}
	if _, _, err := envoyrules.ReadFiles(texts(first)...); err != nil {
		return nil, err
	}
	return &ruleFiles{path, isDir, first}, nil
}

// texts are the files as they are read.
func texts(files []filewatch.File) []envoyrules.File {
	all := make([]envoyrules.File, len(files))
	for i, f := range files {
		all[i] = envoyrules.File{Name: f.Path, Data: f.Data}
	}
	return all
}

func loading(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("load rules: %w", err)
}

// revisionOf is when the newest file was written, or the directory, which is when one was added or
// removed, in Unix milliseconds: so the checker with the newer files has the higher revision, and a
// restart changes nothing. 1 for files from before 1970.
func (f *ruleFiles) revisionOf(files []filewatch.File) uint64 {
	newest := int64(1)
	for _, one := range files {
		newest = max(newest, one.Modified.UnixMilli())
	}
	if info, err := os.Stat(f.path); err == nil && f.isDir {
		newest = max(newest, info.ModTime().UnixMilli())
	}
	return uint64(newest)
}

func (f *ruleFiles) begin(r *reloadable) error {
	revision := f.revisionOf(f.first)
	return r.offer(revision, revision, texts(f.first)...)
}

func (f *ruleFiles) watch(ctx context.Context, r *reloadable) {
	o := filewatch.Options{MaxSize: rules.MaxSize}
	changed := func(files []filewatch.File) {
		revision := f.revisionOf(files)
		_ = r.offer(revision, revision, texts(files)...) // logs errors
	}
	trouble := func(err error) { r.trouble(loading(err)) }
	if f.isDir {
		filewatch.WatchDir(ctx, f.path, envoyrules.Suffixes, f.first, o, changed, trouble)
		return
	}
	filewatch.Watch(ctx, []string{f.path}, f.first, o, changed, trouble)
}

// heard is closed: begin has read the files.
func (f *ruleFiles) heard() <-chan struct{} {
	heard := make(chan struct{})
	close(heard)
	return heard
}

// bucket is the fleet's bucket of rules, which need not be there yet. Until it has told of a set,
// the one in the cache is in force.
type bucket struct {
	link     *link
	verifier *signature.Verifier
	cache    *cache

	revision, order uint64 // of the last set that was offered
	once            sync.Once
	known           chan struct{}
}

func newBucket(o Options, l *link, c *cache) *bucket {
	return &bucket{link: l, verifier: o.RulesVerifier, cache: c, known: make(chan struct{})}
}

func (b *bucket) begin(r *reloadable) error {
	if e, ok := b.cache.loadRules(b.link.namespace, b.verifier); ok {
		b.revision, b.order = e.Revision, e.Order()
		_ = r.offer(b.revision, b.order, envoyrules.File{Data: e.Data}) // logs errors
	}
	return nil
}

func (b *bucket) watch(ctx context.Context, r *reloadable) {
	trouble := func(err error) {
		r.trouble(err)
		b.hear()
	}
	offer := func(e natssource.Entry) {
		defer b.hear()
		if e.Revision == b.revision && e.Order() == b.order { // known from the cache or before
			r.trouble(nil)
			return
		}
		b.revision, b.order = e.Revision, e.Order()
		if r.offer(b.revision, b.order, envoyrules.File{Data: e.Data}) == nil { // logs errors
			b.cache.saveRules(e)
		}
	}
	err := b.link.each(ctx, func(ctx context.Context, s *session) error {
		o := natssource.Options{Verifier: b.verifier}
		bucket, err := natssource.New(s.conn, b.link.namespace, o)
		if err == nil {
			bucket.Watch(ctx, offer, trouble)
		}
		return err
	})
	if err != nil { // the namespace makes no bucket's name
		r.trouble(err)
	}
}

func (b *bucket) hear() { b.once.Do(func() { close(b.known) }) }

func (b *bucket) heard() <-chan struct{} { return b.known }
