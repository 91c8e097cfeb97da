package natssource_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/offpath-io/offpath/internal/natssource"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
	"github.com/offpath-io/offpath/internal/testing/signaturetest"
	"github.com/offpath-io/offpath/pkg/signature"
)

// trusting are the options of a reader that trusts these keys, and of a writer with the first of
// them.
func trusting(t *testing.T, writes bool, keys ...*signature.Key) natssource.Options {
	t.Helper()
	o := fast
	o.Verifier = signaturetest.Verifier(t, keys...)
	if writes {
		o.Key = keys[0]
	}
	return o
}

// signed is a set of a version to come.
func signed(t *testing.T, key *signature.Key, bucket string, expires time.Time) []byte {
	t.Helper()
	const text = "rules: [{name: a, limit: 1/s}]\n"
	signed := signaturetest.Sign(t, key, signature.Claims{
		Bucket: bucket, Key: natssource.Key, Operation: signature.Put, Expires: expires, Version: signaturetest.Newer(),
	}, text)
	return []byte(text + "\n# offpath-signature: " + signed + "\n")
}

// Who may write into the bucket and has no key changes no rules, as a stolen checker's credential
// did by naming the bucket's subject for a reply: neither at those who watch, nor, as long as the
// bucket remembers a set that counts, at those who start.
func TestWhoHasNoKeyChangesNoRules(t *testing.T) {
	key, stranger := signaturetest.NewKey(t), signaturetest.NewKey(t)
	operator, ctx := open(t, shared, trusting(t, true, key)), limited(t)
	first := put(t, operator, "one", 0)
	kv := raw(t, operator)
	conn := serverstest.Connect(t, shared.URL())
	value := func() []byte {
		got, err := kv.Get(ctx, natssource.Key)
		must(t, err)
		return got.Value()
	}
	do := func(_ uint64, err error) { must(t, err) }
	old := value()
	second := put(t, operator, "two", first)
	strange := put(t, open(t, shared, trusting(t, true, stranger)), "strange", 0) // it sees no set, and writes over what is there
	signedByStranger := value()
	if _, err := operator.At(ctx, strange); !errors.Is(err, signature.ErrRefused) {
		t.Errorf("a set that does not count is handed out to be written again: %v", err)
	}

	reading := trusting(t, false, key)
	w := begin(t, shared, reading)
	if seen := w.await("two"); len(seen) != 1 || seen[0].Revision != second {
		t.Errorf("it was told of %+v", seen)
	}
	before := reading.Verifier.Refusals()
	for i, attack := range []func(){
		func() { // the server answers where it is asked to
			do(0, errors.Join(conn.PublishRequest("$JS.API.STREAM.INFO.KV_"+operator.Name(), "$KV."+operator.Name()+"."+natssource.Key, nil), conn.Flush()))
		},
		func() { do(kv.Put(ctx, natssource.Key, []byte("rules: []"))) },
		func() { do(kv.Put(ctx, natssource.Key, old)) },
		func() { do(kv.Put(ctx, natssource.Key, signedByStranger)) },
		func() {
			do(kv.Put(ctx, natssource.Key, signed(t, key, operator.Name(), time.Now().Add(-48*time.Hour))))
		},
		func() { do(kv.Put(ctx, natssource.Key, signed(t, key, "other-rules", time.Time{}))) },
		func() { do(0, kv.Delete(ctx, natssource.Key)) },
	} {
		attack()
		signaturetest.AwaitRefusals(t, reading.Verifier, before+int64(i)+1)
	}
	late := begin(t, shared, trusting(t, false, key))
	if seen := late.await("two"); len(seen) != 1 {
		t.Errorf("who starts is told of %+v", seen)
	}
	if got, err := operator.Get(ctx); err != nil || got.Revision != second || string(got.Data) != "two" || got.SignedBy != key.Public() {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := open(t, shared, reading).Put(ctx, []byte("x"), second); !errors.Is(err, natssource.ErrNoKey) {
		t.Errorf("a set without a key: %v", err)
	}
	do(0, kv.Purge(ctx, natssource.Key)) // and with it what the bucket remembers
	signaturetest.AwaitRefusals(t, reading.Verifier, before+8)
	do(kv.Put(ctx, natssource.Key, old))
	signaturetest.AwaitRefusals(t, reading.Verifier, before+9)
	if len(w.changes) > 0 || len(late.changes) > 0 {
		t.Error("the rules are others now")
	}
	fresh := begin(t, shared, trusting(t, false, stranger))
	fresh.awaitTrouble(natssource.ErrNoRules)
	// The operator's next set counts for all of them, whatever is there.
	do(kv.Put(ctx, natssource.Key, []byte("rules: []")))
	there, err := operator.Get(ctx)
	must(t, err)
	put(t, operator, "three", there.Revision)
	for _, w := range []*watched{w, late} {
		w.await("three")
	}
}

// A set is handed out as it was written, whatever it ends with, and a version that knows no
// signatures finds it good.
func TestASignedSetReadsAsItWasWritten(t *testing.T) {
	key := signaturetest.NewKey(t)
	operator, old := open(t, shared, trusting(t, true, key)), open(t, shared, natssource.Options{})
	at := uint64(0)
	for _, text := range []string{"rules:\n  - {name: a, limit: 1/s}\n", "no end of line", "", "\n", "# offpath-signature: mine\n", "a\n# offpath-signature: x\nb: c\n"} {
		at = put(t, operator, text, at)
		for who, b := range map[string]*natssource.Bucket{"with keys": operator, "without": old} {
			got, err := b.Get(limited(t))
			if err != nil || string(got.Data) != text || got.Revision != at || got.Version == 0 || got.Order() != got.Version {
				t.Errorf("%s: %q came back as %+v, %v", who, text, got, err)
			}
		}
		got, err := raw(t, operator).Get(limited(t), natssource.Key)
		if err != nil || !strings.HasPrefix(string(got.Value()), text) || !strings.Contains(string(got.Value()[len(text):]), "\n# ") {
			t.Errorf("the bucket has %q, %v", got.Value(), err)
		}
	}
	all, err := operator.History(limited(t))
	if err != nil || len(all) != 6 || all[5].Revision != at || all[5].Refused != nil {
		t.Errorf("%+v, %v", all, err)
	}
	if _, err := operator.Put(limited(t), make([]byte, natssource.MaxSize), at); err != nil {
		t.Errorf("as long as may be: %v", err)
	}
}

// While keys are changed, readers take what either has signed; a writer with the new key goes on
// where the old one was.
func TestRulesWhileKeysAreChanged(t *testing.T) {
	before, after := signaturetest.NewKey(t), signaturetest.NewKey(t)
	both := trusting(t, false, before, after)
	w := begin(t, shared, both)
	first := put(t, open(t, shared, trusting(t, true, before)), "one", 0)
	w.await("one")
	put(t, open(t, shared, trusting(t, true, after, before)), "two", first)
	w.await("two")
	begin(t, shared, trusting(t, false, after)).await("two")
	if n := both.Verifier.Refusals(); n != 0 {
		t.Errorf("%d were refused", n)
	}
}

// Rules go on through a bucket that is lost and made again, and through one that somebody else
// makes.
func TestVersionsOutliveTheBucket(t *testing.T) {
	key := signaturetest.NewKey(t)
	operator, reading := open(t, shared, trusting(t, true, key)), trusting(t, false, key)
	put(t, operator, "one", 0)
	got, err := raw(t, operator).Get(limited(t), natssource.Key)
	must(t, err)
	put(t, operator, "two", got.Revision())
	w := begin(t, shared, reading)
	w.await("two")
	serverstest.DropBucket(t, shared.URL(), operator.Name())
	put(t, open(t, shared, fast), string(got.Value()), 0)
	signaturetest.AwaitRefusals(t, reading.Verifier, 1)
	put(t, operator, "three", got.Revision())
	if seen := w.await("three"); len(seen) != 1 {
		t.Errorf("told of %s", fmt.Sprint(seen))
	}
}
