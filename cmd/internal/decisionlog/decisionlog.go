// Package decisionlog writes down who was turned away: when, how often, and by which rule.
//
// Checks tell a [Log] of each denial, in about 0.1 µs and without waiting for anybody. It adds the
// denials of one *key* under one rule within a second up to one *entry*, so that a flood from one
// caller is one line a second, and nothing of it is lost. Entries go to one or more [Sink]s, each
// with a queue of its own. Whatever is bounded here drops when it is full, and counts what it
// drops.
//
// The pieces in the order in which a denial meets them: decisionlog.go (adding up), entry.go (a
// line), queue.go (to a sink), lines.go and stream.go (the sinks).
package decisionlog

import (
	"cmp"
	"context"
	"hash/maphash"
	"log/slog"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// every is how long denials are added up to one entry.
	every = time.Second
	// stripes share the keys, so that checks seldom meet at one lock.
	stripes = 64
)

// Options make a Log. Checker and Sinks are needed.
type Options struct {
	// Checker names who has turned away.
	Checker string
	// Sample is the part of denials that are written, drawn by chance: above 0, and 1 for all.
	Sample float64
	// Hashed says that keys are hashes.
	Hashed bool
	// Limit returns the limit of the rule whose counter has this name; 0 if there is none any more.
	// Nil: entries name none.
	Limit func(rule string) int64
	// Sinks take entries.
	Sinks []Sink
	// MaxKeys bounds the keys that denials are added up for within a second, about 200 bytes each
	// beside their text. Default 65,536.
	MaxKeys int
	// MaxQueued bounds the entries that wait for each sink, and 300 bytes for each of that many
	// their text. Default 65,536.
	MaxQueued int
	// StopTimeout is how long what waits may take to be written at the end. Default 2 s.
	StopTimeout time.Duration
	// Log takes what an operator should know; nil: nothing is logged.
	Log *slog.Logger
}

// Log writes down denials. Its methods are safe for concurrent use.
type Log struct {
	o         Options
	seed      maphash.Seed
	perStripe int
	stripes   [stripes]stripe
	queues    []*queue
	dropped   atomic.Int64 // denials of keys for which there was no room
	unsampled atomic.Int64
}

// stripe has some of the keys.
type stripe struct {
	mu    sync.Mutex
	keys  map[id]*tally
	spare map[id]*tally
	_     [40]byte // keep the next one on another cache line
}

type id struct{ rule, key string }

// tally is how often a key was denied since first.
type tally struct {
	first time.Time
	count int64
}

// New returns a log that takes denials at once, and writes them while it runs.
func New(o Options) *Log {
	if o.MaxKeys == 0 {
		o.MaxKeys = 1 << 16
	}
	if o.MaxQueued == 0 {
		o.MaxQueued = 1 << 16
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	l := &Log{o: o, seed: maphash.MakeSeed(), perStripe: max(o.MaxKeys/stripes, 1)}
	for i := range l.stripes {
		l.stripes[i].keys, l.stripes[i].spare = make(map[id]*tally), make(map[id]*tally)
	}
	for _, s := range o.Sinks {
		q := newQueue(s, o.MaxQueued, o.Log)
		q.stop = cmp.Or(o.StopTimeout, stopTimeout)
		l.queues = append(l.queues, q)
	}
	return l
}

// Denied takes so many denials of a key under a rule. It keeps nothing of the key. It is for
// check.Options.OnDenied.
func (l *Log) Denied(rule, key string, decisions int64) {
	if n := l.sample(decisions); n < decisions {
		l.unsampled.Add(decisions - n)
		if n == 0 {
			return
		}
		decisions = n
	}
	s := &l.stripes[maphash.String(l.seed, key)%stripes]
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.keys[id{rule, key}]
	if t == nil {
		if len(s.keys) >= l.perStripe {
			l.dropped.Add(decisions)
			return
		}
		t = &tally{first: time.Now()}
		s.keys[id{rule, strings.Clone(key)}] = t
	}
	t.count += decisions
}

// sample returns how many of so many denials are written.
func (l *Log) sample(decisions int64) int64 {
	if l.o.Sample >= 1 {
		return decisions
	}
	whole, rest := math.Modf(float64(decisions) * l.o.Sample)
	if rand.Float64() < rest {
		whole++
	}
	return int64(whole)
}

// Run writes until ctx is done, and then, for 2 s at most, what is left. It returns nil.
func (l *Log) Run(ctx context.Context) error {
	var writers errgroup.Group
	for _, q := range l.queues {
		writers.Go(func() error { q.run(ctx); return nil })
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-ticker.C:
			l.flush()
		}
	}
	l.flush()
	for _, q := range l.queues {
		q.close()
	}
	return writers.Wait()
}

// flush makes entries of what has been added up.
func (l *Log) flush() {
	now := time.Now()
	for i := range l.stripes {
		taken := l.stripes[i].swap()
		for of, t := range taken {
			e := l.entry(of, t, now)
			for _, q := range l.queues {
				q.put(e)
			}
		}
		clear(taken) // now, since there may be no denial for long
	}
}

// swap takes what a stripe has, and leaves it the map of the time before, which has to be empty by
// now. The result is good until the next call.
func (s *stripe) swap() map[id]*tally {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys, s.spare = s.spare, s.keys
	return s.spare
}

// Stats are what became of the denials that were told of, by sink: told of = Unsampled + Written +
// Dropped + Waiting + those of the last second.
type Stats struct {
	// Sink is its name.
	Sink string
	// Written denials are in the sink. Dropped ones found no room, or were left when the log
	// stopped. Unsampled ones were not drawn. Waiting ones are in the queue.
	Written, Dropped, Unsampled, Waiting int64
}

// Stats returns one snapshot for each sink.
func (l *Log) Stats() (all []Stats) {
	for _, q := range l.queues {
		s := q.stats()
		s.Dropped += l.dropped.Load()
		s.Unsampled = l.unsampled.Load()
		all = append(all, s)
	}
	return all
}
