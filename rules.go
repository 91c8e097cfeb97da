package offpath

import (
	"context"
	"errors"
	"fmt"
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

// file is a file of rules, in this format or that of envoyproxy/ratelimit.
type file struct {
	path  string
	first filewatch.File
}

// openFile reads the file, so that a missing or bad one is an error before anything starts.
func openFile(path string) (*file, error) {
	first, err := filewatch.Read(path, rules.MaxSize)
	if err != nil {
		return nil, loading(err)
	}
	if _, err := envoyrules.Read(first.Data); err != nil {
		if refusal, ok := errors.AsType[*rules.Error](err); ok {
			refusal.File = path
		}
		return nil, err
	}
	return &file{path, first}, nil
}

func loading(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("load rules: %w", err)
}

// revisionOf is when the file was written, in Unix milliseconds: so the checker with the newer file
// has the higher revision, and a restart changes nothing. 1 for a file from before 1970.
func revisionOf(f filewatch.File) uint64 { return uint64(max(f.Modified.UnixMilli(), 1)) }

func (f *file) begin(r *reloadable) error {
	revision := revisionOf(f.first)
	return r.offer(revision, revision, f.first.Data)
}

func (f *file) watch(ctx context.Context, r *reloadable) {
	o := filewatch.Options{MaxSize: rules.MaxSize}
	filewatch.Watch(ctx, []string{f.path}, []filewatch.File{f.first}, o,
		func(files []filewatch.File) {
			revision := revisionOf(files[0])
			_ = r.offer(revision, revision, files[0].Data) // logs errors
		},
		func(err error) { r.trouble(loading(err)) })
}

// heard is closed: begin has read the file.
func (f *file) heard() <-chan struct{} {
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
		_ = r.offer(b.revision, b.order, e.Data) // logs errors
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
		if r.offer(b.revision, b.order, e.Data) == nil { // logs errors
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
