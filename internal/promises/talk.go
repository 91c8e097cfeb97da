package promises

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/memstore"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/rules"
)

// Said is one message of a talk, as it was on the wire.
type Said struct {
	// At is when it was sent, in Unix nanoseconds; it arrives a millisecond later.
	At int64 `json:"at"`
	// From is the checker that sent it, or to which it went; "" for an alarm, which goes to all.
	From string `json:"of,omitempty"`
	Kind string `json:"kind"`
	// Bytes are the message, Meaning what the release that said it takes it to say.
	Bytes   []byte          `json:"bytes"`
	Meaning json.RawMessage `json:"meaning"`
}

// Start is the time at which a talk begins, Length how long it goes on. It is in the middle of a bucket of all rules.
const (
	Start  = int64(1_763_610_000_400_000_000)
	Length = 2500 * time.Millisecond
	way    = int64(time.Millisecond)
)

// TalkRules are what checkers decide by in a talk: a rule for each way of counting that all releases know.
const TalkRules = `rules:
  - {name: per-user, key: [user], limit: 20/second}
  - {name: fixed, key: [user], limit: 15/second, algorithm: fixed_window}
  - {name: cut, key: [user], limit: 40/2s, buckets: 4}
  - {name: hot, key: [user], limit: 200/second}
  - {name: exact, key: [user], limit: 30/second, enforcement: strict, on_outage: closed}
`

// talk is a fleet of two checkers and one aggregator in virtual time, whose every message is written down.
type talk struct {
	now  int64
	said []Said
	way  []arrival
	err  error
}

// arrival is a message on its way.
type arrival struct {
	at   int64
	hand func()
}

// note writes a message down, and puts it on its way.
func (t *talk) note(of string, kind events.Kind, data []byte, hand func(data []byte)) {
	data = bytes.Clone(data)
	meaning, err := Meaning(kind, data)
	if err != nil && t.err == nil {
		t.err = fmt.Errorf("%v of %q: %w", kind, of, err)
	}
	t.said = append(t.said, Said{At: t.now, From: of, Kind: kind.String(), Bytes: data, Meaning: meaning})
	t.way = append(t.way, arrival{t.now + way, func() { hand(data) }})
}

// deliver hands over what has arrived.
func (t *talk) deliver() {
	for len(t.way) > 0 && t.way[0].at <= t.now {
		first := t.way[0]
		t.way = t.way[1:]
		first.hand()
	}
}

// Talk lets a fleet of this build count by some rules for a while, and returns all that was said, in order. Hit is called
// each millisecond.
func Talk(text string, hit func(checkers []*check.Checker, now int64)) ([]Said, error) {
	set, err := rules.Parse([]byte(text))
	if err != nil {
		return nil, err
	}
	t := &talk{now: Start}
	var checkers []*check.Checker
	worker, err := aggregate.New(options(memstore.New(), func(data []byte) {
		t.note("", events.KindAlarm, data, func(data []byte) {
			for _, c := range checkers {
				c.Receive(t.now, events.KindAlarm, data)
			}
		})
	}))
	if err != nil {
		return nil, err
	}
	for i := range 2 {
		l := &link{talk: t, name: fmt.Sprint("c", i), worker: worker}
		c, err := check.New(check.Options{Rules: set, Link: l, Epoch: uint64(1000 + i), ReportKeys: 3})
		if err != nil {
			return nil, err
		}
		l.checker = c
		checkers = append(checkers, c)
	}
	for ; t.now < Start+int64(Length); t.now += way {
		t.deliver()
		worker.Step(context.Background(), t.now)
		hit(checkers, t.now)
		for _, c := range checkers {
			c.Step(t.now)
		}
	}
	return t.said, t.err
}

// Hits lets users ask at either checker, now and then, and in between one of them often.
func Hits(checkers []*check.Checker, now int64) {
	tick := int((now - Start) / way)
	ask := func(rule, user string) {
		if l, ok := checkers[tick/7%len(checkers)].Limiter(rule); ok {
			l.CheckAt(now, user, 1+int64(tick%3))
		}
	}
	switch {
	case tick%90 == 7:
		ask("per-user", "kristie")
		ask("fixed", "kristie")
		ask("cut", "höchst|\x00|long")
		ask("exact", "kristie")
	case tick%4 == 3 && tick > 800 && tick < 1300: // more than the limit
		ask("hot", "kristie")
	}
}

