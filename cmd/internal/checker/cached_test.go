package checker

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/offpath-io/offpath/internal/blocks"
	"github.com/offpath-io/offpath/internal/natsconn"
	"github.com/offpath-io/offpath/internal/natssource"
	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/servers"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
	"github.com/offpath-io/offpath/internal/testing/signaturetest"
	"github.com/offpath-io/offpath/pkg/signature"
)

// restarted is a fleet's NATS, and checkers that come one after the other.
type restarted struct {
	*testing.T
	bus    *servers.NATS
	keys   []*signature.Key // of rules and of blocks; none: nothing is signed
	change changes
	blocks *blocks.Bucket
	args   []string
}

func newRestarted(t *testing.T, keys ...*signature.Key) *restarted {
	t.Helper()
	r := &restarted{T: t, bus: serverstest.JetStream(t), keys: keys}
	r.args = []string{"--rules", "nats", "--nats", r.bus.URL(), "--cache-dir", filepath.Join(t.TempDir(), "cache")}
	var o blocks.Options
	var ofRules *signature.Key
	if keys != nil {
		ofRules, o = keys[0], blocks.Options{Verifier: signaturetest.Verifier(t, keys[1]), Key: func() *signature.Key { return keys[1] }}
		r.args = append(r.args, "--rules-public-keys", keys[0].Public(), "--entries-public-keys", keys[1].Public())
	}
	r.change = inSignedBucket(t, r.bus.URL(), ofRules)
	var err error
	r.blocks, err = blocks.New(serverstest.Connect(t, r.bus.URL()), natsconn.DefaultNamespace, o)
	must(t, err)
	return r
}

func (r *restarted) dir() string { return r.args[5] }

func (r *restarted) block(user string, span time.Duration) {
	r.Helper()
	now := time.Now()
	must(r, r.blocks.Put(r.Context(), blocks.Block{Rule: "per-user", Key: user, At: now, Until: now.Add(span)}))
}

// has waits until a limit is in force, and until as many keys are blocked.
func (r *restarted) has(d *daemontest.Daemon, limit int64, blocked string) {
	r.Helper()
	d.AwaitMetric("offpath_blocked_keys", blocked)
	d.Await("the limit is there", func() bool {
		_, a := ask(r.T, d, `{"attributes":{"user":"somebody"},"mode":"peek"}`)
		return a.Limit != nil && *a.Limit == limit
	})
}

// begin starts a checker, which has to decide by a limit and by its blocks at once.
func (r *restarted) begin(limit int64, kristies int) *daemontest.Daemon {
	r.Helper()
	d := startChecker(r.T, r.args...)
	readyz(r.T, d, 200, `"ready":true`)
	equal(r, "limit", *asks(r.T, d, `{"attributes":{"user":"somebody"},"mode":"peek"}`, 200).Limit, limit)
	asks(r.T, d, kristie, kristies)
	return d
}

// TestARestartWithoutNATSKeepsRulesAndBlocks: a checker that starts while NATS is away has the
// rules and blocks of the one before, and newer ones as soon as there are any. Where they are
// signed it takes no older ones, though the bucket has nothing else, and though those were signed,
// too.
func TestARestartWithoutNATSKeepsRulesAndBlocks(t *testing.T) {
	for name, keys := range map[string][]*signature.Key{"signed": {signaturetest.NewKey(t), signaturetest.NewKey(t)}, "unsigned": nil} {
		t.Run(name, func(t *testing.T) {
			r := newRestarted(t, keys...)
			r.change(daily(3))
			js := serverstest.JetStreamOf(t, serverstest.Connect(t, r.bus.URL()))
			kv, err := js.KeyValue(t.Context(), natssource.Name(natsconn.DefaultNamespace))
			must(t, err)
			older, err := kv.Get(t.Context(), natssource.Key)
			must(t, err)
			r.change(daily(100))
			r.block("kristie", time.Hour)
			first := startChecker(t, r.args...)
			r.has(first, 100, "1")
			first.MustStop()

			if keys != nil { // somebody has written over all of it
				must(t, kv.Purge(t.Context(), natssource.Key))
				_, err = kv.Put(t.Context(), natssource.Key, older.Value())
				must(t, err)
				must(t, js.DeleteKeyValue(t.Context(), blocks.Name(natsconn.DefaultNamespace)))
				d := r.begin(100, 429)
				d.AwaitMetric(`offpath_signature_refusals_total{bucket="rules"}`, "1")
				d.MustStop()
			}
			must(t, r.bus.Stop())
			d := r.begin(100, 429)
			for _, words := range []string{"starting with rules of the cache", "revision=2", "age=", "starting with blocks of the cache"} {
				d.AwaitLog(words)
			}
			equal(t, "revision", d.Metric("offpath_cache_rules_revision"), "2")
			must(t, r.bus.Restart()) // without what was in it
			d.AwaitMetric("offpath_nats_connected", "1")
			r.change(daily(200))
			if keys == nil { // else it is in force all the same
				r.block("kristie", time.Hour)
			}
			r.block("another", time.Hour)
			r.has(d, 200, "2")
			d.MustStop()
			must(t, r.bus.Stop())
			r.begin(200, 429).MustStop()
		})
	}
}

