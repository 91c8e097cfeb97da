package entries_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
	"github.com/offpath-io/offpath/pkg/entries"
)

// patience is how long the test waits for what happens within milliseconds on a machine that is not busy.
const patience = 20 * time.Second

func open(t *testing.T, url string, o entries.Options) *entries.Bucket {
	t.Helper()
	conn, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond), nats.RetryOnFailedConnect(true))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	b, err := entries.New(conn, "test", o)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// block is an entry that begins now.
func block(key string, span time.Duration) entries.Entry {
	now := time.Now()
	return entries.Entry{Rule: "r", Key: key, At: now, Until: now.Add(span), By: "somebody"}
}

// told notes what a watch tells, as text: the keys of the entries, or the trouble.
type told struct {
	t    *testing.T
	news chan string
}

func watch(t *testing.T, b *entries.Bucket) *told {
	t.Helper()
	w := &told{t, make(chan string, 10_000)}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		b.Watch(ctx, func(list []entries.Entry) {
			var keys []string
			for _, e := range list {
				keys = append(keys, e.Key)
			}
			w.news <- "[" + strings.Join(keys, " ") + "]"
		}, func(err error) {
			w.news <- fmt.Sprintf("trouble: %v", err)
		})
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return w
}

// await waits for news that contain this.
func (w *told) await(want string) {
	w.t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case got := <-w.news:
			if strings.Contains(got, want) {
				return
			}
		case <-deadline:
			w.t.Fatalf("never told of %s", want)
		}
	}
}

func put(t *testing.T, b *entries.Bucket, e entries.Entry) {
	t.Helper()
	if err := b.Put(t.Context(), e); err != nil {
		t.Fatal(err)
	}
}

func TestPutListDelete(t *testing.T) {
	b := open(t, serverstest.JetStream(t).URL(), entries.Options{})
	if list, err := b.List(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("before there is a bucket: %v, %v", list, err)
	}
	if err := b.Delete(t.Context(), "r", "a"); !errors.Is(err, entries.ErrNoEntry) {
		t.Errorf("before there is a bucket: %v", err)
	}
	odd := "<script>\xff\x00 *.>"
	put(t, b, block("b", 2*time.Hour))
	put(t, b, block(odd, time.Hour))
	put(t, b, block("b", 3*time.Hour)) // in its place
	list, err := b.List(t.Context())
	if err != nil || len(list) != 2 || list[0].Key != odd || list[1].Key != "b" || list[1].Until.Before(time.Now().Add(2*time.Hour)) || list[1].By != "somebody" {
		t.Fatalf("%+v, %v", list, err)
	}
	if err := b.Delete(t.Context(), "r", odd); err != nil {
		t.Error(err)
	}
	for _, missing := range [][2]string{{"r", odd}, {"r", "never"}, {"s", "b"}} {
		if err := b.Delete(t.Context(), missing[0], missing[1]); !errors.Is(err, entries.ErrNoEntry) {
			t.Errorf("%q: %v", missing, err)
		}
	}
	if err := b.Put(t.Context(), entries.Entry{Rule: "r"}); !errors.Is(err, entries.ErrEntry) {
		t.Errorf("no entry: %v", err)
	}
}

func TestWatchTellsOfEveryChange(t *testing.T) {
	url := serverstest.JetStream(t).URL()
	b := open(t, url, entries.Options{Retry: 10 * time.Millisecond})
	early := watch(t, open(t, url, entries.Options{Retry: 10 * time.Millisecond}))
	early.await(entries.ErrNoBucket.Error())
	if err := b.Make(t.Context()); err != nil {
		t.Fatal(err)
	}
	early.await("trouble: <nil>")
	early.await("[]")
	put(t, b, block("a", time.Hour))
	early.await("[a]")
	late := watch(t, b) // as a checker that starts
	late.await("[a]")
	put(t, b, block("b", 2*time.Hour))
	for _, w := range []*told{early, late} {
		w.await("[a b]")
	}
	if err := b.Delete(t.Context(), "r", "a"); err != nil {
		t.Fatal(err)
	}
	for _, w := range []*told{early, late} {
		w.await("[b]")
	}
	put(t, b, block("c", 50*time.Millisecond))
	for _, w := range []*told{early, late} {
		w.await("[c b]")
		w.await("[b]") // its time is over
	}
}

func TestWatchOutlivesTheServer(t *testing.T) {
	server := serverstest.JetStream(t)
	b := open(t, server.URL(), entries.Options{})
	put(t, b, block("a", time.Hour))
	w := watch(t, open(t, server.URL(), entries.Options{Retry: 10 * time.Millisecond, Check: 50 * time.Millisecond}))
	w.await("[a]")
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(patience); ; {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		err := b.Put(ctx, block("b", 2*time.Hour))
		cancel()
		if err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	w.await("[a b]")
}

// A bucket that was lost and made again is another one.
func TestWatchNoticesAnotherBucket(t *testing.T) {
	url := serverstest.JetStream(t).URL()
	b := open(t, url, entries.Options{})
	put(t, b, block("a", time.Hour))
	w := watch(t, open(t, url, entries.Options{Retry: 10 * time.Millisecond, Check: 20 * time.Millisecond}))
	w.await("[a]")
	serverstest.DropBucket(t, url, entries.Name("test"))
	put(t, b, block("b", time.Hour))
	w.await("[b]")
}

func TestSweep(t *testing.T) {
	b := open(t, serverstest.JetStream(t).URL(), entries.Options{})
	if n, err := b.Sweep(t.Context(), time.Now()); n != 0 || err != nil {
		t.Errorf("without a bucket: %d, %v", n, err)
	}
	put(t, b, block("a", time.Hour))
	put(t, b, block("b", 2*time.Hour))
	if n, err := b.Sweep(t.Context(), time.Now().Add(90*time.Minute)); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if list, err := b.List(t.Context()); err != nil || len(list) != 1 || list[0].Key != "b" {
		t.Errorf("%v, %v", list, err)
	}
}

// What was taken out leaves a mark for an hour, so that no watch misses it. Marks are no entries: who has blocked and unblocked very many
// keys in that hour can still block one.
func TestMarksTakeNoRoom(t *testing.T) {
	url := serverstest.JetStream(t).URL()
	b := open(t, url, entries.Options{})
	if err := b.Make(t.Context()); err != nil {
		t.Fatal(err)
	}
	conn, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn, jetstream.WithPublishAsyncMaxPending(1000))
	if err != nil {
		t.Fatal(err)
	}
	for i := range entries.Most {
		m := nats.NewMsg(fmt.Sprintf("$KV.test-entries.%d", i))
		m.Header.Set("KV-Operation", "PURGE")
		if _, err := js.PublishMsgAsync(m, jetstream.WithStallWait(patience)); err != nil { // the server may be busy
			t.Fatal(err)
		}
	}
	<-js.PublishAsyncComplete()
	if err := b.Put(t.Context(), block("a", time.Hour)); err != nil {
		t.Error(err)
	}
}

func TestWithoutJetStream(t *testing.T) {
	b := open(t, serverstest.NATS(t).URL(), entries.Options{})
	if err := b.Put(t.Context(), block("a", time.Hour)); err == nil || !strings.Contains(err.Error(), "is it enabled") {
		t.Error(err)
	}
	watch(t, b).await("is it enabled")
}
