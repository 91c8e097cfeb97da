package torture

import (
	"bytes"
	"context"
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/offpath-io/offpath/internal/testing/servers"
)

// part is one process of the fleet, over all its lives.
type part struct {
	name    string
	program *servers.Program
	admin   string         // address of /metrics and /readyz; "" if it has none
	rls     string         // address of Envoy's rate limit service; "" if it has none
	trust   *x509.CertPool // of its HTTP API
	log     *logbook

	mu       sync.Mutex
	lives    []life
	starts   []time.Time
	gaps     []span    // when it was frozen; the last one may be open
	clockSet time.Time // since when it starts with a wrong clock; zero: it does not
	busy     bool      // a fault has it
}

// life is from when a process accepts connections until it is told to end, or is killed.
type life struct {
	span
	held      int64 // hits that nobody else knew of in the end, at most
	delivered bool  // it has ended in order, and left none
	dial      *clients
}

// span is a time; it is open while until is zero.
type span struct{ from, until time.Time }

func (s span) overlaps(from, until time.Time) bool {
	return until.After(s.from) && (s.until.IsZero() || from.Before(s.until))
}

// startedBefore says whether the part was started in the second before a time: it says then what it
// starts with.
func (p *part) startedBefore(at time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.starts, func(start time.Time) bool {
		return start.Before(at) && at.Sub(start) < time.Second
	})
}

// stopPatience is how long an ordered end may take: a checker delivers for 5 s, and what it holds
// is given up then.
const stopPatience = 20 * time.Second

func (p *part) begin(dial *clients) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lives = append(p.lives, life{span: span{from: time.Now()}, dial: dial})
}

// ends notes that the process is about to end, with so many hits that nobody else knows of.
func (p *part) ends(held int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := &p.lives[len(p.lives)-1]
	l.until, l.held = time.Now(), held
}

// delivered notes that the process has ended, and left no hits.
func (p *part) delivered() {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := &p.lives[len(p.lives)-1]
	l.held, l.delivered = 0, true
}

// current is the life that takes requests; false if there is none.
func (p *part) current() (number int, dial *clients, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	number = len(p.lives) - 1
	if number < 0 || !p.lives[number].until.IsZero() {
		return 0, nil, false
	}
	return number, p.lives[number].dial, true
}

// lived says whether the part was in one life, and not frozen, all the time.
func (p *part) lived(from, until time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, gap := range p.gaps {
		if gap.overlaps(from, until) {
			return false
		}
	}
	for _, l := range p.lives {
		if !l.from.After(from) && (l.until.IsZero() || !l.until.Before(until)) {
			return true
		}
	}
	return false
}

// lifeAt is the life that the part was in at a time; false if in none.
func (p *part) lifeAt(at time.Time) (life, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.lives, func(l life) bool {
		return !l.from.After(at) && (l.until.IsZero() || !l.until.Before(at))
	})
	if i < 0 {
		return life{}, false
	}
	return p.lives[i], true
}

// livesIn counts the lives that overlap a time.
func (p *part) livesIn(from, until time.Time) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.lives {
		if l.overlaps(from, until) {
			n++
		}
	}
	return n
}

// setClock notes that the part starts with a wrong clock from now on.
func (p *part) setClock() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.clockSet.IsZero() {
		p.clockSet = time.Now()
	}
}

// startedWrongIn says whether a life of the part began in a time, with a wrong clock.
func (p *part) startedWrongIn(from, until time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.clockSet.IsZero() && slices.ContainsFunc(p.lives, func(l life) bool {
		return l.from.After(later(from, p.clockSet)) && !l.from.After(until)
	})
}

func (p *part) freeze() error {
	p.mu.Lock()
	p.gaps = append(p.gaps, span{from: time.Now()})
	p.mu.Unlock()
	return p.program.Pause()
}

func (p *part) thaw() error {
	err := p.program.Resume()
	p.mu.Lock()
	gap := &p.gaps[len(p.gaps)-1]
	gap.until = time.Now()
	gap.until = gap.until.Add(thawed + gap.until.Sub(gap.from)/4)
	p.mu.Unlock()
	return err
}

// A process that was frozen may need this long to get through what has come meanwhile, and a
// quarter of that time.
const thawed = 500 * time.Millisecond

// take takes the part for a fault, unless another one has it.
func (p *part) take() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.busy
	p.busy = true
	return !was
}

func (p *part) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy = false
}

// restart starts the process again and again until it serves, as a supervisor does: a checker does
// not start while its rules are invalid.
func (p *part) restart(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		p.mu.Lock()
		p.starts = append(p.starts, time.Now())
		p.mu.Unlock()
		err := p.program.Restart(ctx)
		if err == nil {
			err = p.serve(ctx)
		}
		if err == nil || p.program.Running() {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", p.name, err)
		case <-time.After(startPause):
		}
	}
}

const startPause = 250 * time.Millisecond

// logbook keeps the lines that a process prints, each with its time.
type logbook struct {
	mu    sync.Mutex
	rest  []byte
	lines []logLine
}

type logLine struct {
	at   time.Time
	text string
}

// Write takes whole and part lines.
func (l *logbook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest = append(l.rest, p...)
	for {
		line, rest, whole := bytes.Cut(l.rest, []byte("\n"))
		if !whole {
			return len(p), nil
		}
		l.lines = append(l.lines, logLine{time.Now(), string(line)})
		l.rest = append([]byte(nil), rest...)
	}
}

// all returns the lines so far.
func (l *logbook) all() []logLine {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]logLine(nil), l.lines...)
}

// len is how many lines there are.
func (l *logbook) len() int { return len(l.all()) }

// says reports whether there are words in what came after the first lines.
func (l *logbook) says(after int, words string) bool {
	return slices.ContainsFunc(l.all()[after:], func(line logLine) bool { return strings.Contains(line.text, words) })
}

// crashes are what Go and its race detector print when a program is wrong.
var crashes = []string{"DATA RACE", "panic:", "fatal error:", "SIGSEGV"}

func isCrash(line string) bool {
	for _, c := range crashes {
		if strings.Contains(line, c) {
			return true
		}
	}
	return false
}
