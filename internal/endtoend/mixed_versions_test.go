package endtoend

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/offpath-io/offpath/internal/testing/membus"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/events"
)

// lacking is what an older version does not know of the format: the numbers of fields, by their
// message.
type lacking map[protoreflect.Name][]protowire.Number

// older is a part of an older version; the zero value is one of this version. It counts what was
// taken out.
type older struct {
	lacks lacking
	taken map[string]int
}

// messageOf are the messages by kind.
var messageOf = map[events.Kind]proto.Message{
	events.KindReport: &events.Report{}, events.KindRefresh: &events.Refresh{}, events.KindAlarm: &events.Alarm{},
	events.KindHello: &events.Hello{}, events.KindWelcome: &events.Welcome{},
	events.KindLease: &events.LeaseRequest{}, events.KindGrant: &events.Grant{},
}

// of takes out of a message what the older version does not know: it ignores these fields in what
// it gets, and does not send them.
func (o older) of(kind events.Kind, payload []byte) []byte {
	if o.lacks == nil {
		return payload
	}
	return o.strip(messageOf[kind].ProtoReflect().Descriptor(), payload)
}

func (o older) strip(m protoreflect.MessageDescriptor, payload []byte) (known []byte) {
	for len(payload) > 0 {
		number, kind, n := protowire.ConsumeField(payload)
		if n < 0 {
			panic(protowire.ParseError(n))
		}
		field := payload[:n]
		payload = payload[n:]
		switch d := m.Fields().ByNumber(number); {
		case slices.Contains(o.lacks[m.Name()], number):
			o.taken[fmt.Sprint(m.Name(), ".", number)]++
		case d.Message() != nil:
			_, _, tag := protowire.ConsumeTag(field)
			value, _ := protowire.ConsumeBytes(field[tag:])
			known = protowire.AppendTag(known, number, kind)
			known = protowire.AppendBytes(known, o.strip(d.Message(), value))
		default:
			known = append(known, field...)
		}
	}
	return known
}

// serve makes an aggregator's handler that of one of the older version.
func (o older) serve(h func(events.Kind, []byte, func([]byte) error)) func(events.Kind, []byte, func([]byte) error) {
	answers := map[events.Kind]events.Kind{
		events.KindReport: events.KindRefresh, events.KindLease: events.KindGrant, events.KindHello: events.KindWelcome,
	}
	return func(kind events.Kind, payload []byte, reply func([]byte) error) {
		if kind == events.KindMember && o.lacks != nil { // it does not subscribe to these
			return
		}
		answer := reply
		if reply != nil {
			answer = func(payload []byte) error { return reply(o.of(answers[kind], payload)) }
		}
		h(kind, o.of(kind, payload), answer)
	}
}

type olderChecker struct {
	*membus.Checker
	older older
}

func (c olderChecker) Report(shard uint32, toOwner bool, report []byte) error {
	return c.Checker.Report(shard, toOwner, c.older.of(events.KindReport, report))
}

func (c olderChecker) Lease(shard uint32, toOwner bool, request []byte) error {
	return c.Checker.Lease(shard, toOwner, c.older.of(events.KindLease, request))
}

func (c olderChecker) Hello(hello []byte) error {
	return c.Checker.Hello(c.older.of(events.KindHello, hello))
}

type olderWorker struct {
	*membus.Worker
	older older
	k     *worker
	self  func(member []byte) // brings it what it has told itself
}

// Attend leaves out what an older worker does not know: that shards have owners.
func (w olderWorker) Attend(attended, owned []bool) error {
	if w.older.lacks != nil {
		owned = nil
	}
	return w.Worker.Attend(attended, owned)
}

// Tell tells nobody else what an older worker would not tell.
func (w olderWorker) Tell(member []byte) error {
	if w.older.lacks != nil {
		w.self(member)
		return nil
	}
	if w.k.cut.loses(w.k.cut.from, events.KindMember) {
		return nil
	}
	return w.Worker.Tell(member)
}

func (w olderWorker) Alarm(shard uint32, alarm []byte) error {
	if w.k.cut.loses(w.k.cut.from, events.KindAlarm) {
		return nil
	}
	return w.Worker.Alarm(shard, w.older.of(events.KindAlarm, alarm))
}

