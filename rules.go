package offpath

import (
	"context"
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

// openRules reads the rules of the options, so that bad ones are an error before anything starts.
// It returns nil if the options have none.
func openRules(o Options) (ruleSource, error) {
	switch {
	case o.Rules != "":
		return openText(o.Rules)
	case o.RulesFile != "":
		return openFiles(o.RulesFile)
	}
	return nil, nil
}

// text are rules of the options, in this format or that of envoyproxy/ratelimit.
type text []envoyrules.File

func openText(rules string) (ruleSource, error) {
	t := text{{Data: []byte(rules)}}
	if _, _, err := envoyrules.ReadFiles(t...); err != nil {
		return nil, fmt.Errorf("offpath: Options.Rules: %w", err)
	}
	return t, nil
}

func (t text) begin(r *reloadable) error {
	revision := executableRevision()
	return r.offer(revision, revision, t...)
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

// revisionOf is the revision of rules that were written at a time, in Unix milliseconds; 1 before
// 1970.
func revisionOf(written time.Time) uint64 { return uint64(max(written.UnixMilli(), 1)) }

// atOnce is closed: begin has read the rules.
var atOnce = func() <-chan struct{} {
	closed := make(chan struct{})
	close(closed)
	return closed
}()

// ruleFiles are a file of rules, or all of a directory, in this format or that of
// envoyproxy/ratelimit.
type ruleFiles struct {
	path  string
	isDir bool
	first []filewatch.File
}

// openFiles reads the file or the directory, so that a missing or bad one is an error before
// anything starts.
func openFiles(path string) (ruleSource, error) {
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
// removed: so the checker with the newer files has the higher revision, and a restart changes
// nothing.
func (f *ruleFiles) revisionOf(files []filewatch.File) uint64 {
	newest := uint64(1)
	for _, one := range files {
		newest = max(newest, revisionOf(one.Modified))
	}
	if info, err := os.Stat(f.path); err == nil && f.isDir {
		newest = max(newest, revisionOf(info.ModTime()))
	}
	return newest
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

func (f *ruleFiles) heard() <-chan struct{} { return atOnce }

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
