package deploy_test

import (
	"context"
	"errors"
	"flag"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/offpath-io/offpath/internal/testing/deploytest"
	"github.com/offpath-io/offpath/pkg/rules/natssource"
)

// TestNATSAccounts asks the server, user by user, what they may publish and hear: no checker can
// speak as another or hear what another is told, none reads decision logs or writes rules, and
// nobody deletes a log.
func TestNATSAccounts(t *testing.T) {
	n := deploytest.NATS(t)
	for user, may := range map[string]struct{ publish, hear, neither string }{
		"checker-1": {
			publish: `
				offpath.report.v1.0.checker-1.ab offpath.lease.v1.12.checker-1.ab offpath.hello.v1.checker-1.ab
				offpath.status.v1.checker.checker-1.ab offpath.denied.v1.checker-1.ab`,
			hear: `
				offpath.refresh.v1.checker-1.ab offpath.grant.v1.checker-1.ab offpath.welcome.v1.checker-1.ab
				offpath.alarm.v1.0 offpath.alarm.v1.* _INBOX.checker-1.x.y`,
			neither: `
				$JS.API.STREAM.CREATE.offpath-denied $JS.API.CONSUMER.CREATE.offpath-denied.x offpath.denied.v1.>
				offpath.console.v1.* offpath.status.v1.> $JS.API.STREAM.MSG.GET.KV_offpath-entries
				$JS.API.STREAM.UPDATE.KV_offpath-rules $SYS.> offpath.denied.v1.checker-2.ab
				offpath.console.v1.reset $KV.offpath-entries.x offpath.audit.v1 offpath.status.v1.aggregator.a
				offpath.report.v1.0.checker-2.ab offpath.lease.v1.0.checker-2.ab offpath.hello.v1.checker-2.ab
				offpath.status.v1.checker.checker-2.ab offpath.report.v1.0.ab offpath.report.v1.>
				offpath.refresh.v1.checker-2.ab offpath.grant.v1.checker-2.* offpath.refresh.v1.> offpath.> >
				_INBOX.> _INBOX.checker-2.x $KV.offpath-rules.rules $JS.API.STREAM.DELETE.KV_offpath-rules
				$JS.API.STREAM.CREATE.mine $JS.API.STREAM.PURGE.KV_offpath-rules $JS.API.CONSUMER.CREATE.other.x`,
		},
		"checker-2": {
			publish: `offpath.report.v1.0.checker-2.ab`,
			hear:    `offpath.refresh.v1.checker-2.ab`,
			neither: `offpath.report.v1.0.checker-1.ab`,
		},
		"aggregator": {
			publish: `
				offpath.refresh.v1.checker-1.ab offpath.grant.v1.checker-1.ab offpath.welcome.v1.checker-1.ab
				offpath.alarm.v1.3 $KV.offpath-entries.x $JS.API.STREAM.CREATE.offpath-denied`,
			hear: `
				offpath.report.v1.0.checker-1.ab offpath.lease.v1.0.checker-1.ab offpath.hello.v1.checker-1.ab
				offpath.status.v1.checker.checker-1.ab _INBOX.checker-1.x.y`,
			neither: `
				$KV.offpath-rules.rules $JS.API.STREAM.DELETE.KV_offpath-rules $JS.API.STREAM.UPDATE.offpath-denied
				offpath.denied.v1.checker-1.ab $JS.API.STREAM.CREATE.mine $JS.API.STREAM.DELETE.offpath-audit`,
		},
		"operator": {
			publish: `offpath.console.v1.reset $KV.offpath-rules.rules $KV.offpath-entries.x`,
			hear:    `offpath.denied.v1.checker-1.ab`,
			neither: `
				$JS.API.STREAM.DELETE.offpath-denied $JS.API.STREAM.PURGE.offpath-audit
				offpath.report.v1.0.checker-1.ab offpath.alarm.v1.0`,
		},
	} {
		url := n.URL(t, user)
		for subject := range strings.FieldsSeq(may.publish + " " + may.hear + " " + may.neither) {
			canPublish, canHear := slices.Contains(strings.Fields(may.publish), subject), slices.Contains(strings.Fields(may.hear), subject)
			if got := isAllowed(t, url, func(c *nats.Conn) error { _, err := c.SubscribeSync(subject); return err }); got != canHear {
				t.Errorf("%s hears %s: %v", user, subject, got)
			}
			if strings.ContainsAny(subject, "*>") {
				continue
			}
			if got := isAllowed(t, url, func(c *nats.Conn) error { return c.Publish(subject, []byte("{}")) }); got != canPublish {
				t.Errorf("%s publishes %s: %v", user, subject, got)
			}
		}
	}
	for _, url := range []string{n.URL(t, ""), strings.Replace(n.URL(t, "checker-1"), "of-checker-1", "guess", 1)} {
		if conn, err := nats.Connect(url); !errors.Is(err, nats.ErrAuthorization) {
			conn.Close()
			t.Errorf("%s: %v", url, err)
		}
	}
}