// options are an aggregator's. Its times are set, so that another default is no other answer.
func options(store aggregate.Store, alarm func([]byte)) aggregate.Options {
	return aggregate.Options{
		Store: store, Shards: 2, Bus: bus{alarm},
		Gather: 2 * time.Millisecond, GatherLeases: time.Millisecond, AlarmEvery: 4 * time.Millisecond,
	}
}

// Replay says all that checkers have said in a talk to an aggregator of this build, at the same times, and returns what
// it says, in order, and its ledger.
func Replay(said []Said) ([]Said, aggregate.Ledger, error) {
	t := &talk{now: Start}
	store := memstore.New()
	worker, err := aggregate.New(options(store, func(data []byte) {
		t.note("", events.KindAlarm, data, func([]byte) {})
	}))
	if err != nil {
		return nil, nil, err
	}
	for ; t.now < Start+int64(Length); t.now += way {
		for len(said) > 0 && said[0].At+way <= t.now {
			if kind := kindOf(said[0].Kind); answer[kind] != 0 {
				l := &link{talk: t, name: said[0].From, worker: worker}
				worker.Receive(t.now, kind, said[0].Bytes, l.replier(kind, func([]byte) {}))
			}
			said = said[1:]
		}
		worker.Step(context.Background(), t.now)
	}
	if t.err != nil {
		return nil, nil, t.err
	}
	ledger, err := store.Ledger(context.Background())
	return t.said, ledger, err
}

// answer is by which kind of message each question is answered.
var answer = map[events.Kind]events.Kind{
	events.KindReport: events.KindRefresh, events.KindHello: events.KindWelcome, events.KindLease: events.KindGrant,
}

// link carries one checker's messages.
type link struct {
	talk    *talk
	name    string
	worker  *aggregate.Worker
	checker *check.Checker
}

func (l *link) Report(_ uint32, data []byte) error { return l.ask(events.KindReport, data) }
func (l *link) Lease(_ uint32, data []byte) error  { return l.ask(events.KindLease, data) }
func (l *link) Hello(data []byte) error            { return l.ask(events.KindHello, data) }

// Listen is not called: a talk hands messages over itself.
func (l *link) Listen(context.Context, func(events.Kind, []byte)) error { return nil }

func (l *link) ask(kind events.Kind, data []byte) error {
	l.talk.note(l.name, kind, data, func(data []byte) {
		l.worker.Receive(l.talk.now, kind, data, l.replier(kind, func(data []byte) {
			l.checker.Receive(l.talk.now, answer[kind], data)
		}))
	})
	return nil
}

func (l *link) replier(kind events.Kind, hand func([]byte)) func([]byte) error {
	return func(data []byte) error {
		l.talk.note(l.name, answer[kind], data, hand)
		return nil
	}
}

// bus is the aggregator's end.
type bus struct{ alarm func([]byte) }

func (b bus) Alarm(_ uint32, data []byte) error {
	b.alarm(data)
	return nil
}

func (bus) Serve(context.Context, func(events.Kind, []byte, func([]byte) error)) error { return nil }

// Decode reads a message of a kind by this build's rules.
func Decode(kind events.Kind, data []byte) (m events.Message, err error) {
	switch kind {
	case events.KindReport:
		m, err = events.DecodeReport(data)
	case events.KindRefresh:
		m, err = events.DecodeRefresh(data)
	case events.KindAlarm:
		m, err = events.DecodeAlarm(data)
	case events.KindHello:
		m, err = events.DecodeHello(data)
	case events.KindWelcome:
		m, err = events.DecodeWelcome(data)
	case events.KindLease:
		m, err = events.DecodeLeaseRequest(data)
	case events.KindGrant:
		m, err = events.DecodeGrant(data)
	default:
		err = fmt.Errorf("no message is a %v", kind)
	}
	return m, err
}

// kinds are all that there are.
var kinds = []events.Kind{
	events.KindReport, events.KindRefresh, events.KindAlarm, events.KindHello, events.KindWelcome, events.KindLease, events.KindGrant,
}

func kindOf(name string) events.Kind {
	for _, k := range kinds {
		if k.String() == name {
			return k
		}
	}
	return 0
}

// Meaning is what this build takes a message to say, as JSON.
func Meaning(kind events.Kind, data []byte) (json.RawMessage, error) {
	m, err := Decode(kind, data)
	if err != nil {
		return nil, err
	}
	text, err := protojson.Marshal(m)
	if err != nil {
		return nil, err
	}
	var small bytes.Buffer
	if err := json.Compact(&small, text); err != nil {
		return nil, err
	}
	return small.Bytes(), nil
}
