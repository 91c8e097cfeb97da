package offpath

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/offpath-io/offpath/internal/natsclient"
	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/events"
)

var _ check.Link = (*link)(nil)

var quiet = slog.New(slog.DiscardHandler)

var must = daemontest.Must

// equal fails the test unless both are the same.
func equal[T comparable](t testing.TB, what any, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%v: got %v, want %v", what, got, want)
	}
}

func linkFrom(t *testing.T, open func() (*nats.Conn, error)) *link {
	t.Helper()
	l, err := newLink(DefaultNamespace, "c", quiet, open)
	must(t, err)
	l.delays = delays{first: time.Millisecond, most: time.Millisecond, larger: time.Millisecond}
	return l
}

// TestLongerMessages: what a server takes is asked for again when it was too little.
func TestLongerMessages(t *testing.T) {
	bus := serverstest.NATS(t)
	take := func(bytes int32) {
		t.Helper()
		must(t, bus.Reload(func(o *server.Options) { o.MaxPayload = bytes }))
	}
	take(10)
	l := linkFrom(t, func() (*nats.Conn, error) {
		return nats.Connect(bus.URL(), nats.MaxReconnects(-1), nats.ReconnectWait(time.Millisecond))
	})
	stop := daemontest.Background(t, func(ctx context.Context) error { l.run(ctx); return nil })
	long := make([]byte, 100)
	if err := l.Report(1, false, long); !errors.Is(err, nats.ErrMaxPayload) {
		t.Errorf("%v", err)
	}
	take(1000)
	daemontest.Eventually(t, "it is sent", func() bool { return l.Report(1, false, long) == nil })
	stop()
	natsclient.Close(l.conn())
}

// TestOneConnectionAfterTheOther: there are never two; messages come by the newest; an error of a
// connection that is not over ends what runs with it.
func TestOneConnectionAfterTheOther(t *testing.T) {
	bus := serverstest.NATS(t)
	var opened []*nats.Conn
	tries := 0
	l := linkFrom(t, func() (*nats.Conn, error) {
		if tries++; tries == 2 {
			return nil, errors.New("no connection this time")
		}
		conn, err := nats.Connect(bus.URL())
		opened = append(opened, conn)
		return conn, err
	})
	stop := daemontest.Background(t, func(ctx context.Context) error { l.run(ctx); return nil })
	heard := make(chan string, 100)
	stopListening := daemontest.Background(t, func(ctx context.Context) error {
		return l.Listen(ctx, func(_ events.Kind, payload []byte) { heard <- string(payload) })
	})
	other := serverstest.Connect(t, bus.URL())
	arrives := func(text string) {
		t.Helper()
		daemontest.Eventually(t, text+" is heard", func() bool {
			must(t, other.Publish(DefaultNamespace+".refresh.v1.c", []byte(text)))
			select {
			case got := <-heard:
				return got == text
			case <-time.After(10 * time.Millisecond):
				return false
			}
		})
	}
	arrives("by the first")
	first := l.conn()
	first.Close()
	arrives("by the second")
	if l.conn() == first || tries != 3 {
		t.Errorf("the same connection, or %d tries, want 3", tries)
	}
	must(t, l.Hello([]byte("hello")))
	wrong := errors.New("wrong")
	if err := l.each(t.Context(), func(context.Context, *session) error { return wrong }); !errors.Is(err, wrong) {
		t.Errorf("%v", err)
	}
	stopListening()
	stop()
	natsclient.Close(l.conn())
	for i, conn := range opened {
		if !conn.IsClosed() {
			t.Errorf("connection %d is open", i)
		}
	}
}