// TestABadCacheIsNeverInForce: whatever is in the directory, the checker starts, says so, and waits
// for rules as if there were no cache.
func TestABadCacheIsNeverInForce(t *testing.T) {
	r := newRestarted(t, signaturetest.NewKey(t), signaturetest.NewKey(t))
	r.change(daily(100))
	r.block("kristie", time.Hour)
	first := startChecker(t, r.args...)
	r.has(first, 100, "1")
	first.MustStop()
	must(t, r.bus.Stop())
	good := make(map[string][]byte)
	for _, bucket := range []string{"offpath-rules", "offpath-entries"} {
		data, err := os.ReadFile(filepath.Join(r.dir(), bucket+".cache"))
		must(t, err)
		good[bucket] = data
	}
	stranger := signaturetest.NewKey(t).Public()
	for _, test := range []struct {
		why, rulesKey, entriesKey, want string
		change                          func(data, other []byte) []byte
	}{
		{"cut off", r.keys[0].Public(), r.keys[1].Public(), "checksum", func(data, _ []byte) []byte { return data[:len(data)/2] }},
		{"of each other's bucket", r.keys[0].Public(), r.keys[1].Public(), "it is of", func(_, other []byte) []byte { return other }},
		{"signed with other keys", stranger, stranger, "not trusted", func(data, _ []byte) []byte { return data }},
		{"signed with each other's key", r.keys[1].Public(), r.keys[0].Public(), "not trusted", func(data, _ []byte) []byte { return data }},
	} {
		t.Run(test.why, func(t *testing.T) {
			dir := t.TempDir()
			must(t, os.WriteFile(filepath.Join(dir, "offpath-rules.cache"), test.change(good["offpath-rules"], good["offpath-entries"]), 0o600))
			must(t, os.WriteFile(filepath.Join(dir, "offpath-entries.cache"), test.change(good["offpath-entries"], good["offpath-rules"]), 0o600))
			d := startChecker(t, "--rules", "nats", "--nats", r.bus.URL(), "--cache-dir", dir,
				"--rules-public-keys", test.rulesKey, "--entries-public-keys", test.entriesKey)
			readyz(t, d, 503, `"ready":false`)
			equal(t, "blocked keys", d.Metric("offpath_blocked_keys"), "0")
			for _, bucket := range []string{"rules", "entries"} {
				equal(t, bucket, d.Metric(`offpath_cache_failures_total{bucket="`+bucket+`"}`), "1")
			}
			d.MustStop()
			if n := strings.Count(d.Stderr(), test.want); n != 2 {
				t.Errorf("it says %q %d times, want one for each file:\n%s", test.want, n, d.Stderr())
			}
		})
	}
}

// TestCacheDirectory: the default is systemd's, if there is one; "none" is none; a
// directory that cannot be written keeps no checker from working.
func TestCacheDirectory(t *testing.T) {
	const state = "/var/lib/state"
	for _, test := range []struct {
		env, args string
		want      string
	}{
		{"", "", ""},
		{state + ":/other", "", state},
		{state, "--cache-dir none", ""},
		{state, "--cache-dir /x", "/x"},
	} {
		args := append(strings.Fields(test.args), "--nats", "nats://127.0.0.1:1", "--rules", "nats")
		if c := readConfig(t, map[string]string{"STATE_DIRECTORY": test.env}, args...); c.cacheDir != test.want {
			t.Errorf("%+v: %q", test, c.cacheDir)
		}
	}
	r := newRestarted(t)
	r.change(daily(100))
	r.args[5] = filepath.Join(writeFile(t, "not a directory"), "cache")
	d := startChecker(t, r.args...)
	r.has(d, 100, "0")
	d.AwaitLog("what is in force is not in the cache")
	d.MustStop()
}
