package fleet

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/events"
)

// slowLink delays what goes over a link, both ways: a network that is further away than this
// machine's own. Messages closer together than the jitter can overtake each other. A send's error
// is only known when the checker has long gone on, so it becomes a loss, as it would be on a real
// network.
type slowLink struct {
	check.Link
	delay, jitter time.Duration
}

// slowed returns a link with a delay, or the link itself if there is none.
func slowed(link check.Link, delay, jitter time.Duration) check.Link {
	if delay <= 0 && jitter <= 0 {
		return link
	}
	return &slowLink{link, delay, jitter}
}

func (l *slowLink) after(f func()) {
	d := l.delay
	if l.jitter > 0 {
		d += rand.N(l.jitter)
	}
	time.AfterFunc(d, f)
}

func (l *slowLink) Report(shard uint32, toOwner bool, report []byte) error {
	report = slices.Clone(report)
	l.after(func() { _ = l.Link.Report(shard, toOwner, report) })
	return nil
}

func (l *slowLink) Lease(shard uint32, toOwner bool, request []byte) error {
	request = slices.Clone(request)
	l.after(func() { _ = l.Link.Lease(shard, toOwner, request) })
	return nil
}

func (l *slowLink) Hello(hello []byte) error {
	hello = slices.Clone(hello)
	l.after(func() { _ = l.Link.Hello(hello) })
	return nil
}

// Listen hands messages over later. What is still under way when ctx is done is lost.
func (l *slowLink) Listen(ctx context.Context, h func(events.Kind, []byte)) error {
	var gate sync.RWMutex
	closed := false
	err := l.Link.Listen(ctx, func(kind events.Kind, payload []byte) {
		payload = slices.Clone(payload)
		l.after(func() {
			gate.RLock()
			defer gate.RUnlock()
			if !closed {
				h(kind, payload)
			}
		})
	})
	gate.Lock()
	defer gate.Unlock()
	closed = true
	return err
}
