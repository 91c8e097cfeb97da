package deploy_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/offpath-io/offpath/internal/blocks"
	"github.com/offpath-io/offpath/internal/natssource"
	"github.com/offpath-io/offpath/internal/testing/deploytest"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
	"github.com/offpath-io/offpath/pkg/aggregate/natsmemory"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
)

// theStreams are all streams of a fleet.
var theStreams = []string{"KV_offpath-rules", "KV_offpath-entries", "KV_offpath-states", "offpath-denied", "offpath-audit"}

// TestNoReplyReachesWhatItsSenderMayNot: the server answers a request on the reply subject that the
// request names, and a consumer delivers to the subject that its maker names; neither is a
// permission to publish there. With a checker's credential, and with the aggregators', every
// request that JetStream has is sent with every reply subject that would be worth something: no
// stream has another message, or one less, and nobody hears anything.
func TestNoReplyReachesWhatItsSenderMayNot(t *testing.T) {
	for user, attack := range map[string]struct {
		writes, listens string // reply subjects
		adds            map[string]uint64
	}{
		"checker-1": {
			writes: "$KV.offpath-rules.rules $KV.offpath-entries.blocked $KV.offpath-states.shards offpath.audit.v1 offpath.denied.v1.checker-2.ab",
			listens: `offpath.report.v1.0.checker-2.ab offpath.lease.v1.0.checker-2.ab offpath.hello.v1.checker-2.ab
				offpath.status.v1.checker.checker-2.ab offpath.console.v1.reset offpath.alarm.v1.0 offpath.refresh.v1.checker-2.ab
				_INBOX.checker-2.x _INBOX.aggregator.x`,
			adds: map[string]uint64{"offpath-denied": 1},
		},
		"aggregator": { // which may write blocks and the log of who blocked, anyway
			writes: "$KV.offpath-rules.rules offpath.denied.v1.checker-2.ab", listens: "_INBOX.checker-2.x",
			adds: map[string]uint64{"offpath-audit": 1},
		},
	} {
		t.Run(user, func(t *testing.T) {
			n := deploytest.NATS(t)
			fill(t, n)
			var heard atomic.Pointer[string]
			for _, other := range []string{"checker-2", "aggregator"} {
				if other == user { // what it tells itself, it may hear
					continue
				}
				conn := connectAs(t, n, other)
				for subject := range strings.FieldsSeq(attack.listens) {
					_, err := conn.Subscribe(subject, func(m *nats.Msg) {
						text := fmt.Sprintf("%s hears on %s: %.80s", other, m.Subject, m.Data)
						heard.Store(&text)
					})
					must(t, err)
				}
				_ = conn.Flush()
			}
			before := n.Streams(t)
			replies := strings.Fields(attack.writes + " " + attack.listens)
			for _, stream := range theStreams {
				replies = append(replies, "$JS.API.STREAM.DELETE."+stream)
				if user != "aggregator" || stream != "KV_offpath-entries" { // whose blocks it may purge
					replies = append(replies, "$JS.API.STREAM.PURGE."+stream)
				}
			}
			conn := connectAs(t, n, user)
			for i, reply := range replies {
				requests(i, reply, func(subject, data string) {
					must(t, conn.PublishRequest(subject, reply, []byte(data)))
				})
				for range 3 { // so that it has been answered, as far as anybody can know
					ask(t, conn)
				}
			}
			for stream, added := range attack.adds {
				state := before[stream]
				state.Messages += added * uint64(len(replies))
				state.Last += added * uint64(len(replies))
				before[stream] = state
				deadline := time.Now().Add(time.Minute)
				for n.Streams(t)[stream].Last < state.Last && time.Now().Before(deadline) {
					ask(t, conn)
				}
			}
			if after := n.Streams(t); !maps.Equal(before, after) {
				t.Errorf("the streams are %+v, want %+v", after, before)
			}
			if text := heard.Load(); text != nil {
				t.Error(*text)
			}
		})
	}
}

// ask asks JetStream for what everybody may know.
func ask(t *testing.T, conn *nats.Conn) {
	t.Helper()
	if _, err := conn.Request("$JS.API.STREAM.INFO.KV_offpath-rules", nil, time.Minute); err != nil {
		t.Fatal(err)
	}
}

// requests calls send with what a stranger may ask of JetStream, to be answered or delivered at a
// subject.
func requests(number int, at string, send func(subject, data string)) {
	for _, stream := range theStreams {
		send("$JS.API.STREAM.INFO."+stream, "")
		send("$JS.API.STREAM.MSG.GET."+stream, `{"seq":1}`)
		send("$JS.API.DIRECT.GET."+stream, `{"seq":1}`)
		send("$JS.API.DIRECT.GET."+stream+".$KV.offpath-rules.rules", "")
		send("$JS.API.CONSUMER.MSG.NEXT."+stream+".pulled", "1")
		for i, headersOnly := range []bool{false, true} { // JetStream takes a message without a body for a request
			name := fmt.Sprintf("pushed%d-%d", i, number)
			config := fmt.Sprintf(`{"stream_name":%q,"config":{"name":%q,"ack_policy":"none","deliver_policy":"all",
				"deliver_subject":%q,"headers_only":%v}}`, stream, name, at, headersOnly)
			send("$JS.API.CONSUMER.CREATE."+stream+"."+name, config)
			send("$JS.API.CONSUMER.CREATE."+stream, config)
		}
	}
	send("offpath.denied.v1.checker-1.ab", "turned away")
	send("offpath.audit.v1", "{}")
}

