package reporter

import (
	"slices"

	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/check/internal/queue"
)

// backlog is the counters of a shard that wait for a report, or for a lease request. Those of
// suspect rules wait apart: a message is about one suspect rule, or about all rules that are not
// suspect.
type backlog struct {
	line     // some may be of rules that have become suspect since
	apart    []*suspect
	suspects map[*counter.Group]*suspect // those in apart
	last     int                         // the suspect rule that had the last turn
	other    bool                        // it was the queue's turn
}

// line is counters that wait for messages about the same rules.
type line struct {
	queue queue.FIFO[*counter.Counter]
	taken uint64 // counters ever taken off the queue for reports
	goal  uint64 // how many will have been when the last flush is done; 0 before it
}

// each calls f with every counter.
func (b *backlog) each(f func(*counter.Counter)) {
	b.queue.Each(f)
	for _, s := range b.apart {
		s.queue.Each(f)
	}
}

// due returns the own time from which on a message may be made; neverDue if nothing waits.
func (b *backlog) due() int64 {
	if b.queue.Len() > 0 {
		return 0
	}
	due := neverDue
	for _, s := range b.apart {
		if s.waits() {
			due = min(due, s.after)
		}
	}
	return due
}

// setGoals begins the last flush: all that waits now is to be reported.
func (b *backlog) setGoals() {
	b.setGoal()
	for _, s := range b.apart {
		s.setGoal()
	}
}

func (l *line) setGoal() { l.goal = l.taken + uint64(l.queue.Len()) }

// isDone returns whether all goals have been reached.
func (b *backlog) isDone() bool {
	return b.taken >= b.goal &&
		!slices.ContainsFunc(b.apart, func(s *suspect) bool { return s.taken < s.goal || s.late })
}

// eachTurn calls f with the suspect rules that the next message may be about, until it returns
// true; nil stands for all rules that are not suspect, whose turn is every other one.
func (b *backlog) eachTurn(now int64, f func(about *suspect) (done bool)) {
	if b.other = !b.other; b.other && f(nil) {
		return
	}
	for n := range len(b.apart) {
		i := (b.last + 1 + n) % len(b.apart)
		if s := b.apart[i]; s.waits() && now >= s.after && f(s) {
			b.last = i
			return
		}
	}
	if !b.other {
		f(nil)
	}
}

// of returns the line of a suspect rule; if it is nil, that of all others.
func (b *backlog) of(s *suspect) *line {
	if s == nil {
		return &b.line
	}
	return &s.line
}

// suspect returns what is known of a rule that is suspect; nil if it is not.
func (b *backlog) suspect(g *counter.Group, now int64) *suspect {
	if s := b.suspects[g]; s != nil && now < s.until {
		return s
	}
	return nil
}

// refused makes the rules of a refused message suspect, the groups of the first n of its parts. It
// returns the rule if the message was about one alone.
func (b *backlog) refused(n int, group func(i int) *counter.Group, now int64) (alone *suspect) {
	for i := range n {
		g := group(i)
		s := b.suspects[g]
		if s == nil {
			if b.suspects == nil {
				b.suspects = make(map[*counter.Group]*suspect)
			}
			s = &suspect{group: g}
			b.suspects[g], b.apart = s, append(b.apart, s)
		}
		if now >= s.until {
			s.tries = 0
		}
		s.until = now + int64(suspectFor)
		if i == 0 {
			alone = s
		} else if s != alone {
			alone = nil
		}
	}
	return alone
}

// forget removes what is known of rules that are not suspect any more.
func (b *backlog) forget(now int64) {
	b.apart = slices.DeleteFunc(b.apart, func(s *suspect) bool {
		if s.waits() || now < s.until {
			return false
		}
		delete(b.suspects, s.group)
		return true
	})
}
