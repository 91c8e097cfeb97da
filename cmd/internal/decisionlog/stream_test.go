package decisionlog

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
)

var must = daemontest.Must

func newStream(t *testing.T, url, checker string, maxBytes int64, maxAge time.Duration) (*Stream, *nats.Conn) {
	t.Helper()
	conn := serverstest.Connect(t, url)
	o := StreamOptions{Namespace: "f", Checker: checker, MaxBytes: maxBytes, MaxAge: maxAge}
	return NewStream(func() *nats.Conn { return conn }, o), conn
}

// TestStream: it is created if it is missing, with its bounds; repeats are stored once; one that is
// there stays as it is.
func TestStream(t *testing.T) {
	url := serverstest.JetStream(t).URL()
	s, conn := newStream(t, url, "c1", 1<<20, time.Hour)
	for _, number := range []uint64{1, 1, 2} {
		must(t, s.Write(t.Context(), number, fmt.Appendln(nil, number)))
	}
	stream, err := serverstest.JetStreamOf(t, conn).Stream(t.Context(), "f-denied")
	must(t, err)
	info := stream.CachedInfo()
	if c := info.Config; c.MaxBytes != 1<<20 || c.MaxAge != time.Hour || c.Discard != jetstream.DiscardOld || info.State.Msgs != 2 {
		t.Errorf("%d messages, bounds: %+v", info.State.Msgs, c)
	}
	last, err := stream.GetLastMsgForSubject(t.Context(), "f.denied.v1.c1")
	if err != nil || string(last.Data) != "2\n" {
		t.Errorf("the last one: %v, %v", last, err)
	}
	other, _ := newStream(t, url, "c2", 5<<20, time.Minute)
	must(t, other.Write(t.Context(), 1, []byte("three\n")))
	if info, err = stream.Info(t.Context()); err != nil || info.Config.MaxBytes != 1<<20 || info.State.Msgs != 3 {
		t.Errorf("after another checker: %+v, %v", info, err)
	}
}

// TestNoStream: without JetStream it says so.
func TestNoStream(t *testing.T) {
	s, _ := newStream(t, serverstest.NATS(t).URL(), "c1", 1<<20, time.Hour)
	if err := s.Write(t.Context(), 1, []byte("one\n")); err == nil {
		t.Error("no error")
	}
}
