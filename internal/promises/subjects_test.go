package promises

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/offpath-io/offpath/internal/servers/serverstest"
	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/events/natsbus"
)

// Parts of a release and of this build find each other: what one says goes where the other listens, and so do answers.
func TestSubjectsOfReleases(t *testing.T) {
	url := serverstest.NATS(t).URL()
	today, err := Subjects(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	recordings(t, "subjects.txt", func(t *testing.T, files []string) {
		was := linesOf(string(read(t, files[0])))
		if len(was) != len(today) || !slices.Equal(was, today) {
			t.Errorf("said to\n%s\nwas\n%s", strings.Join(today, "\n"), strings.Join(was, "\n"))
		}
		messages := make(map[string][]byte) // some part looks into them
		for _, s := range readTalk(t, strings.Replace(files[0], "subjects.txt", "talk.jsonl", 1)) {
			messages[s.Kind] = s.Bytes
		}
		conn, err := nats.Connect(url)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		listen(t, url)
		for _, line := range was {
			kind, to, _ := strings.Cut(line, " ")
			subject, reply, _ := strings.Cut(to, " ")
			if kind == "alarm" {
				continue // checkers listen to all shards' in the same way: TestNatsbus
			}
			if got := request(t, conn, subject, reply, messages[kind]); !bytes.Equal(got, messages[kind]) {
				t.Errorf("a %s of the release to %s, with %s for the answer, is answered %q", kind, subject, reply, got)
			}
		}
	})
}

// listen lets an aggregator's end of this build send back what it hears.
func listen(t *testing.T, url string) {
	t.Helper()
	conn, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	worker, err := natsbus.NewWorker(conn, "ns")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- worker.Serve(ctx, func(_ events.Kind, data []byte, reply func([]byte) error) {
			if reply != nil {
				_ = reply(bytes.Clone(data)) // one that is lost is missed below
			}
		})
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		conn.Close()
	})
}

// request asks until there is an answer: the other end may not listen yet.
func request(t *testing.T, conn *nats.Conn, subject, reply string, data []byte) []byte {
	t.Helper()
	sub, err := conn.SubscribeSync(reply)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if err := conn.PublishRequest(subject, reply, data); err != nil {
			t.Fatal(err)
		}
		if m, err := sub.NextMsg(100 * time.Millisecond); err == nil && len(m.Data) > 0 {
			return m.Data
		}
	}
	return nil
}
