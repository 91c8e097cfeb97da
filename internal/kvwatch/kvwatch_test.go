package kvwatch_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/offpath-io/offpath/internal/kvwatch"
	"github.com/offpath-io/offpath/internal/testing/servers"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
)

// patience is for hangs: a machine may stand still.
const patience = 2 * time.Minute

var shared *servers.NATS

func TestMain(m *testing.M) { serverstest.Main(m, servers.NATSOptions{JetStream: true}, &shared) }

// bucket is a test's own.
type bucket struct {
	*testing.T
	ctx  context.Context
	conn *nats.Conn
	js   jetstream.JetStream
	kv   jetstream.KeyValue
	told chan jetstream.KeyValueEntry
}

func newBucket(t *testing.T, republish *jetstream.RePublish) *bucket {
	t.Helper()
	b := &bucket{T: t, told: make(chan jetstream.KeyValueEntry, 10_000)}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	b.ctx = ctx
	b.conn = serverstest.Connect(t, shared.URL())
	b.js = serverstest.JetStreamOf(t, b.conn)
	var err error
	b.kv, err = b.js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: serverstest.Namespace(t), RePublish: republish})
	b.must(err)
	return b
}

func (b *bucket) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b *bucket) of() *kvwatch.Bucket {
	return &kvwatch.Bucket{Conn: b.conn, JS: b.js, Name: b.kv.Bucket(), Changes: b.kv.Bucket(), Ask: patience}
}

func (b *bucket) watch(check time.Duration) { b.watchKey("", false, check) }

// watchKey watches one key, or all of them if it is "".
func (b *bucket) watchKey(key string, history bool, check time.Duration) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		of := b.of()
		of.Check, of.Retry = check, time.Millisecond
		kvwatch.Watch{Bucket: of, Key: key, History: history, MostRetry: time.Millisecond}.Run(b.ctx, kvwatch.Handler{
			Begin: func(bool) {}, Fail: func(error) {}, Take: func(e jetstream.KeyValueEntry) { b.told <- e },
		})
	}()
	b.Cleanup(func() { b.conn.Close(); <-ended })
}

// await waits until a key is told, which is nil's when it is "".
func (b *bucket) await(key string) jetstream.KeyValueEntry {
	b.Helper()
	for {
		select {
		case e := <-b.told:
			if e == nil && key == "" || e != nil && e.Key() == key {
				return e
			}
		case <-b.ctx.Done():
			b.Fatalf("%q is never told", key)
		}
	}
}

// TestAllIsReadInPages: of a thousand keys, and of some with 10 MB in all, none is missing, and
// none comes twice.
func TestAllIsReadInPages(t *testing.T) {
	b := newBucket(t, nil)
	for i := range 1020 {
		_, err := b.kv.Put(b.ctx, fmt.Sprint("k", i), make([]byte, 1+i/1000*500_000))
		b.must(err)
	}
	b.must(b.kv.Purge(b.ctx, "k500"))
	all, err := b.of().All(b.ctx)
	b.must(err)
	last := uint64(0)
	for _, e := range all {
		if e.Revision() <= last || (e.Key() == "k500") != (e.Operation() == jetstream.KeyValuePurge) {
			t.Errorf("%s of revision %d, %v, after revision %d", e.Key(), e.Revision(), e.Operation(), last)
		}
		last = e.Revision()
	}
	if len(all) != 1020 || last != 1021 {
		t.Errorf("%d entries, the last of revision %d", len(all), last)
	}
}

// TestABucketOfAnOlderVersion tells nobody of changes: they are found by looking; once it is
// upgraded, without.
func TestABucketOfAnOlderVersion(t *testing.T) {
	b := newBucket(t, nil)
	b.watch(10 * time.Millisecond)
	b.await("")
	_, err := b.kv.Put(b.ctx, "a", nil)
	b.must(err)
	b.await("a")
	for range 2 {
		b.of().Upgrade(b.ctx)
	}
	upgraded := &bucket{T: t, ctx: b.ctx, conn: b.conn, js: b.js, kv: b.kv, told: make(chan jetstream.KeyValueEntry, 100)}
	upgraded.watch(time.Hour)
	upgraded.await("")
	_, err = b.kv.Put(b.ctx, "b", nil)
	b.must(err)
	upgraded.await("b")
}

