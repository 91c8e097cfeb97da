package deploy_test

import (
	"context"
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/offpath-io/offpath/internal/testing/deploytest"
	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/events/natsbus"
)

// speaksAs matches what checkers and operators tell aggregators.
var speaksAs = regexp.MustCompile(`^offpath\.(report|lease|hello|console|status\.v1\.checker)\.`)

// TestNATSAccounts has every user say everything: a checker can neither speak as another nor hear
// what another is told; nobody but aggregators hears checkers, and nobody else tells them anything,
// not even a checker of the same name, nor does that hear them; an aggregator cannot speak as a
// checker or as an operator to the others.
func TestNATSAccounts(t *testing.T) {
	n := deploytest.NATS(t)
	type said struct{ by, heardBy, subject string }
	users := []string{"checker-1", "checker-2", "aggregator", "operator"}
	conns, heard := map[string]*nats.Conn{}, map[string]chan *nats.Msg{}
	for _, user := range users {
		conns[user], heard[user] = connectAs(t, n, user), make(chan *nats.Msg, 1000)
		_, err := conns[user].ChanSubscribe(">", heard[user]) // so that Flush waits for what is heard
		must(t, errors.Join(err, conns[user].Flush()))
	}
	want := map[said]bool{}
	subjects := strings.Fields(`
		$KV.offpath-rules.rules $KV.offpath-entries.x $KV.offpath-states.shards $SYS.REQ.SERVER.PING offpath.audit.v1 offpath.report.v1.0.ab
		offpath.console.v1.reset offpath.status.v1.aggregator.a offpath.alarm.v1.0
		offpath.stored.v1.rules.rules offpath.stored.v1.entries.x offpath.stored.v1.audit
		offpath.stored.v1.denied.checker-1.ab`)
	for _, name := range []string{"checker-1", "checker-2"} {
		for _, kind := range []string{"report.v1.0", "lease.v1.12", "hello.v1", "status.v1.checker"} {
			want[said{name, "aggregator", "offpath." + kind + "." + name + ".ab"}] = true
			subjects = append(subjects, "offpath."+kind+"."+name+".ab")
		}
		want[said{"aggregator", name, "offpath.alarm.v1.0"}] = true
		for _, kind := range []string{"denied", "refresh", "grant", "welcome"} {
			subjects = append(subjects, "offpath."+kind+".v1."+name+".ab", "_INBOX."+name+".ab")
		}
	}
	want[said{"operator", "aggregator", "offpath.console.v1.reset"}] = true
	for user, conn := range conns {
		for _, subject := range subjects {
			must(t, conn.Publish(subject, []byte(user)))
		}
	}
	for _, conn := range conns { // first all that is said, then all that is heard
		_ = conn.Flush()
	}
	for _, conn := range conns {
		_ = conn.Flush()
		conn.Close()
	}
	got := map[said]bool{}
	for user, messages := range heard {
		for len(messages) > 0 {
			// What operators tell themselves is nobody else's business; what others do is.
			m := <-messages
			by, own := string(m.Data), user != "operator" && (user != "aggregator" || speaksAs.MatchString(m.Subject))
			if slices.Contains(users, by) && (by != user || own) {
				got[said{by, user, m.Subject}] = true
			}
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("heard:\n%v\nwant:\n%v", got, want)
	}
	for _, url := range []string{n.URL(t, ""), strings.Replace(n.URL(t, "checker-1"), "of-checker-1", "guess", 1)} {
		if conn, err := nats.Connect(url); !errors.Is(err, nats.ErrAuthorization) {
			conn.Close()
			t.Errorf("%s: %v", url, err)
		}
	}
}

// TestAnswersComeBackBetweenAccounts: every message of a checker's reaches an aggregator, its
// answer that checker alone, and an alarm all of them. A checker learns that a report or lease
// request has reached nobody, since no aggregator serves its shard, and which.
func TestAnswersComeBackBetweenAccounts(t *testing.T) {
	n := deploytest.NATS(t)
	heard := map[string]chan string{"checker-1": make(chan string, 1000), "checker-2": make(chan string, 1000)}
	checkers := map[string]*natsbus.Checker{}
	worker, err := natsbus.NewWorker(connectAs(t, n, "aggregator"), "offpath")
	shards := slices.Repeat([]bool{true}, 8)
	const unserved = 1
	shards[unserved] = false
	must(t, errors.Join(err, worker.Attend(shards, shards)))
	serve := func(run func(context.Context) error) {
		ended := make(chan error, 1)
		ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
		go func() { ended <- run(ctx) }()
		t.Cleanup(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
	serve(func(ctx context.Context) error {
		return worker.Serve(ctx, func(_ events.Kind, data []byte, reply func([]byte) error) {
			if reply != nil && reply(data) != nil {
				t.Error("the answer is refused")
			}
		})
	})
	bodies := map[string][]byte{}
	for name, news := range heard {
		epoch := events.NewEpoch(name)
		body, err := events.Append(nil, &events.Hello{Epoch: epoch, Sent: 1})
		must(t, err)
		bodies[name] = body
		c, err := natsbus.NewChecker(connectAs(t, n, name), "offpath", natsbus.CheckerName(name, epoch))
		must(t, err)
		checkers[name] = c
		serve(func(ctx context.Context) error {
			return c.Listen(ctx, func(kind events.Kind, data []byte) { news <- kind.String() + string(data) })
		})
	}
	for name, c := range checkers {
		body := bodies[name]
		for _, toOwner := range []bool{false, true} {
			unheard := func(kind events.Kind) string {
				return "unheard" + events.Address{Kind: kind, Format: events.FormatPlain, Shard: unserved, ToOwner: toOwner}.String()
			}
			for answer, say := range map[string]func() error{
				"refresh" + string(body):   func() error { return c.Report(0, toOwner, body) },
				"grant" + string(body):     func() error { return c.Lease(7, toOwner, body) },
				"welcome" + string(body):   func() error { return c.Hello(body) },
				"alarm" + string(body):     func() error { return worker.Alarm(0, body) },
				unheard(events.KindReport): func() error { return c.Report(unserved, toOwner, body) },
				unheard(events.KindLease):  func() error { return c.Lease(unserved, toOwner, body) },
			} {
				await(t, heard[name], answer, say)
			}
		}
	}
	for name, news := range heard {
		for len(news) > 0 {
			got := <-news
			for other, body := range bodies {
				if other != name && strings.HasSuffix(got, string(body)) && !strings.HasPrefix(got, "alarm") {
					t.Errorf("%s hears what %s is answered: %q", name, other, got)
				}
			}
		}
	}
}

// await says something again and again until an answer is heard, since subscriptions take a while.
func await(t *testing.T, heard <-chan string, answer string, say func() error) {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		must(t, say())
		again := time.After(100 * time.Millisecond)
		for waiting := true; waiting; {
			select {
			case got := <-heard:
				if got == answer {
					return
				}
			case <-again:
				waiting = false
			case <-deadline:
				t.Fatalf("never heard %q", answer)
			}
		}
	}
}

// TestJetStreamAnswersWhatEachMayAsk, and nothing else: checkers read rules and blocks, and make no
// consumers; aggregators write blocks and what they have seen of shards, and make the streams for
// them and for the logs; operators write rules; nobody deletes a log, or makes a stream of another
// name.
func TestJetStreamAnswersWhatEachMayAsk(t *testing.T) {
	n := deploytest.NATS(t)
	fill(t, n)
	read := []string{
		"$JS.API.INFO", "$JS.API.STREAM.INFO.KV_offpath-rules", "$JS.API.DIRECT.GET.KV_offpath-rules",
		"$JS.API.STREAM.INFO.KV_offpath-entries", "$JS.API.DIRECT.GET.KV_offpath-entries",
	}
	write := append(slices.Clone(read), strings.Fields(`
		$KV.offpath-entries.x offpath.audit.v1 $JS.API.DIRECT.GET.KV_offpath-entries.$KV.offpath-entries.x
		$JS.API.STREAM.CREATE.KV_offpath-entries $JS.API.STREAM.PURGE.KV_offpath-entries
		$JS.API.STREAM.CREATE.offpath-audit $JS.API.STREAM.INFO.offpath-audit $JS.API.STREAM.MSG.GET.offpath-audit
		$JS.API.STREAM.INFO.offpath-denied`)...)
	may := map[string][]string{
		"checker-1": append(slices.Clone(read), "offpath.denied.v1.checker-1.ab"),
		"checker-2": append(slices.Clone(read), "offpath.denied.v1.checker-2.ab"),
		"aggregator": append(slices.Clone(write), strings.Fields(`
			$JS.API.STREAM.CREATE.offpath-denied $KV.offpath-states.shards $JS.API.STREAM.CREATE.KV_offpath-states
			$JS.API.STREAM.INFO.KV_offpath-states $JS.API.DIRECT.GET.KV_offpath-states.$KV.offpath-states.shards`)...),
		"operator": append(slices.Clone(write), strings.Fields(`
			$KV.offpath-rules.rules $JS.API.STREAM.CREATE.KV_offpath-rules $JS.API.STREAM.UPDATE.KV_offpath-rules
			$JS.API.DIRECT.GET.KV_offpath-rules.$KV.offpath-rules.rules $JS.API.STREAM.UPDATE.KV_offpath-entries
			$JS.API.STREAM.MSG.GET.offpath-denied $JS.API.CONSUMER.CREATE.offpath-denied.x
			$JS.API.CONSUMER.INFO.offpath-denied.x $JS.API.CONSUMER.DELETE.offpath-denied.x
			$JS.API.CONSUMER.CREATE.offpath-audit.x $JS.API.CONSUMER.INFO.offpath-audit.x
			$JS.API.CONSUMER.DELETE.offpath-audit.x`)...),
	}
	all := []string{
		"$JS.API.STREAM.CREATE.mine", "$JS.API.STREAM.LIST", "$JS.API.STREAM.NAMES", "$KV.mine.x",
		"offpath.denied.v1.checker-3.ab", "$JS.API.DIRECT.GET.KV_offpath-rules.$KV.offpath-rules.rules",
		"$JS.FC.KV_offpath-rules.x",
		"$JS.ACK.KV_offpath-rules.x",
		"$SYS.REQ.SERVER.PING", "$SYS.REQ.ACCOUNT.STREAMS.CONNZ", "$SYS.REQ.ACCOUNT.RULES.JSZ",
	}
	for _, stream := range theStreams {
		for what := range strings.FieldsSeq(`STREAM.INFO STREAM.CREATE STREAM.UPDATE STREAM.DELETE STREAM.PURGE
			STREAM.MSG.GET STREAM.MSG.DELETE STREAM.SNAPSHOT STREAM.RESTORE DIRECT.GET CONSUMER.CREATE CONSUMER.LIST`) {
			all = append(all, "$JS.API."+what+"."+stream)
		}
		for _, what := range []string{"CREATE", "DURABLE.CREATE", "INFO", "DELETE", "MSG.NEXT", "PAUSE", "RESET"} {
			all = append(all, "$JS.API.CONSUMER."+what+"."+stream+".x")
		}
	}
	for _, subjects := range may {
		all = append(all, subjects...)
	}
	slices.Sort(all)
	all = slices.Compact(all)
	for user, subjects := range may {
		conn := connectAs(t, n, user)
		for _, subject := range all {
			if answered := answered(t, conn, subject); answered != slices.Contains(subjects, subject) {
				t.Errorf("%s is answered on %s: %v", user, subject, answered)
			}
		}
	}
}

// answered says whether somebody answers a request that the server lets pass.
func answered(t *testing.T, conn *nats.Conn, subject string) bool {
	t.Helper()
	answers, err := conn.SubscribeSync(conn.NewInbox())
	must(t, err)
	must(t, conn.PublishRequest(subject, answers.Subject, []byte("{}")))
	must(t, conn.Flush()) // what the server does not let pass it has said by then
	if err := conn.LastError(); err != nil && strings.Contains(err.Error(), `"`+subject+`"`) {
		return false
	}
	m, err := answers.NextMsg(time.Minute)
	if err != nil && !errors.Is(err, nats.ErrNoResponders) {
		t.Fatalf("%s: %v", subject, err)
	}
	return err == nil && m.Header.Get("Status") != "503"
}

// TestAnotherCheckerIsLetIn by a copy of an account and two reloads, the first of which makes the
// account, and the second starts its imports; who is connected stays so, and is served.
func TestAnotherCheckerIsLetIn(t *testing.T) {
	n := deploytest.NATS(t)
	fill(t, n)
	there := connectAs(t, n, "checker-1")
	there.SetDisconnectErrHandler(func(*nats.Conn, error) { t.Error("a checker that was there is disconnected") })
	defer there.SetDisconnectErrHandler(nil) // of the end of the server it is told, too
	text := deploytest.Read(t, "nats.conf")
	from, to := strings.Index(text, "  CHECKER_1 {"), strings.Index(text, "  CHECKER_2 {")
	another := strings.NewReplacer("CHECKER_1", "CHECKER_3", "checker-1", "checker-3").Replace(text[from:to])
	for range 2 {
		n.Reload(t, text[:from]+another+text[from:])
	}
	for _, conn := range []*nats.Conn{there, connectAs(t, n, "checker-3")} {
		if _, err := conn.Request("$JS.API.DIRECT.GET.KV_offpath-rules", []byte(`{"seq":1}`), time.Minute); err != nil {
			t.Error(err)
		}
	}
	aggregator := connectAs(t, n, "aggregator")
	heard, err := aggregator.SubscribeSync("offpath.report.v1.*.checker-3.*")
	must(t, errors.Join(err, aggregator.Flush()))
	must(t, connectAs(t, n, "checker-3").Publish("offpath.report.v1.0.checker-3.ab", nil))
	if _, err := heard.NextMsg(time.Minute); err != nil {
		t.Error(err)
	}
}
