package status

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// Interval is the time between two statuses of a checker: 1 s, or more in a fleet of more than 500
// checkers, so that a listener receives at most 500 statuses a second.
func Interval(checkers int) time.Duration {
	return max(time.Second, time.Duration(checkers)*2*time.Millisecond)
}

// PublishChecker publishes what now returns, at intervals of every, until ctx is done; then once
// more, with Leaving set. Both functions are called by this goroutine. While the connection is
// away, nothing is published.
func PublishChecker(
	ctx context.Context, conn *nats.Conn, namespace string,
	now func() Checker, every func() time.Duration,
) {
	publish(ctx, conn, namespace+".status.v1.checker.", every, func() (*Part, any) {
		s := now()
		return &s.Part, &s
	})
}

// PublishAggregator is PublishChecker for an aggregator, every second.
func PublishAggregator(
	ctx context.Context, conn *nats.Conn, namespace string, now func() Aggregator,
) {
	every := func() time.Duration { return time.Second }
	publish(ctx, conn, namespace+".status.v1.aggregator.", every, func() (*Part, any) {
		s := now()
		return &s.Part, &s
	})
}

// publish publishes statuses below a subject, whose common part now returns, too. It leaves out
// those that are too long.
func publish(
	ctx context.Context, conn *nats.Conn, subject string,
	every func() time.Duration, now func() (*Part, any),
) {
	for wait := every(); ; wait = every() {
		part, status := now()
		part.Every, part.Leaving = wait.Milliseconds(), ctx.Err() != nil
		data, err := json.Marshal(status)
		if err == nil && len(data) <= MaxSize && conn.IsConnected() {
			_ = conn.Publish(subject+part.Name, data) // the next one follows
		}
		if part.Leaving {
			return
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
}

// Listen calls checker or aggregator for every status, one at a time, until ctx is done. It skips
// messages that are no statuses, and statuses in another part's name. The error is that of the
// subscription.
func Listen(
	ctx context.Context, conn *nats.Conn, namespace string,
	checker func(Checker), aggregator func(Aggregator),
) error {
	messages := make(chan *nats.Msg, 4096) // further ones are dropped; later statuses replace them
	subject := namespace + ".status.v1.>"  // a name can be two tokens, an owner and an epoch
	sub, err := conn.ChanSubscribe(subject, messages)
	if err != nil {
		return fmt.Errorf("subscribe to %s: %w", subject, err)
	}
	defer func() { _ = sub.Unsubscribe() }() // fails only when the connection is closed
	checkers, aggregators := namespace+".status.v1.checker.", namespace+".status.v1.aggregator."
	for {
		select {
		case <-ctx.Done():
			return nil
		case m := <-messages:
			if strings.HasPrefix(m.Subject, checkers) {
				if s, err := DecodeChecker(m.Data); err == nil && checkers+s.Name == m.Subject {
					checker(s)
				}
			} else if s, err := DecodeAggregator(m.Data); err == nil && aggregators+s.Name == m.Subject {
				aggregator(s)
			}
		}
	}
}
