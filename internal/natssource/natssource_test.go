package natssource_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/offpath-io/offpath/internal/natssource"
	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/servers"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
)

// shared is a server for all tests that do not stop theirs.
var shared *servers.NATS

func TestMain(m *testing.M) { serverstest.Main(m, servers.NATSOptions{JetStream: true}, &shared) }

var must = daemontest.Must

// open opens the bucket of a test at a server.
func open(t testing.TB, server *servers.NATS, o natssource.Options) *natssource.Bucket {
	t.Helper()
	conn := serverstest.Connect(t, server.URL(), nats.RetryOnFailedConnect(true),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})) // they come with servers that go
	if server == shared { // which never goes, so that all its answers come
		o.Ask = cmp.Or(o.Ask, daemontest.Patience)
	}
	b, err := natssource.New(conn, serverstest.Namespace(t), o)
	must(t, err)
	return b
}

func limited(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), daemontest.Patience)
	t.Cleanup(cancel)
	return ctx
}

func put(t testing.TB, b *natssource.Bucket, data string, expected uint64) uint64 {
	t.Helper()
	at, err := b.Put(limited(t), []byte(data), expected)
	must(t, err)
	return at
}

// raw is the bucket as anybody sees it who may write into it.
func raw(t testing.TB, b *natssource.Bucket) jetstream.KeyValue {
	t.Helper()
	return serverstest.Bucket(t, shared.URL(), b.Name())
}

// remove deletes the set, as the nats command can.
func remove(t testing.TB, b *natssource.Bucket) {
	t.Helper()
	must(t, raw(t, b).Delete(limited(t), natssource.Key))
}

func TestPutGetHistory(t *testing.T) {
	b, ctx := open(t, shared, natssource.Options{}), limited(t)
	// Nothing is there yet: everything says so.
	_, errGet := b.Get(ctx)
	_, errAt := b.At(ctx, 1)
	_, errHistory := b.History(ctx)
	for what, err := range map[string]error{"get": errGet, "at": errAt, "history": errHistory} {
		if !errors.Is(err, natssource.ErrNoBucket) || !errors.Is(err, natssource.ErrNoRules) || !strings.Contains(err.Error(), b.Name()) {
			t.Errorf("%s: %v", what, err)
		}
	}

	begin := time.Now().Add(-time.Minute)
	first := put(t, b, "one", 0)
	second := put(t, b, "two", first)
	if got, err := b.Get(ctx); err != nil || string(got.Data) != "two" || got.Revision != second || got.Created.Before(begin) || got.Deleted {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := b.At(ctx, first); err != nil || string(got.Data) != "one" || got.Revision != first {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := b.At(ctx, 99); !errors.Is(err, natssource.ErrNoRules) {
		t.Errorf("a revision that never was: %v", err)
	}

	remove(t, b)
	if _, err := b.Get(ctx); !errors.Is(err, natssource.ErrNoRules) || errors.Is(err, natssource.ErrNoBucket) {
		t.Errorf("after a delete: %v", err)
	}
	if _, err := b.At(ctx, second+1); !errors.Is(err, natssource.ErrNoRules) {
		t.Errorf("the deletion itself: %v", err)
	}
	last := put(t, b, "three", 0) // none is there
	all, err := b.History(ctx)
	must(t, err)
	got := ""
	for _, e := range all {
		got += fmt.Sprintf("%d %s %v;", e.Revision, e.Data, e.Deleted)
	}
	if want := fmt.Sprintf("%d one false;%d two false;%d  true;%d three false;", first, second, second+1, last); got != want {
		t.Errorf("history %q, want %q", got, want)
	}
}

func TestTheBucketRemembers64(t *testing.T) {
	b := open(t, shared, natssource.Options{})
	at := uint64(0)
	for i := range natssource.Remembered + 10 {
		at = put(t, b, fmt.Sprint(i), at)
	}
	all, err := b.History(limited(t))
	if err != nil || len(all) != natssource.Remembered || all[0].Revision != 11 || all[len(all)-1].Revision != at {
		t.Errorf("%d entries, %v", len(all), err)
	}
}

// Who has not seen the other's revision is refused, told both, and has changed nothing.
func TestAnOldRevisionIsRefused(t *testing.T) {
	ours, theirs, ctx := open(t, shared, natssource.Options{}), open(t, shared, natssource.Options{}), limited(t)
	refused := func(why string, err error, expected, found uint64) {
		t.Helper()
		conflict, ok := errors.AsType[*natssource.ConflictError](err)
		if !ok || conflict.Expected != expected || conflict.Found != found {
			t.Errorf("%s: %v, want a conflict of %d with %d", why, err, expected, found)
			return
		}
		for _, n := range []uint64{expected, found} {
			if want := fmt.Sprintf("revision %d ", n); n > 0 && !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q does not name revision %d", why, err, n)
			}
		}
		if got, err := ours.Get(ctx); err == nil && (got.Revision != found || string(got.Data) != "theirs") {
			t.Errorf("%s: there is %d %q", why, got.Revision, got.Data)
		}
	}
	_, err := ours.Put(ctx, []byte("ours"), 7)
	refused("one is expected, and there is not even a bucket", err, 7, 0)
	if _, err := ours.Get(ctx); !errors.Is(err, natssource.ErrNoBucket) {
		t.Errorf("the one who was refused has made a bucket: %v", err)
	}
	first := put(t, theirs, "theirs", 0)
	_, err = ours.Put(ctx, []byte("ours"), 0)
	refused("none is expected", err, 0, first)
	second := put(t, theirs, "theirs", first)
	_, err = ours.Put(ctx, []byte("ours"), first)
	refused("an old one is expected", err, first, second)
	_, err = ours.Put(ctx, []byte("ours"), second+5)
	refused("one to come is expected", err, second+5, second)
	remove(t, theirs)
	_, err = ours.Put(ctx, []byte("ours"), second)
	refused("it was deleted meanwhile", err, second, 0)
}

func TestTooLarge(t *testing.T) {
	b, ctx := open(t, shared, natssource.Options{}), limited(t)
	if _, err := b.Put(ctx, make([]byte, natssource.MaxSize), 0); err != nil {
		t.Errorf("as long as may be: %v", err)
	}
	_, err := b.Put(ctx, make([]byte, natssource.MaxSize+1), 1)
	if !errors.Is(err, natssource.ErrTooLarge) || !strings.Contains(err.Error(), fmt.Sprint(natssource.MaxSize+1)) {
		t.Errorf("one byte more: %v", err)
	}
	if got, err := b.Get(ctx); err != nil || got.Revision != 1 {
		t.Errorf("%d, %v", got.Revision, err)
	}
	// 10,000 rules fit, as people write them.
	const rule = "  - name: tenant-01234\n    match: {tenant: \"01234\"}\n    key: [user, api]\n    limit: 1234/second\n"
	if size := 10_000 * len(rule); size > natssource.MaxSize {
		t.Errorf("10,000 rules are %d bytes, of %d", size, natssource.MaxSize)
	}
}

// What the server cannot do is said in words that help.
func TestServersThatCannot(t *testing.T) {
	b := open(t, serverstest.NATS(t), natssource.Options{})
	_, errGet := b.Get(limited(t))
	_, errPut := b.Put(limited(t), []byte("x"), 0)
	_, errReplicas := open(t, shared, natssource.Options{Replicas: 3}).Put(limited(t), []byte("x"), 0)
	for what, err := range map[string]error{"JetStream": errGet, "is it enabled": errPut, "replicas": errReplicas} {
		if err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%v, want %s", err, what)
		}
	}
}