// olderVersions lack the fields that were added after the first format, but for Rule.denied: an
// aggregator that does not know of denied hits counts them, as they went to the first version of
// the subject, before there were kinds.
var olderVersions = []struct {
	name  string
	lacks lacking
	rules string   // besides those that every version knows
	seen  []string // fields that were sent, and taken out
}{
	{"the newest fields", lacking{"Rule": {15, 16, 17, 18}, "Report": {15, 16, 20}, "Refresh": {15, 16, 18, 19}, "Alarm": {20}}, `
  - {name: every, key: [user], limit: 10/hour, count: all}
  - {name: log, key: [user], limit: 10/hour, algorithm: sliding_log}
  - {name: tokens, key: [user], limit: 1/hour, burst: 10, algorithm: token_bucket}`, []string{"Rule.16", "Rule.17", "Rule.18", "Report.16"}},
	{"all later fields", lacking{
		"Rule": {9, 15, 16, 17, 18}, "Table": {8, 9}, "Report": {9, 15, 16, 20}, "Refresh": {11, 12, 15, 16, 18, 19}, "Alarm": {5, 20},
	}, "", []string{"Report.9", "Report.16", "Alarm.5"}},
}

// TestNeighbouringVersions runs parts of this version with parts of older ones, by rules that both
// know: as many requests pass at each checker as in a fleet of one version, and the ledger has each
// of them once. Where hits may be settled, older parts do not hear of refunded rows, which they
// would take for admitted ones.
func TestNeighbouringVersions(t *testing.T) {
	const known = `
  - {name: sliding, key: [user], limit: 10/hour}
  - {name: fixed, key: [user], limit: 10/hour, algorithm: fixed_window}
  - {name: cut, key: [user], limit: 10/hour, buckets: 60}
  - {name: settled, key: [user], limit: 10/hour}
  - {name: soft, key: [user], limit: 8/hour, throttle: soft, soft: {exceed: 25%}}
  - {name: strict, key: [user], limit: 10/hour, enforcement: strict}
  - {name: hot, key: [user], limit: 300/hour}`
	for _, version := range olderVersions {
		taken := make(map[string]int)
		for _, fleet := range []struct {
			name              string
			checkers, workers int
		}{{"older aggregators", 0, 2}, {"an older checker", 1, 0}, {"an older one of each", 1, 1}} {
			t.Run(fleet.name+" without "+version.name, func(t *testing.T) {
				w := newWorld(t, options{
					seed: 3, checkers: 3, workers: 2, shards: 2, rules: parse(t, known+version.rules), prompt: true,
					faults: membus.Faults{Delay: 2 * time.Millisecond},
					older:  older{version.lacks, taken}, oldCheckers: fleet.checkers, oldWorkers: fleet.workers,
				})
				w.decidesAsOneVersion()
			})
		}
		for _, field := range version.seen {
			expect(t, taken[field] != 0, "no %s was sent: %v", field, taken)
		}
	}
}

// decidesAsOneVersion has each rule decide of 15 requests, at the three checkers in turn, of which
// the first ten pass; and of a hot key, at all of them at once.
func (w *world) decidesAsOneVersion() {
	w.t.Helper()
	w.meet()
	for _, r := range w.rules.Rules() {
		if r.Name == "hot" {
			w.decidesOfAHotKey()
			continue
		}
		var passed [3]int
		for n := range 15 {
			l, _ := w.checkers[n%3].Limiter(r.Name)
			decide := func() check.Decision { return l.Check("k", 1) }
			if r.Name == "settled" && n%3 >= w.oldCheckers { // so that checkers ask for what was refunded
				c := w.checkers[n%3]
				decide = func() check.Decision {
					return c.Do(check.Request{Limiter: l, Key: "k", Receipt: true}).Decision
				}
			}
			if w.await(r, decide).Allowed {
				passed[n%3]++
			}
		}
		expect(w.t, passed == [3]int{4, 3, 3}, "%s: %v of 15 requests pass at the checkers, want 4, 3 and 3", r.Name, passed)
		for _, c := range w.checkers {
			l, _ := c.Limiter(r.Name)
			left := c.Do(check.Request{Limiter: l, Key: "k", Mode: check.Peek}).Remaining
			expect(w.t, left == 0, "%s: %s sees %d left", r.Name, c.name, left)
		}
		counted := int64(10)
		if r.Name == "every" {
			counted = 15
		}
		w.counted(map[string]int64{r.Name: counted})
	}
	w.mend()
	w.conservedByName()
}

// decidesOfAHotKey offers five times a limit so quickly that checkers forecast, and report denied
// hits.
func (w *world) decidesOfAHotKey() {
	w.t.Helper()
	var passed [3]int64
	for n := range 1500 {
		if w.request(w.checkers[n%3], "hot", "k", 1) {
			passed[n%3]++
		}
		w.advance(2 * time.Millisecond)
	}
	sum := passed[0] + passed[1] + passed[2]
	w.t.Logf("of the hot key pass %v", passed)
	expect(w.t, sum >= 297 && sum <= 303 && min(passed[0], passed[1], passed[2]) >= 90, "%v of the hot key pass", passed)
	w.counted(map[string]int64{"hot": sum})
}