// isAllowed says whether the server lets a user do something: it reports a violation before it
// answers a ping.
func isAllowed(t *testing.T, url string, do func(*nats.Conn) error) bool {
	t.Helper()
	conn, err := nats.Connect(url, nats.ErrorHandler(quiet))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := errors.Join(do(conn), conn.Flush()); err != nil {
		t.Fatal(err)
	}
	return !errors.Is(conn.LastError(), nats.ErrPermissionViolation)
}

// quiet ignores violations, which are expected.
func quiet(*nats.Conn, *nats.Subscription, error) {}

// TestRulesOverNATS: the operator writes them, a checker watches, and can do no more.
func TestRulesOverNATS(t *testing.T) {
	n := deploytest.NATS(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	bucket := func(user string) *natssource.Bucket {
		conn, err := nats.Connect(n.URL(t, user), nats.CustomInboxPrefix("_INBOX."+user), nats.ErrorHandler(quiet))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(conn.Close)
		b, err := natssource.New(conn, "offpath", natssource.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	operator, checker := bucket("operator"), bucket("checker-1")
	put := func(text string, over uint64) uint64 {
		t.Helper()
		revision, err := operator.Put(ctx, []byte(text), over)
		if err != nil {
			t.Fatal(err)
		}
		return revision
	}
	first := put("one", 0)
	seen := make(chan string, 10)
	watching, stop := context.WithCancel(ctx)
	defer stop()
	go checker.Watch(watching, func(e natssource.Entry) { seen <- string(e.Data) }, func(err error) {
		if err != nil && watching.Err() == nil {
			t.Error(err)
		}
	})
	if got := <-seen; got != "one" {
		t.Errorf("it sees %q", got)
	}
	second := put("two", first)
	if got := <-seen; got != "two" {
		t.Errorf("it sees %q", got)
	}
	if all, err := operator.History(ctx); err != nil || len(all) != 2 {
		t.Errorf("history: %v, %v", all, err)
	}
	if e, err := operator.At(ctx, first); err != nil || string(e.Data) != "one" {
		t.Errorf("revision %d: %v, %v", first, e, err)
	}
	short, enough := context.WithTimeout(ctx, 500*time.Millisecond) // what NATS refuses is not answered
	defer enough()
	if _, err := checker.Put(short, []byte("mine"), second); err == nil {
		t.Error("a checker wrote rules")
	}
	if e, err := operator.Get(ctx); err != nil || string(e.Data) != "two" {
		t.Errorf("there is %q, %v", e.Data, err)
	}
}

// TestNATSConfigurationIsValid, by what "nats-server -t" does.
func TestNATSConfigurationIsValid(t *testing.T) {
	for _, name := range regexp.MustCompile(`\$(NATS_\w+)`).FindAllStringSubmatch(deploytest.Read(t, "nats.conf"), -1) {
		t.Setenv(name[1], "secret")
	}
	flags := flag.NewFlagSet("nats-server", flag.ContinueOnError)
	if _, err := server.ConfigureOptions(flags, []string{"-t", "-c", "nats.conf"}, nil, nil, nil); err != nil {
		t.Error(err)
	}
}
