package aggregate

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/offpath-io/offpath/pkg/events"
)

// maxNewest leaves room for the ages of all live buckets, counted from a bucket of a report.
const maxNewest = 1 << 42

// Receive takes in one message at own time now. A report or lease request waits for a Step (or Run) to
// be folded; it is answered by reply, once or never. A hello is answered at once, unless reply is nil. Whatever the
// payload, Receive does not panic, and keeps nothing of it. It is safe for concurrent use.
func (w *Worker) Receive(now int64, kind events.Kind, payload []byte, reply func([]byte) error) {
	switch kind {
	case events.KindReport:
		w.counters.reports.Add(1)
		w.receiveReport(now, payload, reply, false)
	case events.KindLease:
		w.counters.leaseRequests.Add(1)
		w.receiveLease(now, payload, reply)
	case events.KindHello:
		w.counters.hellos.Add(1)
		if h, err := events.DecodeHello(payload); err == nil {
			w.checkers.note(h, now)
			w.welcome(now, h, reply)
			if h.GetAsks() {
				for _, s := range w.shards() {
					s.tellAgain()
				}
			}
		}
	}
}

// receiveReport takes in a report, which may be this worker's own: then it may give back what it has not reported.
func (w *Worker) receiveReport(now int64, payload []byte, reply func([]byte) error, own bool) {
	if reply == nil { // nobody to answer: nobody who would send it again
		w.counters.dropped.Add(1)
		return
	}
	shards := w.shards()
	if len(shards) == 0 { // the store has not been reached yet
		w.counters.dropped.Add(1)
		return
	}
	report, err := events.DecodeReport(payload)
	if err == nil {
		err = w.checkFleet(report.GetShards(), report.GetHits().GetRules(), len(shards))
	}
	if err == nil {
		err = checkAge(report, w.clock.fleet(now))
	}
	if err == nil && !own {
		err = w.checkRules(report.GetEpoch(), report.GetHits().GetRules(), now)
	}
	if err != nil {
		w.refuse(payload, reply, err)
		return
	}
	w.noteKinds(report.GetHits().GetRules())
	w.counters.settlements.Add(int64(len(report.Settlements)))
	w.acceptSettlements(report, len(shards), now, own)
	r := &request{report: report, own: own, waiting: waiting{
		epoch: report.GetEpoch(), sequence: report.GetSequence(),
		reply: reply, arrived: now, weight: weightOf(report.GetHits()) + 2*len(report.Settlements),
	}}
	w.trace(r)
	switch shards[report.GetShard()].gather.add(r) {
	case fateReplaced:
		w.counters.replaced.Add(1)
	case fateStale:
		w.counters.stale.Add(1)
		r.tell(TraceEvent{Kind: TraceDropped})
	case fateFull:
		w.counters.dropped.Add(1)
		r.tell(TraceEvent{Kind: TraceDropped})
	}
}

var (
	errWindow = errors.New("a window")                                                       // beyond Options.MaxWindow
	errRules  = errors.New("there are too many rules that checkers of this one's name have") // beyond Options.MaxRules
)

// checkRules refuses a message if there is no room for its rules.
func (w *Worker) checkRules(epoch uint64, rules []*events.Rule, now int64) error {
	if !w.ruleBound.note(epoch, rules, now) {
		return errRules
	}
	return nil
}

// noteRules counts a message that is refused, if that is for its rules.
func (w *Worker) noteRules(reason error) {
	switch {
	case errors.Is(reason, errWindow):
		w.counters.rulesLong.Add(1)
	case errors.Is(reason, events.ErrRules), errors.Is(reason, errRules):
		w.counters.rulesMany.Add(1)
	case errors.Is(reason, events.ErrAlgorithm):
		w.counters.rulesUnknown.Add(1)
	}
}

// noteKinds counts a report with hits of a kind that this build does not know, which it leaves out.
func (w *Worker) noteKinds(rules []*events.Rule) {
	if slices.ContainsFunc(rules, func(r *events.Rule) bool {
		_, known := hitsOf(r)
		return !known
	}) {
		w.counters.rulesUnknown.Add(1)
	}
}

// refuse tells the sender of a report why it will never be counted, if the sender can be made out.
func (w *Worker) refuse(payload []byte, reply func([]byte) error, reason error) {
	w.noteRules(reason)
	if errors.Is(reason, events.ErrMalformed) {
		w.counters.malformed.Add(1)
	}
	epoch, shard, sequence, ok := identify(payload)
	if !ok {
		return
	}
	w.counters.refused.Add(1)
	if err := refuse(reply, epoch, shard, sequence, reason); err != nil {
		w.counters.replyErrors.Add(1)
	}
}

// checkAge refuses what may have been counted so long ago that no store remembers it. Its checker
// gives it up at the same age, but by a clock that stands still while its machine is asleep.
func checkAge(m *events.Report, now int64) error {
	if age := time.Duration(now - m.GetMade()); m.GetMade() > 0 && age > events.MaxReportAge {
		return fmt.Errorf("the report is %v old", age.Round(time.Second))
	}
	return nil
}

// checkFleet holds a message for a fleet of so many shards against this fleet, and its rules against what
// can be answered.
func (w *Worker) checkFleet(shards uint32, rules []*events.Rule, ours int) error {
	if int64(shards) != int64(ours) {
		return fmt.Errorf("message for a fleet of %d shards; this one has %d", shards, ours)
	}
	for _, r := range rules {
		if n := r.GetNewest(); n > maxNewest || n < -maxNewest {
			return fmt.Errorf("%w: rule %q: bucket %d", events.ErrMalformed, r.GetName(), n)
		}
		if length := shapeOf(r).Length; length > w.o.MaxWindow {
			return fmt.Errorf("rule %q: %w of %v; this aggregator takes %v at most",
				r.GetName(), errWindow, length, w.o.MaxWindow)
		}
		if err := shapeOf(r).Validate(); err != nil {
			return fmt.Errorf("%w: rule %q: %w", events.ErrMalformed, r.GetName(), err)
		}
	}
	return nil
}

// weightOf is how much of a fold's budget the keys of a message take, at least 1.
func weightOf(t *events.Table) int {
	rules := t.GetRules()
	if len(rules) == 1 {
		return max(t.Keys()*weight(shapeOf(rules[0])), 1)
	}
	weights := make([]int, len(rules))
	for i, r := range rules {
		weights[i] = weight(shapeOf(r))
	}
	sum := 0
	for _, rule := range t.GetKeyRule() {
		sum += weights[rule]
	}
	return max(sum, 1)
}

// identify reads a report's or lease request's epoch, shard and sequence, which come first, out of bytes of which the
// rest may make no sense.
func identify(payload []byte) (epoch uint64, shard uint32, sequence uint64, ok bool) {
	const (
		fixed64 = 1
		varint  = 0
	)
	for len(payload) > 0 {
		tag, n := binary.Uvarint(payload)
		if n <= 0 {
			break
		}
		payload = payload[n:]
		var value uint64
		switch tag & 7 {
		case fixed64:
			if len(payload) < 8 {
				return 0, 0, 0, false
			}
			value, n = binary.LittleEndian.Uint64(payload), 8
		case varint:
			value, n = binary.Uvarint(payload)
		default: // the table: what is wanted has been
			n = 0
		}
		if n <= 0 {
			break
		}
		payload = payload[n:]
		switch tag {
		case 1<<3 | fixed64:
			epoch = value
		case 2<<3 | varint:
			shard = uint32(value)
		case 4<<3 | varint:
			sequence = value
		}
	}
	return epoch, shard, sequence, epoch != 0 && sequence != 0 && sequence <= events.MaxState
}
