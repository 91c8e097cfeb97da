package decisionlog

import (
	"bytes"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
)

// TestStream: it is created if it is missing, with its bounds; repeats are stored once; one that is there stays as it is.
func TestStream(t *testing.T) {
	server := serverstest.JetStream(t)
	conn, err := nats.Connect(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	s := NewStream(func() *nats.Conn { return conn }, StreamOptions{Namespace: "f", Checker: "c1", MaxBytes: 1 << 20, MaxAge: time.Hour})
	write := func(number uint64, text string) {
		t.Helper()
		if err := s.Write(t.Context(), number, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	write(1, "one\n")
	write(1, "one\n")
	write(2, "two\n")
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), "f-denied")
	if err != nil {
		t.Fatal(err)
	}
	info := stream.CachedInfo()
	if c := info.Config; c.MaxBytes != 1<<20 || c.MaxAge != time.Hour || c.Discard != jetstream.DiscardOld {
		t.Errorf("bounds: %+v", c)
	}
	if info.State.Msgs != 2 {
		t.Errorf("%d messages, want 2", info.State.Msgs)
	}
	last, err := stream.GetLastMsgForSubject(t.Context(), "f.denied.v1.c1")
	if err != nil || !bytes.Equal(last.Data, []byte("two\n")) {
		t.Errorf("the last one: %v, %v", last, err)
	}

	other := NewStream(func() *nats.Conn { return conn }, StreamOptions{Namespace: "f", Checker: "c2", MaxBytes: 5 << 20, MaxAge: time.Minute})
	if err := other.Write(t.Context(), 1, []byte("three\n")); err != nil {
		t.Fatal(err)
	}
	if info, err = stream.Info(t.Context()); err != nil || info.Config.MaxBytes != 1<<20 || info.State.Msgs != 3 {
		t.Errorf("after another checker: %+v, %v", info, err)
	}
}

// TestNoStream: without JetStream it says so.
func TestNoStream(t *testing.T) {
	server := serverstest.NATS(t)
	conn, err := nats.Connect(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	s := NewStream(func() *nats.Conn { return conn }, StreamOptions{Namespace: "f", Checker: "c1", MaxBytes: 1 << 20, MaxAge: time.Hour})
	if err := s.Write(t.Context(), 1, []byte("one\n")); err == nil {
		t.Error("no error")
	} else {
		t.Log(err)
	}
}
