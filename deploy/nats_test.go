package deploy_test

import (
	"context"
	"errors"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/offpath-io/offpath/internal/testing/deploytest"
	"github.com/offpath-io/offpath/pkg/rules/natssource"
)

// TestNATSAccounts asks the server, user by user, what they may publish and hear.
func TestNATSAccounts(t *testing.T) {
	n := deploytest.NATS(t)
	const yes, no = true, false
	for _, tt := range []struct {
		why, user, subject string
		publish, subscribe bool
	}{
		{"its own reports", "checker-1", "offpath.report.v1.0.checker-1.ab", yes, no},
		{"its own lease requests", "checker-1", "offpath.lease.v1.12.checker-1.ab", yes, no},
		{"its own hellos", "checker-1", "offpath.hello.v1.checker-1.ab", yes, no},
		{"its own status", "checker-1", "offpath.status.v1.checker.checker-1.ab", yes, no},
		{"its own decision log", "checker-1", "offpath.denied.v1.checker-1.ab", yes, no},
		{"the decision log's stream", "checker-1", "$JS.API.STREAM.CREATE.offpath-denied", no, no},
		{"a reading of the decision log", "checker-1", "$JS.API.CONSUMER.CREATE.offpath-denied.x", no, no},
		{"all decision logs", "checker-1", "offpath.denied.v1.>", no, no},
		{"what commands ask", "checker-1", "offpath.console.v1.*", no, no},
		{"what others tell of themselves", "checker-1", "offpath.status.v1.>", no, no},
		{"a raw read of the blocks", "checker-1", "$JS.API.STREAM.MSG.GET.KV_offpath-entries", no, no},
		{"other settings of the rules' stream", "checker-1", "$JS.API.STREAM.UPDATE.KV_offpath-rules", no, no},
		{"the server's own account", "checker-1", "$SYS.>", no, no},
		{"another's decision log", "checker-1", "offpath.denied.v1.checker-2.ab", no, no},
		{"a command", "checker-1", "offpath.console.v1.reset", no, no},
		{"a block", "checker-1", "$KV.offpath-entries.x", no, no},
		{"the audit log", "checker-1", "offpath.audit.v1", no, no},
		{"an aggregator's status", "checker-1", "offpath.status.v1.aggregator.a", no, no},
		{"another's reports", "checker-1", "offpath.report.v1.0.checker-2.ab", no, no},
		{"another's lease requests", "checker-1", "offpath.lease.v1.0.checker-2.ab", no, no},
		{"another's hellos", "checker-1", "offpath.hello.v1.checker-2.ab", no, no},
		{"another's status", "checker-1", "offpath.status.v1.checker.checker-2.ab", no, no},
		{"reports in nobody's name", "checker-1", "offpath.report.v1.0.ab", no, no},
		{"all reports", "checker-1", "offpath.report.v1.>", no, no},
		{"its own refreshes", "checker-1", "offpath.refresh.v1.checker-1.ab", no, yes},
		{"its own grants", "checker-1", "offpath.grant.v1.checker-1.ab", no, yes},
		{"its own welcomes", "checker-1", "offpath.welcome.v1.checker-1.ab", no, yes},
		{"alarms", "checker-1", "offpath.alarm.v1.0", no, yes},
		{"all alarms", "checker-1", "offpath.alarm.v1.*", no, yes},
		{"another's refreshes", "checker-1", "offpath.refresh.v1.checker-2.ab", no, no},
		{"another's grants", "checker-1", "offpath.grant.v1.checker-2.*", no, no},
		{"all refreshes", "checker-1", "offpath.refresh.v1.>", no, no},
		{"all of the fleet", "checker-1", "offpath.>", no, no},
		{"everything", "checker-1", ">", no, no},
		{"its own inbox", "checker-1", "_INBOX.checker-1.x.y", no, yes},
		{"all inboxes", "checker-1", "_INBOX.>", no, no},
		{"another's inbox", "checker-1", "_INBOX.checker-2.x", no, no},
		{"a write of rules", "checker-1", "$KV.offpath-rules.rules", no, no},
		{"a stream's end", "checker-1", "$JS.API.STREAM.DELETE.KV_offpath-rules", no, no},
		{"a stream of its own", "checker-1", "$JS.API.STREAM.CREATE.mine", no, no},
		{"a purge", "checker-1", "$JS.API.STREAM.PURGE.KV_offpath-rules", no, no},
		{"a consumer of something else", "checker-1", "$JS.API.CONSUMER.CREATE.other.x", no, no},
		{"the other one's own reports", "checker-2", "offpath.report.v1.0.checker-2.ab", yes, no},
		{"the other one's refreshes", "checker-2", "offpath.refresh.v1.checker-2.ab", no, yes},
		{"the first one's", "checker-2", "offpath.report.v1.0.checker-1.ab", no, no},
		{"refreshes", "aggregator", "offpath.refresh.v1.checker-1.ab", yes, no},
		{"grants", "aggregator", "offpath.grant.v1.checker-1.ab", yes, no},
		{"welcomes", "aggregator", "offpath.welcome.v1.checker-1.ab", yes, no},
		{"alarms", "aggregator", "offpath.alarm.v1.3", yes, no},
		{"reports", "aggregator", "offpath.report.v1.0.checker-1.ab", no, yes},
		{"lease requests", "aggregator", "offpath.lease.v1.0.checker-1.ab", no, yes},
		{"hellos", "aggregator", "offpath.hello.v1.checker-1.ab", no, yes},
		{"a write of rules", "aggregator", "$KV.offpath-rules.rules", no, no},
		{"a stream's end", "aggregator", "$JS.API.STREAM.DELETE.KV_offpath-rules", no, no},
		{"a checker's status", "aggregator", "offpath.status.v1.checker.checker-1.ab", no, yes},
		{"a block", "aggregator", "$KV.offpath-entries.x", yes, no},
		{"the decision log's stream", "aggregator", "$JS.API.STREAM.CREATE.offpath-denied", yes, no},
		{"other settings of it", "aggregator", "$JS.API.STREAM.UPDATE.offpath-denied", no, no},
		{"a checker's decision log", "aggregator", "offpath.denied.v1.checker-1.ab", no, no},
		{"another stream", "aggregator", "$JS.API.STREAM.CREATE.mine", no, no},
		{"a checker's inbox, unasked", "aggregator", "_INBOX.checker-1.x.y", no, yes},
		{"the audit log's end", "aggregator", "$JS.API.STREAM.DELETE.offpath-audit", no, no},
		{"a command", "operator", "offpath.console.v1.reset", yes, no},
		{"a write of rules", "operator", "$KV.offpath-rules.rules", yes, no},
		{"a block without an aggregator", "operator", "$KV.offpath-entries.x", yes, no},
		{"a checker's decision log", "operator", "offpath.denied.v1.checker-1.ab", no, yes},
		{"the decision log's end", "operator", "$JS.API.STREAM.DELETE.offpath-denied", no, no},
		{"the audit log's end", "operator", "$JS.API.STREAM.PURGE.offpath-audit", no, no},
		{"reports", "operator", "offpath.report.v1.0.checker-1.ab", no, no},
		{"alarms", "operator", "offpath.alarm.v1.0", no, no},
	} {
		published, subscribed := tries(t, n.URL(t, tt.user), tt.subject)
		if published != tt.publish && !strings.ContainsAny(tt.subject, "*>") {
			t.Errorf("%s publishes %s (%s): %v", tt.user, tt.why, tt.subject, published)
		}
		if subscribed != tt.subscribe {
			t.Errorf("%s hears %s (%s): %v", tt.user, tt.why, tt.subject, subscribed)
		}
	}
	for _, url := range []string{n.URL(t, ""), strings.Replace(n.URL(t, "checker-1"), "of-checker-1", "guess", 1)} {
		if conn, err := nats.Connect(url); !errors.Is(err, nats.ErrAuthorization) {
			conn.Close()
			t.Errorf("%s: %v", url, err)
		}
	}
}

