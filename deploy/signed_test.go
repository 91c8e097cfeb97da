package deploy_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/offpath-io/offpath/internal/blocks"
	"github.com/offpath-io/offpath/internal/natssource"
	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/deploytest"
	"github.com/offpath-io/offpath/internal/testing/signaturetest"
	"github.com/offpath-io/offpath/pkg/signature"
)

// signed is a bucket whose values count that a key has signed.
type signed struct {
	*testing.T
	n    *deploytest.NATSServer
	ctx  context.Context
	key  *signature.Key
	told chan string         // what a checker has in force
	took *signature.Verifier // that checker's
}

func newSigned(t *testing.T) *signed {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	key := signaturetest.NewKey(t)
	s := &signed{T: t, n: deploytest.NATS(t), ctx: ctx, key: key, told: make(chan string, 100)}
	s.took = s.verifier()
	return s
}

func (s *signed) verifier() *signature.Verifier {
	s.Helper()
	return signaturetest.Verifier(s, s.key)
}

// await waits until this is in force, and nothing else was before.
func (s *signed) await(told <-chan string, want string) {
	s.Helper()
	select {
	case got := <-told:
		if got != want {
			s.Fatalf("in force is %s, want %s", got, want)
		}
	case <-s.ctx.Done():
		s.Fatalf("%s is never in force", want)
	}
}

// first is the first value that was written into a bucket.
func (s *signed) first(bucket string) *nats.Msg {
	s.Helper()
	m, err := connectAs(s.T, s.n, "checker-1").Request("$JS.API.DIRECT.GET.KV_"+bucket, []byte(`{"seq":1}`), time.Minute)
	must(s, err)
	return m
}

// attack writes into a bucket, and deletes there, with a password that is enough for that, and
// waits until the checker has refused it. It returns what writes the same with the key.
func (s *signed) attack(
	user, bucket string, old *nats.Msg, o signature.Operation, data, form string,
) (withKey func()) {
	s.Helper()
	js, err := jetstream.New(connectAs(s.T, s.n, user))
	must(s, err)
	kv, err := js.KeyValue(s.ctx, bucket)
	must(s, err)
	name := strings.TrimPrefix(old.Header.Get("Nats-Subject"), "$KV."+bucket+".")
	stranger := signaturetest.NewKey(s)
	now := time.Now()
	value := func(by *signature.Key, bucket string, expires time.Time) string {
		s.Helper()
		text := signaturetest.Sign(s, by, signature.Claims{
			Bucket: bucket, Key: name, Operation: o, Expires: expires, Version: signaturetest.Newer(),
		}, data)
		return fmt.Sprintf(form, text)
	}
	later := now.Add(3 * time.Hour)
	good := value(s.key, bucket, later)
	for what, bad := range map[string]string{
		"unsigned": data, "altered": " " + good, "older": string(old.Data), "of a stranger": value(stranger, bucket, later),
		"of elsewhere": value(s.key, "offpath-other", later),
		"expired":      value(s.key, bucket, now.Add(-48*time.Hour)), "deleted": "",
	} {
		before := s.took.Refusals()
		if bad == "" {
			err = kv.Delete(s.ctx, name)
		} else {
			_, err = kv.PutString(s.ctx, name, bad)
		}
		must(s, err)
		daemontest.Eventually(s, what+" is refused", func() bool { return s.took.Refusals() > before })
	}
	if len(s.told) > 0 {
		s.Fatalf("in force is %s now", <-s.told)
	}
	return func() {
		s.Helper()
		_, err := kv.PutString(s.ctx, name, good)
		must(s, err)
	}
}

