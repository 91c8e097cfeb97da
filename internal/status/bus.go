package status

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
)

// Interval is how often each checker of a fleet tells its status: every second, or less often in a fleet of more than 500, so that who
// listens hears 500 a second at the most.
func Interval(checkers int) time.Duration {
	return max(time.Second, time.Duration(checkers)*2*time.Millisecond)
}

// PublishChecker tells what now returns, again and again until ctx is done, and then once more that it leaves. now is called by this
// goroutine. Who is not connected tells nobody, and goes on.
func PublishChecker(ctx context.Context, conn *nats.Conn, namespace string, now func() Checker, every func() time.Duration) error {
	return publish(ctx, every, func(wait time.Duration, leaving bool) {
		s := now()
		s.Every, s.Leaving = wait.Milliseconds(), leaving
		send(conn, namespace+".status.v1.checker."+s.Name, s)
	})
}

// PublishAggregator is PublishChecker for an aggregator, every second.
func PublishAggregator(ctx context.Context, conn *nats.Conn, namespace string, now func() Aggregator) error {
	return publish(ctx, func() time.Duration { return time.Second }, func(wait time.Duration, leaving bool) {
		s := now()
		s.Every, s.Leaving = wait.Milliseconds(), leaving
		send(conn, namespace+".status.v1.aggregator."+s.Name, s)
	})
}

func publish(ctx context.Context, every func() time.Duration, tell func(wait time.Duration, leaving bool)) error {
	for {
		wait := every()
		tell(wait, false)
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			tell(wait, true)
			return nil
		}
	}
}

// send sends a status, if it can.
func send(conn *nats.Conn, subject string, status any) {
	if data, err := json.Marshal(status); err == nil && len(data) <= MaxSize && conn.IsConnected() {
		_ = conn.Publish(subject, data) // the next one follows
	}
}

// Listen hands every status to one of the two, one at a time, until ctx is done. What is no status goes to neither.
func Listen(ctx context.Context, conn *nats.Conn, namespace string, checker func(Checker), aggregator func(Aggregator)) error {
	messages := make(chan *nats.Msg, 4096) // beyond it they are dropped, and others follow
	subject := namespace + ".status.v1.>"  // a name may be two tokens, an owner and an epoch
	sub, err := conn.ChanSubscribe(subject, messages)
	if err != nil {
		return fmt.Errorf("subscribe to %s: %w", subject, err)
	}
	defer func() { _ = sub.Unsubscribe() }() // fails only when the connection is closed
	checkers := namespace + ".status.v1.checker."
	for {
		select {
		case <-ctx.Done():
			return nil
		case m := <-messages:
			if len(m.Subject) > len(checkers) && m.Subject[:len(checkers)] == checkers {
				if s, err := DecodeChecker(m.Data); err == nil && checkers+s.Name == m.Subject {
					checker(s)
				}
			} else if s, err := DecodeAggregator(m.Data); err == nil && namespace+".status.v1.aggregator."+s.Name == m.Subject {
				aggregator(s)
			}
		}
	}
}
