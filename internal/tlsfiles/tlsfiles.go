// Package tlsfiles keeps what daemons read from files to prove who they are, and to know whom they
// talk to: certificates, keys, authorities, passwords. When the files change they are read again,
// and what comes next goes by the new ones: the next handshake of a server, the next connection to
// a server. What the new ones make no sense of is refused, said and counted; the old ones stay in
// force.
//
// Nothing of what the files hold is ever in an error, a log or a [State]: only names and dates are.
package tlsfiles

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/offpath-io/offpath/internal/filewatch"
)

// Files are those of one daemon. They are added by one goroutine, before Run; everything else may
// be called by any.
type Files struct {
	log     *slog.Logger
	options filewatch.Options
	groups  []*group
}

// maxSize is the most bytes that a file may have: more than all of the world's authorities take.
const maxSize = 1 << 20

// New returns none yet. The log says what is loaded again, what is refused, and what is about to
// expire or has.
func New(log *slog.Logger) *Files {
	return &Files{log: log, options: filewatch.Options{MaxSize: maxSize}}
}

// group is files that are good only together.
type group struct {
	name  string
	paths []string
	first []filewatch.File
	// take puts what the files hold in force, or says why not. It returns when the first
	// certificate, or credentials, among them expire, zero if none does.
	take func(files []filewatch.File) (expires time.Time, err error)
	// taken is called when new files are in force; it may be nil.
	taken func()
	// secret is the one among the files that others should not read, "" if there is none.
	secret string

	mu      sync.Mutex
	state   State
	refused error // why what was read last is not in force
	unread  error // why the files cannot be read
}

// State is how it stands with one group of files.
type State struct {
	// Name is the group's, such as "nats" or "nats-password".
	Name string
	// Loads is how often what the files held has been put in force, and Refusals how often it has
	// been refused.
	Loads, Refusals int64
	// Trouble is why the newest files are not in force, nil if they are.
	Trouble error
	// Expires is when the first certificate, or credentials, in force expire, zero if there is
	// nothing that does.
	Expires time.Time
}

// States returns how it stands with each group, in the order in which they were added.
func (f *Files) States() []State {
	states := make([]State, len(f.groups))
	for i, g := range f.groups {
		g.mu.Lock()
		states[i] = g.state
		g.mu.Unlock()
	}
	return states
}

// add reads a group's files, of which one may be secret, and puts them in force. Parse makes of
// their contents, in the order of the paths, what they are for. What is returned gives that of the
// newest good files.
func add[T any](f *Files, name string, paths []string, secret string, parse func(contents [][]byte) (T, time.Time, error)) (current func() T, err error) {
	var inForce atomic.Pointer[T]
	g := &group{name: name, paths: paths, secret: secret, state: State{Name: name}}
	g.take = func(files []filewatch.File) (time.Time, error) {
		contents := make([][]byte, len(files))
		for i, file := range files {
			if len(file.Data) > maxSize {
				return time.Time{}, fmt.Errorf("%s: longer than %d bytes", paths[i], maxSize)
			}
			contents[i] = file.Data
		}
		value, expires, err := parse(contents)
		if err == nil && inForce.Load() != nil {
			err = g.checkExpired(expires)
		}
		if err != nil {
			return time.Time{}, err
		}
		inForce.Store(&value)
		return expires, nil
	}
	if g.first, err = filewatch.ReadAll(paths, maxSize); err != nil {
		return nil, err
	}
	expires, err := g.take(g.first)
	if err != nil {
		return nil, err
	}
	g.state.Loads, g.state.Expires = 1, expires
	f.sayExpiry(g.state, time.Now())
	f.sayOpen(g)
	f.groups = append(f.groups, g)
	return func() T { return *inForce.Load() }, nil
}

// checkExpired refuses what has expired in favour of what has not. A daemon that starts has no
// choice; it says so.
func (g *group) checkExpired(expires time.Time) error {
	g.mu.Lock()
	before := g.state.Expires
	g.mu.Unlock()
	now := time.Now()
	if !expires.IsZero() && now.After(expires) && now.Before(before) {
		return fmt.Errorf("a certificate or credentials that have expired at %s", expires.UTC().Format(time.RFC3339))
	}
	return nil
}

const (
	// soon is how long before the end of a certificate the log says so.
	soon = 7 * 24 * time.Hour
	// lookEvery is how often it looks.
	lookEvery = 12 * time.Hour
)

func (f *Files) sayExpiry(s State, now time.Time) {
	switch {
	case s.Expires.IsZero() || now.Before(s.Expires.Add(-soon)):
	case now.After(s.Expires):
		f.log.Warn("a certificate or credentials: it has expired", "files", s.Name, "at", s.Expires.UTC())
	default:
		f.log.Warn("a certificate or credentials: it expires soon", "files", s.Name, "at", s.Expires.UTC())
	}
}

// sayOpen warns of a secret that is none: certificates are for everybody, keys and passwords are
// not.
func (f *Files) sayOpen(g *group) {
	const others = 0o006
	if info, err := os.Stat(g.secret); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&others != 0 {
		f.log.Warn("every user of this machine can read or write a secret (chmod o-rw, or a mode of 0440 in Kubernetes)",
			"files", g.name, "file", g.secret, "mode", info.Mode().Perm().String())
	}
}

// Run watches the files until ctx is done, and returns nil.
func (f *Files) Run(ctx context.Context) error {
	var all errgroup.Group
	for _, g := range f.groups {
		all.Go(func() error {
			filewatch.Watch(ctx, g.paths, g.first, f.options,
				func(files []filewatch.File) { f.reload(g, files) },
				func(err error) { f.trouble(g, err) })
			return nil
		})
	}
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return all.Wait()
		case now := <-ticker.C:
			for _, s := range f.States() {
				f.sayExpiry(s, now)
			}
		}
	}
}

// reload takes what the files hold now.
func (f *Files) reload(g *group, files []filewatch.File) {
	expires, err := g.take(files)
	state := g.note(func() {
		g.refused = err
		if err != nil {
			g.state.Refusals++
			return
		}
		g.state.Loads++
		g.state.Expires = expires
	})
	if err != nil {
		f.log.Error("new files are refused, and the old ones stay in force", "files", g.name, "error", err)
		return
	}
	f.log.Info("new files are in force", "files", g.name)
	f.sayOpen(g)
	if g.taken != nil {
		g.taken()
	}
	f.sayExpiry(state, time.Now())
}

// trouble notes that the files cannot be read, or, with nil, that they can again.
func (f *Files) trouble(g *group, err error) {
	g.note(func() {
		g.unread = err
		if err != nil {
			g.state.Refusals++
		}
	})
	if err != nil {
		f.log.Error("files cannot be read, and what they held stays in force", "files", g.name, "error", err)
		return
	}
	f.log.Info("files can be read again", "files", g.name)
}

// note changes the state, and returns it.
func (g *group) note(change func()) State {
	g.mu.Lock()
	defer g.mu.Unlock()
	change()
	g.state.Trouble = g.unread
	if g.unread == nil {
		g.state.Trouble = g.refused
	}
	return g.state
}