// TestWhoHasNoKeyChangesNoRules, though an operator's password is enough to write them; who has the
// key writes rules that checkers watch, sees what does not count, and goes back to what was.
func TestWhoHasNoKeyChangesNoRules(t *testing.T) {
	s := newSigned(t)
	bucket := func(user string, v *signature.Verifier, key *signature.Key) *natssource.Bucket {
		b, err := natssource.New(connectAs(t, s.n, user), "offpath", natssource.Options{Verifier: v, Key: key})
		must(t, err)
		return b
	}
	watch := func(user string, v *signature.Verifier, told chan<- string) {
		b := bucket(user, v, nil)
		go b.Watch(s.ctx, func(e natssource.Entry) { told <- string(e.Data) }, func(error) {})
	}
	operator := bucket("operator", s.verifier(), s.key)
	put := func(data []byte, over uint64) uint64 {
		t.Helper()
		revision, err := operator.Put(s.ctx, data, over)
		must(t, err)
		return revision
	}
	first := put([]byte("one"), 0)
	second := put([]byte("two"), first)
	watch("checker-1", s.took, s.told)
	s.await(s.told, "two")
	withKey := s.attack("operator", operator.Name(), s.first(operator.Name()), signature.Put,
		"rules: []", "rules: []\n# offpath-signature: %s\n")
	late := make(chan string, 100)
	watch("checker-2", s.verifier(), late)
	s.await(late, "two")
	if e, err := operator.Get(s.ctx); err != nil || string(e.Data) != "two" {
		t.Errorf("the operator has %q, %v", e.Data, err)
	}
	all, err := operator.History(s.ctx)
	if must(t, err); len(all) != 9 {
		t.Errorf("%d revisions", len(all))
	}
	for _, e := range all {
		if counts := e.Revision <= second || string(e.Data) == "one"; counts != (e.Refused == nil) {
			t.Errorf("revision %d: %q, %v", e.Revision, e.Data, e.Refused)
		}
	}
	before, err := operator.At(s.ctx, first)
	must(t, err)
	put(before.Data, second)
	s.await(s.told, "one")
	s.await(late, "one")
	withKey()
	s.await(s.told, "rules: []")
}

// TestWhoHasNoKeyLiftsNoBlock, though the aggregators' password is enough to write blocks; who has
// the key puts back what was written over, lifts it, and blocks again.
func TestWhoHasNoKeyLiftsNoBlock(t *testing.T) {
	s := newSigned(t)
	bucket := func(user string, o blocks.Options) *blocks.Bucket {
		b, err := blocks.New(connectAs(t, s.n, user), "offpath", o)
		must(t, err)
		return b
	}
	watch := func(b *blocks.Bucket, told chan<- string) {
		last := ""
		go b.Watch(s.ctx, func(all []blocks.Block) {
			text, err := json.Marshal(all)
			if must(t, err); string(text) != last { // what is put back is told again
				last = string(text)
				told <- last
			}
		}, func(error) {})
	}
	aggregator := bucket("aggregator", blocks.Options{Verifier: s.verifier(), Key: func() *signature.Key { return s.key }})
	block := func(d time.Duration) string {
		t.Helper()
		now := time.Now().Truncate(time.Second).UTC()
		e := blocks.Block{Rule: "per-user", Key: "mallory", At: now, Until: now.Add(d)}
		must(t, aggregator.Put(s.ctx, e))
		text, err := json.Marshal([]blocks.Block{e})
		must(t, err)
		return string(text)
	}
	block(2 * time.Hour)
	old := s.first(blocks.Name("offpath"))
	blocked := block(time.Hour)
	own := make(chan string, 100)
	watch(aggregator, own)
	s.await(own, blocked)
	watch(bucket("checker-1", blocks.Options{Verifier: s.took}), s.told)
	s.await(s.told, blocked)
	withKey := s.attack("aggregator", blocks.Name("offpath"), old, signature.Lift,
		`{"action":"unblock"}`, `{"action":"unblock","signature":"%s"}`)
	_, err := aggregator.Sweep(s.ctx, time.Now())
	must(t, err)
	late := make(chan string, 100)
	watch(bucket("checker-2", blocks.Options{Verifier: s.verifier()}), late)
	s.await(late, blocked)
	must(t, aggregator.Delete(s.ctx, "per-user", "mallory"))
	s.await(s.told, "[]")
	s.await(late, "[]")
	blocked = block(90 * time.Minute)
	s.await(s.told, blocked)
	s.await(late, blocked)
	withKey()
	s.await(s.told, "[]")
}
