package cmd_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/offpath-io/offpath/internal/status"
	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/deploytest"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/events/natsbus"
)

// deployedRules has everything that goes over a subject, or into a script, of its own.
const deployedRules = `
rules:
  - {name: per-user, key: [user], limit: %d/day}
  - {name: per-team, key: [team], limit: 1000/hour, buckets: 60, count: all}
  - {name: tokens, key: [user, team], limit: 1000/hour, algorithm: token_bucket}
  - {name: exact, match: {api: pay}, key: [user], limit: 5/day, enforcement: strict}
`

// deployed is a fleet on a NATS and a Redis that are as deploy has them, with its accounts and
// users, and with keys that sign rules and blocks.
type deployed struct {
	fleet
	server         *deploytest.NATSServer
	rules, entries keyPair
}

// keyPair is a file with a signing key, and the public key.
type keyPair struct{ file, public string }

func newDeployed(t *testing.T) *deployed {
	t.Helper()
	server := deploytest.NATS(t)
	redis, _ := deploytest.Redis(t)
	f := &deployed{fleet: fleet{T: t, nats: server.URL(t, "operator"), redis: redis}, server: server}
	for _, pair := range []*keyPair{&f.rules, &f.entries} {
		pair.file = filepath.Join(t.TempDir(), "key")
		pair.public = strings.TrimSpace(f.run("keygen", pair.file))
	}
	return f
}

// do is a command as an operator gives it, who has the keys.
func (f *deployed) do(args ...string) string {
	f.Helper()
	switch args[0] {
	case "rules":
		args = append(args, "--rules-public-keys", f.rules.public)
		if args[1] == "apply" {
			args = append(args, "--rules-signing-key-file", f.rules.file)
		}
	case "block", "unblock":
		args = append(args, "--entries-signing-key-file", f.entries.file)
	}
	return f.fleet.do(args...)
}

func (f *deployed) startAggregator() *daemontest.Daemon {
	f.Helper()
	return f.fleet.startAggregator("--nats", f.server.URL(f.T, "aggregator"), "--rules-public-keys", f.rules.public, "--entries-signing-key-file", f.entries.file)
}

func (f *deployed) startChecker(name string, flags ...string) *daemontest.Daemon {
	f.Helper()
	return f.fleet.startChecker(append(flags, "--name", name, "--nats", f.server.URL(f.T, name), "--rules", "nats",
		"--rules-public-keys", f.rules.public, "--entries-public-keys", f.entries.public)...)
}

// stop also holds that nobody was refused anything, or complains of something else.
func (f *deployed) stop() {
	f.Helper()
	f.fleet.stop()
	f.neverLogs("level=WARN|level=ERROR|(?i:permission)|history is not kept")
}

// neverLogs holds that nobody has logged a pattern.
func (f *deployed) neverLogs(never string) {
	f.Helper()
	for _, d := range append(f.checkers, f.aggregators...) {
		if log := d.Stderr(); regexp.MustCompile(never).MatchString(log) {
			f.Errorf("it complains:\n%s", log)
		}
	}
}

// everywhere waits until all checkers answer a peek at a user's count with this status.
func (f *deployed) everywhere(what, user string, status int) {
	f.Helper()
	for _, d := range f.checkers {
		d.Await(what, func() bool {
			got, _ := daemontest.Do(f.T, "POST", doorOf(d), fmt.Sprintf(`{"rule":"per-user","key":%q,"mode":"peek"}`, user))
			return got == status
		})
	}
}

// TestDeployed: under the accounts of deploy nobody is refused anything; a limit that is used up at
// one checker denies at those that have never seen the caller, and no hit is admitted beyond it;
// rules change; and the ledger has every hit once.
func TestDeployed(t *testing.T) {
	f := newDeployed(t)
	apply := func(limit int) {
		t.Helper()
		f.do("rules", "apply", "-f", writeFile(t, "rules.yaml", fmt.Sprintf(deployedRules, limit)))
	}
	apply(40)
	f.startAggregator()
	f.startAggregator()
	for _, name := range []string{"checker-1", "checker-2", "checker-2"} { // the second is shared by two, as by the pods of a Deployment
		f.startChecker(name, "--acquire", "1m")
	}
	for _, d := range f.checkers {
		d.AwaitMetric("offpath_fleet_checkers", "3")
	}
	const caller = `{"user":"kristie","team":"red"}`
	useUp := func(d *daemontest.Daemon, hits int) {
		t.Helper()
		d.Await("its limit is used up", func() bool {
			if ask(t, d, caller) {
				hits--
			}
			return hits == 0
		})
		f.everywhere("it denies", "kristie", 429)
		for _, d := range f.checkers {
			if ask(t, d, caller) {
				t.Error("admitted beyond the limit")
			}
		}
	}
	useUp(f.checkers[0], 40)
	apply(99)
	f.everywhere("the higher limit is in force", "kristie", 200)
	useUp(f.checkers[1], 99-40)

	paid := 0
	for i := range 12 {
		if ask(t, f.checkers[i%3], `{"user":"rich","api":"pay"}`) {
			paid++
		}
	}
	if paid != 5 {
		t.Errorf("%d admitted under a strict limit of 5", paid)
	}
	f.do("block", "mallory", "--rule", "per-user", "--for", "1h")
	f.everywhere("it blocks", "mallory", 429)
	f.do("unblock", "mallory", "--rule", "per-user")
	f.everywhere("it blocks no more", "mallory", 200)
	f.stop()
	ledger := f.ledger()
	for _, want := range []string{`"per-user":{"counted":104,"late":0,"refused":0`, `"exact":{"counted":5,"late":0,"refused":0`} {
		if !strings.Contains(ledger, want) {
			t.Errorf("got %s, want %s", ledger, want)
		}
	}
}

