package natssource_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/offpath-io/offpath/internal/natssource"
	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/servers"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
)

// watched is a bucket under watch.
type watched struct {
	t       testing.TB
	changes chan natssource.Entry
	trouble chan error
}

// fast is for tests of what is looked at now and then.
var fast = natssource.Options{Retry: 10 * time.Millisecond, Check: 10 * time.Millisecond}

func begin(t testing.TB, server *servers.NATS, o natssource.Options) *watched {
	t.Helper()
	o.Ask = 2 * time.Second // a watch asks again; what a bucket is asked that is then deleted is lost
	b := open(t, server, o)
	w := &watched{t: t, changes: make(chan natssource.Entry, 1000), trouble: make(chan error, 1000)}
	daemontest.Background(t, func(ctx context.Context) error {
		b.Watch(ctx, func(e natssource.Entry) { w.changes <- e }, func(err error) { w.trouble <- err })
		return nil
	})
	return w
}

// await waits for the content, and returns all that came until then.
func (w *watched) await(content string) (seen []natssource.Entry) {
	w.t.Helper()
	return daemontest.Collect(w.t, fmt.Sprintf("it tells of %q", content), w.changes, func(e natssource.Entry) bool {
		return string(e.Data) == content
	})
}

// awaitTrouble waits for an error that is want; nil for its end.
func (w *watched) awaitTrouble(want error) {
	w.t.Helper()
	daemontest.Collect(w.t, fmt.Sprintf("it tells of trouble: %v", want), w.trouble, func(err error) bool {
		return errors.Is(err, want)
	})
}

// From before there is a bucket, through its first set, a change, a deletion, and another set.
func TestWatchTellsOfEveryChange(t *testing.T) {
	w := begin(t, shared, fast)
	w.awaitTrouble(natssource.ErrNoBucket)
	b := open(t, shared, natssource.Options{})
	first := put(t, b, "one", 0)
	w.await("one")
	w.awaitTrouble(nil)
	second := put(t, b, "two", first)
	if seen := w.await("two"); len(seen) != 1 || seen[0].Revision != second || seen[0].Deleted {
		t.Errorf("%+v", seen)
	}
	remove(t, b)
	w.awaitTrouble(natssource.ErrNoRules)
	late := begin(t, shared, natssource.Options{})
	late.awaitTrouble(natssource.ErrNoRules)
	third := put(t, b, "three", 0)
	for _, w := range []*watched{w, late} {
		if seen := w.await("three"); len(seen) != 1 {
			t.Errorf("a deletion was taken for a set: %+v", seen)
		}
		w.awaitTrouble(nil)
	}
	// One who comes later sees the newest only.
	if seen := begin(t, shared, natssource.Options{}).await("three"); len(seen) != 1 {
		t.Errorf("%+v", seen)
	}
	put(t, b, "", third) // which is told as it is: the one who reads it refuses it
	w.await("")
}

// What is written meanwhile is seen, nothing is seen twice, and a server that is not there at first
// is waited for.
func TestWatchOutlivesTheServer(t *testing.T) {
	server := serverstest.JetStream(t)
	must(t, server.Stop())
	b, w := open(t, server, natssource.Options{}), begin(t, server, fast)
	if err := <-w.trouble; err == nil {
		t.Error("no trouble is told of a server that is not there")
	}
	at := uint64(0)
	for i := range 4 {
		must(t, server.Restart())
		at = eventually(t, b, fmt.Sprint(i), at)
		if seen := w.await(fmt.Sprint(i)); len(seen) != 1 || seen[0].Revision != at {
			t.Errorf("round %d: %+v", i, seen)
		}
	}
	must(t, server.Stop()) // and its files are gone
	must(t, server.Restart())
	w.awaitTrouble(natssource.ErrNoBucket)
	if at := eventually(t, b, "new", 0); at != 1 { // it counts from 1 again
		t.Fatalf("revision %d", at)
	}
	w.await("new")
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
