package offpath

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

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

// openRules reads the rules of the options, so that bad ones are an error before anything starts. It
// returns nil if the options have none.
func openRules(o Options) (ruleSource, error) {
	switch {
	case o.Rules != "":
		return openText(o.Rules)
	case o.RulesFile != "":
		return openFile(o.RulesFile)
	}
	return nil, nil
}

// text are rules of the options, in this format or that of envoyproxy/ratelimit.
type text string

func openText(t string) (ruleSource, error) {
	if _, err := envoyrules.Read([]byte(t)); err != nil {
		return nil, fmt.Errorf("offpath: Options.Rules: %w", err)
	}
	return text(t), nil
}

func (t text) begin(r *reloadable) error {
	revision := executableRevision()
	return r.offer(revision, revision, []byte(t))
}

func (text) watch(context.Context, *reloadable) {}

func (text) heard() <-chan struct{} { return atOnce }

// executableRevision is the revision of rules that are part of the program: when its file was
// written. All checkers that run one image have the same, and a newer image has a higher one. It is
// 1 if the file cannot be found.
func executableRevision() uint64 {
	path, err := os.Executable()
	if err != nil {
		return 1
	}
	info, err := os.Stat(path)
	if err != nil {
		return 1
	}
	return revisionOf(info.ModTime())
}

// atOnce is closed: begin has read the rules.
var atOnce = func() <-chan struct{} {
	closed := make(chan struct{})
	close(closed)
	return closed
}()

// file is a file of rules, in this format or that of envoyproxy/ratelimit.
type file struct {
	path  string
	first filewatch.File
}

func openFile(path string) (ruleSource, error) {
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
func revisionOf(written time.Time) uint64 { return uint64(max(written.UnixMilli(), 1)) }

func (f *file) begin(r *reloadable) error {
	revision := revisionOf(f.first.Modified)
	return r.offer(revision, revision, f.first.Data)
}

func (f *file) watch(ctx context.Context, r *reloadable) {
	o := filewatch.Options{MaxSize: rules.MaxSize}
	filewatch.Watch(ctx, []string{f.path}, []filewatch.File{f.first}, o,
		func(files []filewatch.File) {
			revision := revisionOf(files[0].Modified)
			_ = r.offer(revision, revision, files[0].Data) // logs errors
		},
		func(err error) { r.trouble(loading(err)) })
}

func (f *file) heard() <-chan struct{} { return atOnce }

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