// TestDeployedOperator: under the accounts of deploy/nats.conf the operator's user may do all that
// the commands do, also while there is no aggregator; and the decision log works without any
// preparation: an aggregator makes the stream, since a checker may not.
func TestDeployedOperator(t *testing.T) {
	f := newDeployed(t)
	rules := func(limit int) string {
		return writeFile(t, "rules.yaml", fmt.Sprintf("rules: [{name: per-user, key: [user], limit: %d/day}]\n", limit))
	}
	two, three := rules(2), rules(3)
	for _, args := range []string{
		"apply --dry-run -f " + two, "apply -f " + two, "diff -f " + three, "apply --revision 1 -f " + three,
		"get", "get --revision 1", "list", "history",
	} {
		f.do(append([]string{"rules"}, strings.Fields(args)...)...)
	}
	a, c := f.startAggregator(), f.startChecker("checker-1", "--decision-log", "nats")
	c.AwaitMetric("offpath_fleet_checkers", "1")
	auditHeard := listen(t, f.server.URL(t, "aggregator"), "offpath.stored.v1.audit")
	denialsHeard := listen(t, f.nats, "offpath.stored.v1.denied.>")
	const asked = 10
	for range asked {
		ask(t, c, asUser("kristie"))
	}
	c.AwaitMetric(`offpath_decision_log_denials_total{outcome="written",to="nats"}`, strconv.Itoa(asked-3))
	denied := int64(0)
	for _, m := range messagesIn(t, f.nats, "offpath-denied") {
		for line := range strings.Lines(m) {
			var entry struct{ Count int64 }
			must(t, json.Unmarshal([]byte(line), &entry))
			denied += entry.Count
		}
	}
	if denied != asked-3 {
		t.Errorf("the operator reads of %d denials, want %d", denied, asked-3)
	}
	a.Await("it has what was counted", func() bool { return strings.Contains(f.do("get", "kristie"), "kristie") })
	for _, args := range []string{
		"top", "fleet", "reset kristie --rule per-user", "block mallory --rule per-user --for 1h", "unblock mallory --rule per-user",
	} {
		f.do(strings.Fields(args)...)
	}
	c.Await("it has its hits back", func() bool { return ask(t, c, asUser("kristie")) })
	a.Stop()
	c.AwaitMetric("offpath_blocked_keys", "0")
	f.do("block", "mallory", "--rule", "per-user", "--for", "1h")
	c.AwaitMetric("offpath_blocked_keys", "1") // without an aggregator
	f.do("unblock", "mallory", "--rule", "per-user")
	c.AwaitMetric("offpath_blocked_keys", "0")
	if got := messagesIn(t, f.nats, "offpath-audit"); len(got) != 7 { // two of rules
		t.Errorf("the log of changes has %d records, want 7: %s", len(got), got)
	}
	for what, sub := range map[string]*nats.Subscription{"a change": auditHeard, "a denial": denialsHeard} {
		if _, err := sub.NextMsg(time.Minute); err != nil {
			t.Errorf("%s is not heard of: %v", what, err)
		}
	}
	f.neverLogs("(?i:permission)")
}

// listen hears what is stored from now on.
func listen(t *testing.T, url, subject string) *nats.Subscription {
	t.Helper()
	conn := serverstest.Connect(t, url)
	sub, err := conn.SubscribeSync(subject)
	must(t, errors.Join(err, conn.Flush()))
	return sub
}

// messagesIn reads a stream, as "nats stream view" does.
func messagesIn(t *testing.T, url, name string) (all []string) {
	t.Helper()
	conn := serverstest.Connect(t, url)
	stream, err := serverstest.JetStreamOf(t, conn).Stream(t.Context(), name)
	must(t, err)
	consumer, err := stream.OrderedConsumer(t.Context(), jetstream.OrderedConsumerConfig{})
	must(t, err)
	for n := stream.CachedInfo().State.Msgs; n > 0; n-- {
		m, err := consumer.Next(jetstream.FetchMaxWait(time.Minute))
		must(t, errors.Join(err, conn.LastError()))
		all = append(all, string(m.Data()))
	}
	return all
}

