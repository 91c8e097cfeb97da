package checker

import (
	"strings"
	"testing"
	"time"

	"github.com/offpath-io/offpath/internal/blocks"
	"github.com/offpath-io/offpath/internal/natsconn"
	"github.com/offpath-io/offpath/internal/natssource"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
	"github.com/offpath-io/offpath/internal/testing/signaturetest"
	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/signature"
)

// TestAStolenCredentialLiftsNoBlockAndChangesNoRules: at a checker with public keys, whatever
// somebody writes who has none, by replies or at all; and the checker says so. Without public keys
// it says at the start that anybody may.
func TestAStolenCredentialLiftsNoBlockAndChangesNoRules(t *testing.T) {
	url := serverstest.JetStream(t).URL()
	startWorker(t, url, aggregate.Options{})
	ofRules, ofEntries := signaturetest.NewKey(t), signaturetest.NewKey(t)
	inSignedBucket(t, url, ofRules)(daily(5))
	conn := serverstest.Connect(t, url)
	bucket, err := blocks.New(conn, natsconn.DefaultNamespace, blocks.Options{Verifier: signaturetest.Verifier(t, ofEntries), Key: func() *signature.Key { return ofEntries }})
	must(t, err)
	now := time.Now()
	must(t, bucket.Put(t.Context(), blocks.Block{Rule: "per-user", Key: "kristie", At: now, Until: now.Add(time.Hour)}))

	d := startChecker(t, "--rules", "nats", "--nats", url, "--rules-public-keys", ofRules.Public()+","+signaturetest.NewKey(t).Public(), "--entries-public-keys", ofEntries.Public())
	loads(d, 1)
	d.AwaitMetric("offpath_blocked_keys", "1") // which a start waits for no longer than a second
	asks(t, d, kristie, 429)
	kv := serverstest.Bucket(t, url, blocks.Name(natsconn.DefaultNamespace))
	names, err := kv.Keys(t.Context())
	must(t, err)
	must(t, conn.PublishRequest("$JS.API.STREAM.INFO.KV_offpath-entries", "$KV.offpath-entries."+names[0], nil))
	must(t, conn.PublishRequest("$JS.API.STREAM.INFO.KV_offpath-rules", "$KV.offpath-rules."+natssource.Key, nil))
	isRefused := func(bucket, before string) (count string) {
		t.Helper()
		d.Await("it is refused in "+bucket, func() bool {
			count = d.Metric(`offpath_signature_refusals_total{bucket="` + bucket + `"}`)
			return count != before
		})
		return count
	}
	isRefused("entries", "0")
	before := isRefused("rules", "0")
	inBucket(t, url)(daily(1000))
	isRefused("rules", before)
	asks(t, d, kristie, 429)
	equal(t, "limit", *asks(t, d, `{"attributes":{"user":"someone else"}}`, 200).Limit, int64(5))
	readyz(t, d, 200, `"rules":"revision 1`)
	d.AwaitLog("a value in a NATS bucket does not count")
	d.MustStop()
	if strings.Contains(d.Stderr(), "UNSIGNED") || strings.Contains(d.Stderr(), "level=WARN") {
		t.Errorf("with public keys:\n%s", d.Stderr())
	}

	open := startChecker(t, "--rules", "nats", "--nats", url)
	open.AwaitLog("UNSIGNED rules and blocks")
	open.MustStop()
	if n := strings.Count(open.Stderr(), "UNSIGNED"); n != 1 {
		t.Errorf("it says so %d times", n)
	}
}
