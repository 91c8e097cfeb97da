package blocks_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/offpath-io/offpath/internal/blocks"
	"github.com/offpath-io/offpath/internal/diskcache"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
	"github.com/offpath-io/offpath/internal/testing/signaturetest"
	"github.com/offpath-io/offpath/pkg/signature"
)

// trusting are the options of a reader that trusts these keys, and of a writer with the first of
// them.
func trusting(t *testing.T, writes bool, keys ...*signature.Key) blocks.Options {
	t.Helper()
	o := fast
	o.Verifier = signaturetest.Verifier(t, keys...)
	if writes {
		o.Key = func() *signature.Key { return keys[0] }
	}
	return o
}

// thief may write into the bucket, and has no key.
type thief struct {
	t    *testing.T
	conn *nats.Conn
	kv   jetstream.KeyValue
}

func newThief(t *testing.T) *thief {
	t.Helper()
	bucket := blocks.Name(serverstest.Namespace(t))
	return &thief{t, serverstest.Connect(t, shared.URL()), serverstest.Bucket(t, shared.URL(), bucket)}
}

// get reads what is under a name, put writes it.
func (th *thief) get(name string) []byte {
	th.t.Helper()
	got, err := th.kv.Get(th.t.Context(), name)
	must(th.t, err)
	return got.Value()
}

func (th *thief) put(name string, value []byte) {
	th.t.Helper()
	_, err := th.kv.Put(th.t.Context(), name, value)
	must(th.t, err)
}

// names are those that are in the bucket.
func (th *thief) names() []string {
	th.t.Helper()
	names, err := th.kv.Keys(th.t.Context())
	must(th.t, err)
	return names
}

// Who may write into the bucket and has no key lifts no block, as a stolen checker's credential did
// by naming the bucket's subject for a reply. What was written over is there again after a sweep,
// for those who start.
func TestWhoHasNoKeyLiftsNoBlock(t *testing.T) {
	key := signaturetest.NewKey(t)
	writing, reading := trusting(t, true, key), trusting(t, false, key)
	operator := open(t, shared, writing)
	put(t, operator, block("a", 2*time.Hour))
	th := newThief(t)
	name := th.names()[0]
	old := th.get(name)
	put(t, operator, block("a", time.Hour))
	put(t, operator, block("b", time.Hour))
	names := th.names()
	other := th.get(names[0])
	if names[0] == name {
		other = th.get(names[1])
	}
	// One that is signed with a key that signs something else, such as rules.
	elsewhere := trusting(t, true, signaturetest.NewKey(t))
	stranger := open(t, shared, elsewhere)
	good := th.get(name)
	must(t, stranger.Put(t.Context(), block("a", time.Second)))
	strange := th.get(name)
	th.put(name, good)

	w := watch(t, open(t, shared, reading)) // which holds both blocks
	w.await("[a b]")
	own := watch(t, operator)
	own.await("[a b]")
	before := reading.Verifier.Refusals()
	for i, attack := range []func(){
		func() { // the server answers where it is asked to, whatever the asker may publish
			must(t, th.conn.PublishRequest("$JS.API.STREAM.INFO.KV_"+th.kv.Bucket(), "$KV."+th.kv.Bucket()+"."+name, nil))
		},
		func() { // so it does when it acknowledges what it has stored, such as a line of the decision log
			js := serverstest.JetStreamOf(t, th.conn)
			log := serverstest.Namespace(t) + "-denied"
			_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: log, Subjects: []string{log}})
			must(t, err)
			must(t, th.conn.PublishRequest(log, "$KV."+th.kv.Bucket()+"."+name, []byte("{}")))
		},
		func() { th.put(name, []byte(`{"action":"unblock","rule":"r","key":"a"}`)) },
		func() { th.put(name, old) },
		func() { th.put(name, other) },
		func() { th.put(name, strange) },
		func() { th.put(name, signedLift(t, key, th.kv.Bucket(), name, time.Now().Add(-48*time.Hour))) },
		func() { th.put(name, signedLift(t, key, "other-entries", name, time.Now().Add(time.Hour))) },
		func() { must(t, th.kv.Delete(t.Context(), name)) },
		func() { must(t, th.kv.Purge(t.Context(), name)) },
		func() { th.put("another", other) },
	} {
		attack()
		signaturetest.AwaitRefusals(t, reading.Verifier, before+int64(i)+1)
	}
	if list := otherThan("[a b]", w); list != "" {
		t.Errorf("the blocks were %s", list)
	}
	watch(t, open(t, shared, reading)).await("[a b]") // by another connection, such as after a server has closed the last

	sweep(t, operator)
	watch(t, open(t, shared, trusting(t, false, key))).await("[a b]")
	serverstest.DropBucket(t, shared.URL(), th.kv.Bucket())
	must(t, operator.Make(t.Context()))
	sweep(t, operator)
	watch(t, open(t, shared, trusting(t, false, key))).await("[a b]")
	if err := open(t, shared, reading).Put(t.Context(), block("c", time.Hour)); !errors.Is(err, blocks.ErrNoKey) {
		t.Errorf("a block without a key: %v", err)
	}
}

