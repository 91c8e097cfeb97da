package promises

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/offpath-io/offpath/internal/servers"
	"github.com/offpath-io/offpath/pkg/events/natsbus"
)

// recordSubjects runs Subjects on a server of its own.
func recordSubjects(ctx context.Context) ([]string, error) {
	server, err := servers.StartNATS(servers.NATSOptions{})
	if err != nil {
		return nil, err
	}
	defer server.Stop()
	return Subjects(ctx, server.URL())
}

// Subjects lists, for each kind of message that is not an answer, the subject that it goes to, of a checker c0 in the
// namespace ns and shard 3, and the one that its answer is to go to.
func Subjects(ctx context.Context, url string) ([]string, error) {
	conn, err := nats.Connect(url)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	heard := make(chan *nats.Msg, 100)
	if _, err := conn.ChanSubscribe("ns.>", heard); err != nil {
		return nil, err
	}
	checker, err := natsbus.NewChecker(conn, "ns", "c0")
	if err != nil {
		return nil, err
	}
	worker, err := natsbus.NewWorker(conn, "ns")
	if err != nil {
		return nil, err
	}
	kinds := map[string]func([]byte) error{
		"report": func(b []byte) error { return checker.Report(3, b) },
		"lease":  func(b []byte) error { return checker.Lease(3, b) },
		"hello":  checker.Hello,
		"alarm":  func(b []byte) error { return worker.Alarm(3, b) },
	}
	var lines []string
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		if err := kinds[kind]([]byte("x")); err != nil {
			return nil, err
		}
		select {
		case m := <-heard:
			lines = append(lines, fmt.Sprintf("%s %s %s", kind, m.Subject, m.Reply))
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(10 * time.Second):
			return nil, errors.New(kind + " was not heard")
		}
	}
	return lines, nil
}
