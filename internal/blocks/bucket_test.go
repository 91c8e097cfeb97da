package blocks_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/offpath-io/offpath/internal/blocks"
	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/servers"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
)

// shared is a server for all tests that do not stop theirs.
var shared *servers.NATS

func TestMain(m *testing.M) { serverstest.Main(m, servers.NATSOptions{JetStream: true}, &shared) }

// fast is for tests of what is looked at now and then.
var fast = blocks.Options{Retry: 10 * time.Millisecond, Check: 20 * time.Millisecond}

var must = daemontest.Must

// open opens the bucket of a test at a server.
func open(t *testing.T, server *servers.NATS, o blocks.Options) *blocks.Bucket {
	t.Helper()
	o.Ask = daemontest.Patience
	b, err := blocks.New(serverstest.Connect(t, server.URL()), serverstest.Namespace(t), o)
	must(t, err)
	return b
}

// block is an entry that begins now.
func block(key string, span time.Duration) blocks.Block {
	now := time.Now()
	return blocks.Block{Rule: "r", Key: key, At: now, Until: now.Add(span), By: "somebody"}
}

// watcher notes what a watch calls back with, as text: the keys of the entries, or the trouble.
type watcher struct {
	t    *testing.T
	news chan string
}

func watch(t *testing.T, b *blocks.Bucket) *watcher {
	t.Helper()
	w := &watcher{t, make(chan string, 10_000)}
	daemontest.Background(t, func(ctx context.Context) error {
		b.Watch(ctx, func(list []blocks.Block) {
			var keys []string
			for _, e := range list {
				keys = append(keys, e.Key)
			}
			w.news <- "[" + strings.Join(keys, " ") + "]"
		}, func(err error) {
			w.news <- fmt.Sprintf("trouble: %v", err)
		})
		return nil
	})
	return w
}

// await waits for news that contain this.
func (w *watcher) await(want string) {
	w.t.Helper()
	daemontest.Collect(w.t, "it tells of "+want, w.news, func(got string) bool { return strings.Contains(got, want) })
}

func put(t *testing.T, b *blocks.Bucket, e blocks.Block) {
	t.Helper()
	must(t, b.Put(t.Context(), e))
}

func TestPutListSweepDelete(t *testing.T) {
	b := open(t, shared, blocks.Options{})
	if list, err := b.List(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("before there is a bucket: %v, %v", list, err)
	}
	if err := b.Delete(t.Context(), "r", "a"); !errors.Is(err, blocks.ErrNoBlock) {
		t.Errorf("before there is a bucket: %v", err)
	}
	if n, err := b.Sweep(t.Context(), time.Now()); n != 0 || err != nil {
		t.Errorf("before there is a bucket: %d, %v", n, err)
	}
	odd := "<script>\xff\x00 *.>"
	put(t, b, block("b", 2*time.Hour))
	put(t, b, block(odd, time.Hour))
	put(t, b, block("b", 3*time.Hour)) // in its place
	list, err := b.List(t.Context())
	if err != nil || len(list) != 2 || list[0].Key != odd || list[1].Key != "b" || list[1].By != "somebody" ||
		list[1].Until.Before(time.Now().Add(2*time.Hour)) {
		t.Fatalf("%+v, %v", list, err)
	}
	put(t, b, block("c", 4*time.Hour))
	must(t, b.Delete(t.Context(), "r", "c"))
	if n, err := b.Sweep(t.Context(), time.Now().Add(90*time.Minute)); n != 1 || err != nil {
		t.Errorf("swept %d, %v", n, err)
	}
	if list, err := b.List(t.Context()); err != nil || len(list) != 1 || list[0].Key != "b" {
		t.Errorf("%v, %v", list, err)
	}
	for _, missing := range [][2]string{{"r", odd}, {"r", "c"}, {"r", "never"}, {"s", "b"}} {
		if err := b.Delete(t.Context(), missing[0], missing[1]); !errors.Is(err, blocks.ErrNoBlock) {
			t.Errorf("%q: %v", missing, err)
		}
	}
	if err := b.Put(t.Context(), blocks.Block{Rule: "r"}); !errors.Is(err, blocks.ErrBlock) {
		t.Errorf("no entry: %v", err)
	}
}

func TestWatchTellsOfEveryChange(t *testing.T) {
	var ahead atomic.Int64 // of the watches' clock
	o := fast
	o.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	b, early := open(t, shared, o), watch(t, open(t, shared, o))
	early.await(blocks.ErrNoBucket.Error())
	must(t, b.Make(t.Context()))
	early.await("trouble: <nil>")
	early.await("[]")
	put(t, b, block("a", time.Hour))
	early.await("[a]")
	late := watch(t, b) // as a checker that starts
	late.await("[a]")
	both := func(want string) { t.Helper(); early.await(want); late.await(want) }
	put(t, b, block("b", 2*time.Hour))
	both("[a b]")
	must(t, b.Delete(t.Context(), "r", "a"))
	both("[b]")
	put(t, b, block("c", time.Hour))
	both("[c b]")
	ahead.Store(int64(90 * time.Minute))
	both("[b]")
}

// What was taken out leaves a mark for an hour, so that no watch misses it. Marks and entries that
// have ended take no room: who has blocked and unblocked very many keys in that hour can still
// block one.
func TestOnlyEntriesThatHoldTakeRoom(t *testing.T) {
	b := open(t, shared, blocks.Options{})
	b.SetMost(3)
	for i := range 4 {
		put(t, b, block(fmt.Sprint(i), time.Hour))
		must(t, b.Delete(t.Context(), "r", fmt.Sprint(i)))
	}
	ended := block("ended", 2*time.Hour)
	ended.At, ended.Until = ended.At.Add(-2*time.Hour), ended.At.Add(-time.Hour)
	put(t, b, ended)
	for i := range 3 {
		put(t, b, block(fmt.Sprint(i), time.Hour))
	}
	if err := b.Put(t.Context(), block("one more", time.Hour)); !errors.Is(err, blocks.ErrFull) {
		t.Errorf("one more than there is room for: %v", err)
	}
	put(t, b, block("2", 2*time.Hour)) // it is one of them
}

func TestWithoutJetStream(t *testing.T) {
	b := open(t, serverstest.NATS(t), blocks.Options{})
	if err := b.Put(t.Context(), block("a", time.Hour)); err == nil || !strings.Contains(err.Error(), "is it enabled") {
		t.Error(err)
	}
	watch(t, b).await("is it enabled")
}