func sweep(t *testing.T, b *blocks.Bucket) {
	t.Helper()
	_, err := b.Sweep(t.Context(), time.Now())
	must(t, err)
}

// signedLift lifts the block of a, of a version to come.
func signedLift(t *testing.T, key *signature.Key, bucket, name string, expires time.Time) []byte {
	t.Helper()
	const data = `{"action":"unblock","rule":"r","key":"a"`
	text := signaturetest.Sign(t, key, signature.Claims{
		Bucket: bucket, Key: name, Operation: signature.Lift, Expires: expires, Version: signaturetest.Newer(),
	}, data+"}")
	return []byte(data + `,"signature":"` + text + `"}`)
}

// otherThan returns a list of blocks other than want that the watcher has announced, or "". A
// watch that begins anew may announce the same list again, and say why it did.
func otherThan(want string, w *watcher) string {
	for {
		select {
		case list := <-w.news:
			if list != want && !strings.HasPrefix(list, "trouble: ") {
				return list
			}
		case <-time.After(20 * time.Millisecond):
			return ""
		}
	}
}

// A block that is lifted is lifted everywhere, for those who watch, for those who start later, and
// for those of a version that knows no signatures; what was there before does not come back.
func TestALiftedBlockIsLiftedEverywhere(t *testing.T) {
	key := signaturetest.NewKey(t)
	operator := open(t, shared, trusting(t, true, key))
	put(t, operator, block("a", time.Hour))
	put(t, operator, block("b", 2*time.Hour))
	th := newThief(t)
	old := map[string][]byte{}
	for _, name := range th.names() {
		old[name] = th.get(name)
	}
	reading := trusting(t, false, key)
	watchers := []*watcher{watch(t, open(t, shared, reading)), watch(t, open(t, shared, fast)), watch(t, operator)}
	for _, w := range watchers {
		w.await("[a b]")
	}
	must(t, operator.Delete(t.Context(), "r", "a"))
	for _, w := range append(watchers, watch(t, open(t, shared, trusting(t, false, key))), watch(t, open(t, shared, fast))) {
		w.await("[b]")
	}
	if err := operator.Delete(t.Context(), "r", "a"); !errors.Is(err, blocks.ErrNoBlock) {
		t.Errorf("lifted twice: %v", err)
	}
	for name, value := range old {
		th.put(name, value)
	}
	signaturetest.AwaitRefusals(t, reading.Verifier, 1)
	sweep(t, operator)
	late := trusting(t, false, key)
	watch(t, open(t, shared, late)).await("[b]")
	// A block that took the place of a longer one ends when it says, and the longer one stays away;
	// and then the key can be blocked again.
	begin := block("b", 500*time.Millisecond)
	put(t, operator, begin)
	watchers[0].await("[]")
	sweep(t, operator)
	if n := len(th.names()); n != 2 {
		t.Errorf("%d entries are left, of which each keeps an older one out", n)
	}
	put(t, operator, block("a", time.Hour))
	watchers[0].await("[a]")
	// All of it goes when nothing can come back any more.
	if n, err := operator.Sweep(t.Context(), time.Now().Add(3*time.Hour)); err != nil || n != 2 {
		t.Errorf("%d entries taken out, %v", n, err)
	}
}