// fill makes all streams, and puts something into each.
func fill(t *testing.T, n *deploytest.NATSServer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	do := func(_ any, err error) {
		t.Helper()
		must(t, err)
	}
	rules, err := natssource.New(connectAs(t, n, "operator"), "offpath", natssource.Options{})
	do(nil, err)
	do(rules.Put(ctx, []byte("rules: []"), 0))
	bucket, err := blocks.New(connectAs(t, n, "aggregator"), "offpath", blocks.Options{})
	do(nil, err)
	now := time.Now()
	do(nil, bucket.Put(ctx, blocks.Block{Rule: "per-user", Key: "mallory", At: now, Until: now.Add(time.Hour)}))
	states, err := natsmemory.New(connectAs(t, n, "aggregator"), "offpath")
	do(nil, err)
	do(states.Merge(ctx, []storage.State{{Generation: 1, Version: 1}}))
	js, err := jetstream.New(connectAs(t, n, "aggregator"))
	do(nil, err)
	do(js.CreateStream(ctx, jetstream.StreamConfig{Name: "offpath-denied", Subjects: []string{"offpath.denied.v1.>"}}))
	do(js.CreateStream(ctx, jetstream.StreamConfig{Name: "offpath-audit", Subjects: []string{"offpath.audit.v1"}}))
	do(js.Publish(ctx, "offpath.audit.v1", []byte("{}")))
	js, err = jetstream.New(connectAs(t, n, "checker-1"))
	do(nil, err)
	do(js.Publish(ctx, "offpath.denied.v1.checker-1.ab", []byte("{}")))
}

// connectAs connects as a user, whose violations are ignored, since they are expected.
func connectAs(t *testing.T, n *deploytest.NATSServer, user string) *nats.Conn {
	t.Helper()
	quiet := nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})
	return serverstest.Connect(t, n.URL(t, user), nats.CustomInboxPrefix("_INBOX."+user), quiet)
}

// TestNobodySwallowsWhatOthersSay: a subscription of the aggregators' queue group, with a checker's
// credential, takes no report away from them, its own or another's, and no alarm from checkers of
// its name.
func TestNobodySwallowsWhatOthersSay(t *testing.T) {
	n := deploytest.NATS(t)
	const times = 100
	aggregator, checker := connectAs(t, n, "aggregator"), connectAs(t, n, "checker-1")
	listen := func(conn *nats.Conn, subject string) *nats.Subscription {
		t.Helper()
		heard, err := conn.QueueSubscribeSync(subject, "aggregators")
		must(t, err)
		must(t, conn.Flush())
		return heard
	}
	alarms, err := checker.SubscribeSync("offpath.alarm.v1.*")
	must(t, err)
	for _, subject := range []string{">", "offpath.report.v1.>", "offpath.alarm.v1.>"} {
		listen(connectAs(t, n, "checker-1"), subject)
	}
	heard := listen(aggregator, "offpath.report.v1.0.>")
	must(t, checker.Flush())
	others := map[string]*nats.Conn{"checker-1": checker, "checker-2": connectAs(t, n, "checker-2")}
	for range times {
		for name, conn := range others {
			must(t, conn.Publish("offpath.report.v1.0."+name+".ab", nil))
		}
		must(t, aggregator.Publish("offpath.alarm.v1.0", nil))
	}
	for subscription, messages := range map[*nats.Subscription]int{heard: 2 * times, alarms: times} {
		for range messages {
			_, err := subscription.NextMsg(time.Minute)
			must(t, err)
		}
	}
}

// TestWhatIsDeliveredAsksForNoAnswer: who has the aggregators' password can have what is in a
// bucket delivered to other aggregators where they listen to checkers and operators. They take
// nothing from there that has no reply subject, and nothing that is delivered so has one.
func TestWhatIsDeliveredAsksForNoAnswer(t *testing.T) {
	n := deploytest.NATS(t)
	fill(t, n)
	aggregator, thief := connectAs(t, n, "aggregator"), connectAs(t, n, "aggregator")
	var heard, asking atomic.Int64
	subjects := []string{"offpath.console.v1.unblock", "offpath.report.v1.0.checker-2.ab", "offpath.hello.v1.checker-2.ab"}
	for i, subject := range subjects {
		_, err := aggregator.Subscribe(subject, func(m *nats.Msg) {
			heard.Add(1)
			if m.Reply != "" {
				asking.Add(1)
			}
		})
		must(t, err)
		must(t, aggregator.Flush())
		requests(i, subject, func(asked, data string) { must(t, thief.PublishRequest(asked, subject, []byte(data))) })
		ask(t, thief)
	}
	for deadline := time.Now().Add(time.Minute); heard.Load() < int64(3*len(subjects)); ask(t, thief) {
		if time.Now().After(deadline) {
			t.Fatalf("%d messages are delivered", heard.Load())
		}
	}
	if n := asking.Load(); n > 0 {
		t.Errorf("%d messages ask for an answer", n)
	}
}
