package natssource_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
	"github.com/offpath-io/offpath/pkg/rules/natssource"
)

// watched is a bucket under watch.
type watched struct {
	t       *testing.T
	changes chan natssource.Entry
	trouble chan error
	stop    func()
}

// begin watches; o.Check and o.Retry should be short where the test is about them.
func begin(t *testing.T, url string, o natssource.Options) *watched {
	t.Helper()
	b := open(t, url, o)
	w := &watched{t: t, changes: make(chan natssource.Entry, 1000), trouble: make(chan error, 1000)}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		b.Watch(ctx, func(e natssource.Entry) { w.changes <- e }, func(err error) { w.trouble <- err })
	}()
	w.stop = func() { cancel(); <-ended }
	t.Cleanup(w.stop)
	return w
}

// await waits for the content, and returns all that came until then.
func (w *watched) await(content string) (seen []natssource.Entry) {
	w.t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case e := <-w.changes:
			if seen = append(seen, e); string(e.Data) == content {
				return seen
			}
		case <-deadline:
			w.t.Fatalf("never saw %q", content)
		}
	}
}

// awaitTrouble waits until it is told of an error that is want; nil for its end.
func (w *watched) awaitTrouble(want error) {
	w.t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case err := <-w.trouble:
			if errors.Is(err, want) {
				return
			}
		case <-deadline:
			w.t.Fatalf("never told of %v", want)
		}
	}
}

// TestWatchFromTheBeginning: before there is a bucket, through its first set, changes, a deletion, and another set.
func TestWatchFromTheBeginning(t *testing.T) {
	url := serverstest.JetStream(t).URL()
	w := begin(t, url, natssource.Options{Retry: 10 * time.Millisecond})
	w.awaitTrouble(natssource.ErrNoBucket)
	b := open(t, url, natssource.Options{})
	first := put(t, b, "one", 0)
	w.await("one")
	w.awaitTrouble(nil)
	second := put(t, b, "two", first)
	if seen := w.await("two"); len(seen) != 1 || seen[0].Revision != second || seen[0].Deleted {
		t.Errorf("%+v", seen)
	}
	if err := b.Delete(limited(t), second); err != nil {
		t.Fatal(err)
	}
	w.awaitTrouble(natssource.ErrNoRules)
	put(t, b, "three", 0)
	if seen := w.await("three"); len(seen) != 1 {
		t.Errorf("a deletion was taken for a set: %+v", seen)
	}
	w.awaitTrouble(nil)
	// One who comes later sees the newest only.
	if seen := begin(t, url, natssource.Options{}).await("three"); len(seen) != 1 {
		t.Errorf("%+v", seen)
	}
}

// TestADeletedSet is told to one who comes after.
func TestADeletedSet(t *testing.T) {
	url := serverstest.JetStream(t).URL()
	b := open(t, url, natssource.Options{})
	if err := b.Delete(limited(t), put(t, b, "one", 0)); err != nil {
		t.Fatal(err)
	}
	w := begin(t, url, natssource.Options{})
	w.awaitTrouble(natssource.ErrNoRules)
	at := put(t, b, "two", 0)
	w.await("two")
	put(t, b, "", at) // which is told as it is: the one who reads it refuses it
	w.await("")
}

// TestHowLong measures from before the write until every watcher has been called.
func TestHowLong(t *testing.T) {
	const watchers, rounds = 20, 21
	url := serverstest.JetStream(t).URL()
	b := open(t, url, natssource.Options{})
	at := put(t, b, "start", 0)
	var all []*watched
	for range watchers {
		w := begin(t, url, natssource.Options{})
		w.await("start")
		all = append(all, w)
	}
	var took []time.Duration
	for i := range rounds {
		content, begun := fmt.Sprintf("%d%s", i, strings.Repeat(" ", 100_000)), time.Now()
		at = put(t, b, content, at)
		for _, w := range all {
			w.await(content)
		}
		took = append(took, time.Since(begun))
	}
	slices.Sort(took)
	t.Logf("from write to the last of %d watchers, with 100 kB: median %v, most %v", watchers, took[rounds/2], took[rounds-1])
}