// While keys are changed, readers take what either has signed; when the old one goes, what it has
// signed goes for those who start.
func TestBlocksWhileKeysAreChanged(t *testing.T) {
	before, after := signaturetest.NewKey(t), signaturetest.NewKey(t)
	both := trusting(t, false, before, after)
	w := watch(t, open(t, shared, both))
	for i, key := range []*signature.Key{before, after} {
		put(t, open(t, shared, trusting(t, true, key)), block(fmt.Sprint(i), time.Duration(i+1)*time.Hour))
	}
	w.await("[0 1]")
	watch(t, open(t, shared, trusting(t, false, after))).await("[1]")
	if n := both.Verifier.Refusals(); n != 0 {
		t.Errorf("%d were refused", n)
	}
}

// Unsigned entries that are there before there are keys do not count with keys.
func TestUnsignedBlocksDoNotCountWithKeys(t *testing.T) {
	put(t, open(t, shared, blocks.Options{}), block("a", time.Hour))
	key := signaturetest.NewKey(t)
	reading := trusting(t, false, key)
	w := watch(t, open(t, shared, reading))
	w.await("[]")
	put(t, open(t, shared, trusting(t, true, key)), block("a", time.Hour))
	w.await("[a]")
	if reading.Verifier.Refusals() == 0 {
		t.Error("nobody is told")
	}
}

// TestRestoreTakesWhatTheBucketWouldGive: entries that were kept elsewhere hold again, but for
// those that have ended, were lifted, or nobody with a key has signed; and none that is older comes
// back.
func TestRestoreTakesWhatTheBucketWouldGive(t *testing.T) {
	key, ns := signaturetest.NewKey(t), serverstest.Namespace(t)
	operator := open(t, shared, trusting(t, true, key))
	put(t, operator, block("stays", 2*time.Hour))
	put(t, operator, block("ends", time.Hour))
	put(t, operator, block("lifted", 3*time.Hour))
	th := newThief(t)
	older := make(map[string][]byte)
	for _, name := range th.names() {
		older[name] = th.get(name)
	}
	must(t, operator.Delete(t.Context(), "r", "lifted"))
	before := trusting(t, false, key)
	w := watch(t, open(t, shared, before))
	w.await("[ends stays]")
	kept, err := blocks.Snapshot(ns, before.Verifier, nil, time.Now())
	if err != nil || len(kept) != 3 {
		t.Fatalf("%d values, %v", len(kept), err)
	}
	restore := func(namespace string, v *signature.Verifier, kept []diskcache.Value, now time.Time, want string, refusals int) {
		t.Helper()
		list, refused := blocks.Restore(namespace, v, kept, now)
		var keys []string
		for _, e := range list {
			keys = append(keys, e.Key)
		}
		if fmt.Sprint(keys) != want || len(refused) != refusals {
			t.Errorf("%v, refused %v; want %s and %d", keys, refused, want, refusals)
		}
	}
	now := time.Now()
	v := trusting(t, false, key).Verifier
	restore(ns, v, kept, now, "[ends stays]", 0)
	restore(ns, v, kept, now.Add(90*time.Minute), "[stays]", 0)
	restore(ns, trusting(t, false, key).Verifier, kept, now.Add(72*time.Hour), "[]", 0)
	restore(ns, trusting(t, false, signaturetest.NewKey(t)).Verifier, kept, now, "[]", 3)
	restore("other", trusting(t, false, key).Verifier, kept, now, "[]", 3)
	for i := range kept {
		kept[i].Raw = older[kept[i].Key]
	}
	restore(ns, v, kept, now, "[ends stays]", 1) // not the one that was lifted

	unsigned, err := blocks.Snapshot(ns, nil, []blocks.Block{block("a", time.Hour)}, now)
	must(t, err)
	restore(ns, nil, unsigned, now, "[a]", 0)
	restore(ns, v, unsigned, now, "[]", 1)
	restore(ns, nil, []diskcache.Value{{Key: "x", Raw: []byte("{")}}, now, "[]", 1)
}
