package checker

import (
	"fmt"
	"os"
	"strings"
	"testing"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/offpath-io/offpath/internal/natsconn"
	"github.com/offpath-io/offpath/internal/natssource"
	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/signature"
)

// changes is a way to change a running checker's rules.
type changes func(text string)

// inBucket writes the bucket of the NATS at url, whatever it holds.
func inBucket(t *testing.T, url string) changes { return inSignedBucket(t, url, nil) }

// inSignedBucket is inBucket with a key that signs.
func inSignedBucket(t *testing.T, url string, key *signature.Key) changes {
	t.Helper()
	bucket, err := natssource.New(serverstest.Connect(t, url), natsconn.DefaultNamespace, natssource.Options{Key: key})
	must(t, err)
	return func(text string) {
		t.Helper()
		there, _ := bucket.Get(t.Context())
		_, err := bucket.Put(t.Context(), []byte(text), there.Revision)
		must(t, err)
	}
}

// loads waits until so many sets have come into force.
func loads(d *daemontest.Daemon, n int) {
	d.AwaitMetric(`offpath_rules_loads_total{outcome="loaded"}`, fmt.Sprint(n))
}

func readyz(t *testing.T, d *daemontest.Daemon, status int, words string) {
	t.Helper()
	if got, body := d.Get("/readyz"); got != status || !strings.Contains(body, words) {
		t.Errorf("readyz: %d %s, want %d and %q", got, body, status, words)
	}
}

// TestRulesChangeWhileItRuns, in the demo's bucket: lower and higher limits, and sets that are
// refused. Package offpath tests the bucket of a fleet.
func TestRulesChangeWhileItRuns(t *testing.T) {
	d := startDemo(t)
	loads(d, 1) // a watch tells the newest alone, and this one tells the demo's first
	seed, err := os.ReadFile(d.Find(`rules apply .* --rules-signing-key-file (\S+)`))
	must(t, err)
	key, err := signature.ParseKey(seed)
	must(t, err)
	change := inSignedBucket(t, d.Find(`NATS +(nats://\S+)`), key)
	change(daily(100))
	loads(d, 2)
	for i := range 10 {
		if a := asks(t, d, kristie, 200); *a.Limit != 100 || *a.Remaining != int64(99-i) {
			t.Fatalf("request %d: %+v", i, a)
		}
	}
	readyz(t, d, 200, `"rules":"revision `)

	answers := func(status, limit int) {
		t.Helper()
		equal(t, "limit", *asks(t, d, kristie, status).Limit, int64(limit))
	}
	change(daily(5))
	loads(d, 3)
	answers(429, 5)
	change(daily(12)) // counts have stayed, and who was blocked is free at once
	loads(d, 4)
	answers(200, 12)
	answers(200, 12)
	answers(429, 12)

	change(strings.Replace(daily(1000), "key:", "keys:", 1))
	d.Await("it says what it refuses", func() bool {
		_, body := d.Get("/readyz")
		return strings.Contains(body, "refused: line 3, column 5: unknown field")
	})
	readyz(t, d, 200, `"ready":true`)
	d.AwaitMetric("offpath_rules_refused", "1")
	d.AwaitLog("rules refused: the one before stays in force")
	answers(429, 12)
	asks(t, d, `{"attributes":{"user":"someone else"}}`, 200)

	change(daily(1000))
	loads(d, 5)
	d.AwaitMetric("offpath_rules_refused", "0")
	answers(200, 1000)
}

func TestRulesOfAFileChangeWhileItRuns(t *testing.T) {
	t.Parallel()
	path := writeFile(t, daily(1))
	d := startChecker(t, "--rules", path)
	asks(t, d, kristie, 200)
	asks(t, d, kristie, 429)
	must(t, os.Rename(writeFile(t, daily(2)), path))
	loads(d, 2)
	equal(t, "limit", *asks(t, d, kristie, 200).Limit, 2)
}

// TestRulesAreWaitedFor: a fleet participant whose bucket is not there yet is not ready, decides
// nothing at any listener, and begins with the first good set, which it keeps when NATS goes.
func TestRulesAreWaitedFor(t *testing.T) {
	t.Parallel()
	server := serverstest.JetStream(t)
	startWorker(t, server.URL(), aggregate.Options{})
	d := startChecker(t, "--rules", "nats", "--nats", server.URL())
	if !strings.Contains(d.Stdout(), "none yet") {
		t.Errorf("it says nothing of it:\n%s", d.Stdout())
	}
	d.Await("it says what it waits for", func() bool { // a start does not
		status, body := d.Get("/readyz")
		return status == 503 && strings.Contains(body, "the bucket does not exist yet")
	})
	if status, body := daemontest.Do(t, "POST", apiOf(d), kristie); status != 503 || !strings.Contains(body, "no rules yet") {
		t.Errorf("%d %s", status, body)
	}
	conn := grpcOf(t, d)
	envoy := func(hits uint32) (*ratelimitv3.RateLimitResponse, error) {
		return ratelimitv3.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), letter("ann", hits, 0))
	}
	if _, err := envoy(1); status.Code(err) != codes.Unavailable {
		t.Errorf("without rules: %v", err)
	}
	for _, service := range healthNames {
		equal(t, "health of "+service, healthOf(t.Context(), conn, service), "NOT_SERVING")
	}
	for metric, want := range map[string]string{
		"offpath_rules": "0", "offpath_rules_revision": "0", "offpath_rules_loaded_timestamp_seconds": "",
		"offpath_rules_source_up": "0",
	} {
		equal(t, metric, d.Metric(metric), want)
	}

	change := inBucket(t, server.URL())
	change("rules: []")
	must(t, server.Restart()) // it looks again as soon as it is connected
	d.Await("it says what it refuses", func() bool {
		_, body := d.Get("/readyz")
		return strings.Contains(body, "none yet, refused: line 1, column 8: rules: there are no rules")
	})
	readyz(t, d, 503, `"ready":false`)
	change(theirs)
	loads(d, 1)
	readyz(t, d, 200, `"rules":"revision 2"`)
	daemontest.Eventually(t, "it is healthy", func() bool { return healthOf(t.Context(), conn, "") == "SERVING" })
	if answer, err := envoy(1); err != nil || answer.Statuses[0].LimitRemaining != 4 {
		t.Errorf("with rules: %v, %v", answer, err)
	}
	awaitAnswered(d, "mail|kind=letter|to", 1)

	must(t, server.Stop()) // with the rules
	if answer, err := envoy(5); err != nil || answer.OverallCode != ratelimitv3.RateLimitResponse_OVER_LIMIT {
		t.Errorf("without NATS: %v, %v", answer, err)
	}
	readyz(t, d, 200, `"rules":"revision 2`)
}

// TestStopWithoutRules: a checker that never had any stops as any other.
func TestStopWithoutRules(t *testing.T) {
	t.Parallel()
	startChecker(t, "--rules", "nats", "--nats", serverstest.JetStream(t).URL()).MustStop()
}