// tries says what a user may do with a subject: the server complains of what he may not, before it answers a ping.
func tries(t *testing.T, url, subject string) (published, subscribed bool) {
	t.Helper()
	conn, err := nats.Connect(url, nats.ErrorHandler(quiet))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	sub, err := conn.SubscribeSync(subject)
	if err == nil {
		err = conn.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	subscribed = !errors.Is(conn.LastError(), nats.ErrPermissionViolation)
	_ = sub.Unsubscribe()
	if strings.ContainsAny(subject, "*>") {
		return false, subscribed
	}
	// In a connection of its own, since the last complaint stays.
	other, err := nats.Connect(url, nats.ErrorHandler(quiet))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := errors.Join(other.Publish(subject, []byte("{}")), other.Flush()); err != nil {
		t.Fatal(err)
	}
	return !errors.Is(other.LastError(), nats.ErrPermissionViolation), subscribed
}

// quiet is for complaints that are expected.
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
	first, err := operator.Put(ctx, []byte("one"), 0)
	if err != nil {
		t.Fatal(err)
	}
	seen := make(chan string, 10)
	watching, stop := context.WithCancel(ctx)
	defer stop()
	go checker.Watch(watching, func(e natssource.Entry) { seen <- string(e.Data) }, func(err error) {
		if err != nil && watching.Err() == nil {
			t.Error(err)
		}
	})
	next := func(want string) {
		t.Helper()
		select {
		case got := <-seen:
			if got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		case <-ctx.Done():
			t.Fatalf("never saw %q", want)
		}
	}
	next("one")
	second, err := operator.Put(ctx, []byte("two"), first)
	if err != nil {
		t.Fatal(err)
	}
	next("two")
	if all, err := operator.History(ctx); err != nil || len(all) != 2 {
		t.Errorf("history: %v, %v", all, err)
	}
	if e, err := operator.At(ctx, first); err != nil || string(e.Data) != "one" {
		t.Errorf("the first one: %v, %v", e, err)
	}
	short, enough := context.WithTimeout(ctx, 500*time.Millisecond)
	defer enough()
	if _, err := checker.Put(short, []byte("mine"), second); err == nil {
		t.Error("a checker wrote rules")
	}
	if e, err := operator.Get(ctx); err != nil || string(e.Data) != "two" {
		t.Errorf("there is %q, %v", e.Data, err)
	}
	stop()
	if err := operator.Delete(ctx, second); err != nil {
		t.Error(err)
	}
}

// TestNATSServerTakesItsConfiguration, by its own test of it.
func TestNATSServerTakesItsConfiguration(t *testing.T) {
	for _, name := range regexp.MustCompile(`\$(NATS_\w+)`).FindAllStringSubmatch(deploytest.Read(t, "nats.conf"), -1) {
		t.Setenv(name[1], "secret")
	}
	out, err := exec.CommandContext(t.Context(), "go", "run", "github.com/nats-io/nats-server/v2", "-t", "-c", "nats.conf").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "is valid") {
		t.Errorf("%v\n%s", err, out)
	}
}