// TestTheServerGoesAndComes: what is written meanwhile is seen, nothing is seen twice, and a server that is
// not there at first is waited for.
func TestTheServerGoesAndComes(t *testing.T) {
	server := serverstest.JetStream(t)
	b := open(t, server.URL(), natssource.Options{})
	at := put(t, b, "zero", 0)
	w := begin(t, server.URL(), natssource.Options{Retry: 10 * time.Millisecond})
	w.await("zero")
	for i := range 3 {
		if err := server.Restart(); err != nil {
			t.Fatal(err)
		}
		at = eventually(t, b, fmt.Sprint(i), at)
		seen := w.await(fmt.Sprint(i))
		if len(seen) != 1 || seen[0].Revision != at {
			t.Errorf("round %d: %+v", i, seen)
		}
	}
}

// eventually puts as soon as the server is back.
func eventually(t *testing.T, b *natssource.Bucket, data string, expected uint64) uint64 {
	t.Helper()
	ctx := limited(t)
	for {
		short, cancel := context.WithTimeout(ctx, time.Second)
		at, err := b.Put(short, []byte(data), expected)
		cancel()
		if err == nil {
			return at
		}
		if got, err := b.Get(ctx); err == nil && string(got.Data) == data { // the answer was lost
			return got.Revision
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}

// TestALostBucket: a server that has lost everything, and gets a new set, which counts from 1 again.
func TestALostBucket(t *testing.T) {
	server := serverstest.JetStream(t)
	b := open(t, server.URL(), natssource.Options{})
	put(t, b, "two", put(t, b, "one", 0))
	w := begin(t, server.URL(), natssource.Options{Retry: 10 * time.Millisecond, Check: 10 * time.Millisecond})
	w.await("two")
	if err := server.Stop(); err != nil { // and its files are gone
		t.Fatal(err)
	}
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	w.awaitTrouble(natssource.ErrNoBucket)
	if at := eventually(t, b, "new", 0); at != 1 {
		t.Fatalf("revision %d", at)
	}
	w.await("new")
}

// TestABucketMadeAnew while nobody was disconnected: only the look now and then can tell.
func TestABucketMadeAnew(t *testing.T) {
	server := serverstest.JetStream(t)
	b := open(t, server.URL(), natssource.Options{})
	put(t, b, "two", put(t, b, "one", 0))
	w := begin(t, server.URL(), natssource.Options{Retry: 10 * time.Millisecond, Check: 10 * time.Millisecond})
	w.await("two")
	serverstest.DropBucket(t, server.URL(), "offpath-rules")
	put(t, b, "new", 0)
	w.await("new")
}

// TestNoServerAtFirst: it is waited for.
func TestNoServerAtFirst(t *testing.T) {
	server := serverstest.JetStream(t)
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	w := begin(t, server.URL(), natssource.Options{Retry: 10 * time.Millisecond})
	if err := <-w.trouble; err == nil {
		t.Error("no trouble is told")
	}
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	eventually(t, open(t, server.URL(), natssource.Options{}), "one", 0)
	w.await("one")
}

// TestStop ends a watch whatever it is doing.
func TestStop(t *testing.T) {
	server := serverstest.JetStream(t)
	begin(t, server.URL(), natssource.Options{}).stop() // perhaps before it has begun
	w := begin(t, server.URL(), natssource.Options{})
	w.awaitTrouble(natssource.ErrNoBucket)
	w.stop()
	put(t, open(t, server.URL(), natssource.Options{}), "one", 0)
	w = begin(t, server.URL(), natssource.Options{})
	w.await("one")
	w.stop()
	if len(w.changes) > 0 {
		t.Error("told more than there is")
	}
}