// TestAWriterCannotMisleadReaders by the headers that the server tells of messages: a revision far
// ahead would have all that comes later ignored, and a status would end the list.
func TestAWriterCannotMisleadReaders(t *testing.T) {
	bucketName := serverstest.Namespace(t)
	b := newBucket(t, kvwatch.RePublish(bucketName, bucketName))
	b.watch(time.Hour)
	b.await("")
	_, err := b.js.PublishMsg(b.ctx, &nats.Msg{Subject: "$KV." + bucketName + ".forged", Header: nats.Header{
		"Nats-Sequence": {"999999999"}, "Nats-Last-Sequence": {"7"}, "Nats-Num-Pending": {"0"}, "Status": {"204"},
		"Nats-Subject": {"$KV." + bucketName + ".other"}, "Nats-Time-Stamp": {"yesterday"},
	}})
	b.must(err)
	if e := b.await("forged"); e.Revision() != 1 {
		t.Errorf("revision %d", e.Revision())
	}
	_, err = b.kv.Put(b.ctx, "later", nil)
	b.must(err)
	b.await("later")
	all, err := b.of().All(b.ctx)
	b.must(err)
	if len(all) != 2 || all[0].Key() != "forged" || all[1].Key() != "later" {
		t.Errorf("%d entries: %+v", len(all), all)
	}
}

// TestNobodyMakesChangesUp by telling of them where the bucket does, as those of one account may be
// able to: what is told is what the bucket holds, and in time, whatever else is heard.
func TestNobodyMakesChangesUp(t *testing.T) {
	for what, watch := range map[string]func(*bucket){
		"all":     func(b *bucket) { b.watch(time.Hour) },
		"newest":  func(b *bucket) { b.watchKey("a", false, time.Hour) },
		"history": func(b *bucket) { b.watchKey("a", true, time.Hour) },
	} {
		for _, revision := range []string{"2", "3", "999999999999"} {
			t.Run(what+revision, func(t *testing.T) {
				name := serverstest.Namespace(t)
				b := newBucket(t, kvwatch.RePublish(name, name))
				_, err := b.kv.PutString(b.ctx, "a", "true")
				b.must(err)
				watch(b)
				b.await("")
				forged := &nats.Msg{Subject: name + ".a", Data: []byte("made up"), Header: nats.Header{
					"Nats-Subject": {"$KV." + name + ".a"}, "Nats-Sequence": {revision}, "Nats-Time-Stamp": {"2026-01-02T03:04:05Z"},
				}}
				for written := uint64(2); written <= 4; written++ {
					b.must(b.conn.PublishMsg(forged))
					b.must(b.conn.PublishMsg(&nats.Msg{Subject: name + ".a", Data: []byte("no change at all")}))
					_, err = b.kv.PutString(b.ctx, "a", "true")
					b.must(err)
					for {
						e := b.await("a")
						if string(e.Value()) != "true" || e.Revision() > written {
							t.Fatalf("revision %d: %q", e.Revision(), e.Value())
						}
						if e.Revision() == written {
							break
						}
					}
				}
			})
		}
	}
}

// TestWhatIsNotHeardIsReadAgain: a reader who has missed a change finds it when he hears of the
// next.
func TestWhatIsNotHeardIsReadAgain(t *testing.T) {
	name := serverstest.Namespace(t)
	b := newBucket(t, &jetstream.RePublish{Source: "$KV." + name + ".heard", Destination: name + ".heard"})
	b.watch(time.Hour)
	b.await("")
	for _, key := range []string{"missed", "heard"} {
		_, err := b.kv.Put(b.ctx, key, nil)
		b.must(err)
	}
	b.await("missed")
	b.await("heard")
}

// TestHistoryIsToldWhole, in order and once: what was there before, and what is found only later,
// several revisions at once.
func TestHistoryIsToldWhole(t *testing.T) {
	b := newBucket(t, nil)
	_, err := b.js.UpdateKeyValue(b.ctx, jetstream.KeyValueConfig{Bucket: b.kv.Bucket(), History: 64})
	b.must(err)
	write := func() {
		for _, key := range []string{"a", "other", "a", "a"} {
			_, err := b.kv.Put(b.ctx, key, nil)
			b.must(err)
		}
	}
	write()
	b.watchKey("a", true, 50*time.Millisecond)
	for _, revision := range []uint64{1, 3, 4, 5, 7, 8} {
		if revision == 5 {
			b.await("")
			write()
		}
		if e := b.await("a"); e.Revision() != revision {
			t.Errorf("revision %d, want %d", e.Revision(), revision)
		}
	}
}