// TestAStolenCheckersCredentialRedefinesNoRule: under the accounts of deploy, who has a checker's
// password says what he likes of the rules in the bucket, under a revision of the far future, in
// statuses and in requests for permits. Permits are granted, and keys blocked, by what is in the
// bucket.
func TestAStolenCheckersCredentialRedefinesNoRule(t *testing.T) {
	f := newDeployed(t)
	f.do("rules", "apply", "-f", writeFile(t, "rules.yaml", fmt.Sprintf(deployedRules, 1000)))
	f.startAggregator().AwaitLog("reports are held against the bucket's rules")
	honest := f.startChecker("checker-2")
	honest.AwaitMetric("offpath_fleet_checkers", "1")
	shards, err := strconv.Atoi(honest.Metric("offpath_shards"))
	must(t, err)

	const hostile = uint64(1) << 62
	epoch := events.NewEpoch("checker-1")
	name := natsbus.CheckerName("checker-1", epoch)
	conn := serverstest.Connect(t, f.server.URL(t, "checker-1"), nats.CustomInboxPrefix("_INBOX.checker-1"))
	link, err := natsbus.NewChecker(conn, "offpath", name)
	must(t, err)
	granted := make(chan *events.Grant, 100)
	go func() {
		_ = link.Listen(t.Context(), func(kind events.Kind, data []byte) {
			if m, err := events.DecodeGrant(data); kind == events.KindGrant && err == nil {
				granted <- m
			}
		})
	}()
	must(t, conn.Flush())
	now := func() status.Checker {
		s := status.Checker{Part: status.Part{Name: name, Started: time.Now()}}
		for rule, of := range map[string]string{"per-user": "per-team", "exact": "per-team"} {
			s.Set = append(s.Set, status.Rule{
				Name: rule, Of: of, WindowMS: 86_400_000, Buckets: 1, Algorithm: "sliding_window", Limit: 1 << 40, Revision: hostile,
			})
		}
		return s
	}
	go func() {
		status.PublishChecker(t.Context(), conn, "offpath", now, func() time.Duration { return time.Second })
	}()
	f.aggregators[0].Await("its status is heard", func() bool {
		_, view := f.aggregators[0].Get("/api/view")
		return strings.Contains(view, name)
	})

	rule := &events.Rule{
		Name: "exact", WindowMs: 86_400_000, Buckets: 1, Limit: 1000, Revision: hostile,
		Newest: time.Now().UnixMilli() / 86_400_000,
	}
	for sequence := uint64(1); ; sequence++ {
		m := &events.LeaseRequest{
			Epoch: epoch, Shards: uint32(shards), Sequence: sequence, Keys: &events.Table{Rules: []*events.Rule{rule}},
		}
		m.AddKey(0, "stolen", 0, 0, 500)
		data, err := events.Append(nil, m)
		must(t, err)
		must(t, link.Lease(0, false, data))
		select {
		case m := <-granted:
			if len(m.Granted) != 1 || m.Granted[0] != 5 {
				t.Errorf("permits %v, %s; want 5", m.Granted, m.Error)
			}
		case <-time.After(time.Second):
			if sequence < 60 {
				continue
			}
			t.Error("no answer")
		}
		break
	}
	f.do("block", "mallory", "--rule", "per-user", "--for", "1h")
	f.everywhere("it blocks", "mallory", 429)
}

// TestDeployedConsoleWritesNoRules: under the accounts of deploy an aggregator writes no rules,
// even with the key that signs them: its console compares, and says that it may not write.
func TestDeployedConsoleWritesNoRules(t *testing.T) {
	f := newDeployed(t)
	f.do("rules", "apply", "-f", writeFile(t, "rules.yaml", fmt.Sprintf(deployedRules, 40)))
	const token = "a-token-that-nobody-guesses"
	d := f.fleet.startAggregator("--nats", f.server.URL(t, "aggregator"), "--rules-signing-key-file", f.rules.file,
		"--console-token-file", writeFile(t, "tokens", "kristie:"+token))
	ask := func(path string) (int, string) {
		body, err := json.Marshal(map[string]any{"text": fmt.Sprintf(deployedRules, 41), "revision": 1})
		must(t, err)
		return daemontest.Do(t, "POST", d.Admin()+path, string(body), "Content-Type: application/json", "Authorization: Bearer "+token)
	}
	daemontest.Until(t, "the console compares", func() string {
		if status, text := ask("/api/rules/diff"); status != 200 || !strings.Contains(text, `"old":"40/day","new":"41/day"`) {
			return text
		}
		return ""
	})
	if status, text := ask("/api/rules/apply"); status != 503 || !strings.Contains(text, "may not let aggregators write rules") {
		t.Errorf("%d %s", status, text)
	}
	if text := f.do("rules", "get"); !strings.Contains(text, "40/day") {
		t.Errorf("the rules are\n%s", text)
	}
}
