package console

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/offpath-io/offpath/cmd/internal/signing"
	"github.com/offpath-io/offpath/internal/blocks"
	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
)

// deskThatSigns is a desk with keys of its own, at work.
func deskThatSigns(t *testing.T) (*Console, jetstream.KeyValue) {
	t.Helper()
	keys, err := signing.Generate(nil)
	must(t, err)
	c, _ := newDesk(t)
	c.o.EntriesVerifier, c.o.EntriesKey = keys.Verifier, keys.Key
	signs, err := New(c.o)
	must(t, err)
	signs.picture = c.picture
	daemontest.Background(t, signs.Run)
	js := serverstest.JetStreamOf(t, c.o.Conn)
	var kv jetstream.KeyValue
	daemontest.Eventually(t, "the bucket is there", func() bool { kv, err = js.KeyValue(t.Context(), blocks.Name("test")); return err == nil })
	return signs, kv
}

// What somebody without the key has written over or purged, the console puts back soon, as it was
// signed; and its own word lifts it.
func TestBlocksAreRestored(t *testing.T) {
	c, kv := deskThatSigns(t)
	ctx := t.Context()
	_, err := c.operator.Block(ctx, Who{"kristie", "here"}, "r", "k", time.Hour)
	must(t, err)
	daemontest.Eventually(t, "the block is seen", func() bool { _, blocked := c.block("r", "k"); return blocked })
	names, err := kv.Keys(ctx)
	must(t, err)
	signed, err := kv.Get(ctx, names[0])
	must(t, err)
	for _, attack := range []func() error{
		func() error { _, err := kv.Put(ctx, names[0], []byte("{}")); return err },
		func() error { return kv.Purge(ctx, names[0]) },
	} {
		must(t, attack())
		got, err := kv.Get(ctx, names[0])
		daemontest.Eventually(t, "the block is put back", func() bool {
			got, err = kv.Get(ctx, names[0])
			return err == nil && string(got.Value()) == string(signed.Value())
		})
	}
	must(t, c.operator.Unblock(ctx, Who{"kristie", "here"}, "r", "k"))
	daemontest.Eventually(t, "the block is lifted", func() bool { _, blocked := c.block("r", "k"); return !blocked })
}

// Who may read a bucket can have NATS deliver what is there elsewhere, and who may write there can
// put something there that reads as a command to lift a block, which the console would sign.
func TestWhatIsDeliveredAsACommandIsNone(t *testing.T) {
	c, kv := deskThatSigns(t)
	ctx := t.Context()
	for _, key := range []string{"k", "other"} {
		_, err := c.operator.Block(ctx, Who{"kristie", "here"}, "r", key, time.Hour)
		must(t, err)
		daemontest.Eventually(t, "the block is seen", func() bool { _, blocked := c.block("r", key); return blocked })
	}
	_, err := kv.PutString(ctx, "x", `{"rule":"r","key":"k"}`)
	must(t, err)
	get := []byte(`{"last_by_subj":"$KV.` + kv.Bucket() + `.x"}`)
	must(t, c.o.Conn.PublishRequest("$JS.API.DIRECT.GET.KV_"+kv.Bucket(), commandSubject("test", "unblock"), get))
	_, err = c.o.Conn.Request("$JS.API.DIRECT.GET.KV_"+kv.Bucket(), get, time.Minute) // then that has been delivered
	must(t, err)
	daemontest.Eventually(t, "a command of an operator is done", func() bool {
		err := Ask(ctx, c.o.Conn, "test", "unblock", Question{Rule: "r", Key: "other"}, nil)
		_, blocked := c.block("r", "other")
		return err == nil || !blocked
	})
	if list, err := c.bucket.List(ctx); err != nil || len(list) != 1 || list[0].Key != "k" {
		t.Errorf("blocked are %v, %v", list, err)
	}
}
