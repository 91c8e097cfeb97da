package aggregate

import (
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/window"
)

// Bounds of one alarm message; with more to say, there are several.
const (
	alarmKeys  = 1000
	alarmCells = 32 << 10
	alarmText  = 256 << 10 // bytes
)

// alarms holds the totals of one shard's keys near their limit, until the next alarm. However often
// a key is reported meanwhile, only its latest totals are told.
type alarms struct {
	mu      sync.Mutex
	state   State
	made    int64 // when the newest report in the totals was made, by the fleet's time
	table         // what there is to tell
	told    told
	nextDue int64  // own time
	net     []Cell // memory to work with
}

// table is totals of keys.
type table struct {
	rules  []Rule
	ruleAt map[ruleID]int
	keys   []alarmed // in the order they came, so that the same run gives the same messages
	keyAt  map[alarmID]int
}

func newTable() table {
	return table{ruleAt: make(map[ruleID]int), keyAt: make(map[alarmID]int)}
}

type alarmID struct {
	rule int
	text string
}

type alarmed struct {
	alarmID
	version uint64
	totals  []Cell
	level   window.Level // of a rule that drains
}

func newAlarms() *alarms {
	return &alarms{table: newTable(), told: newTold()}
}

// note keeps the totals of those keys of an applied fold that have reached half of their limit.
func (a *alarms) note(fold *Fold, applied *Applied, counts []int64) []int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	if applied.State.Generation < a.state.Generation {
		return counts // nobody wants to hear of it any more
	}
	if applied.State.Generation > a.state.Generation {
		a.clear()
		a.told = newTold()
		a.state = applied.State
	}
	a.state.Version = max(a.state.Version, applied.State.Version)
	a.made = max(a.made, fold.Made)
	refunds := refundsOf(fold)
	for i := range fold.Keys {
		key := &fold.Keys[i]
		rule, known := &fold.Rules[key.Rule], alarmed{version: applied.State.Version, totals: applied.Totals[i]}
		if rule.Kind == Refunded {
			continue // told with the admitted ones
		}
		if rule.Drains() {
			known.level = applied.Levels[i]
		}
		back, refunded := refunds.of(key)
		weighed := known
		if refunded {
			a.net = net(a.net, known.totals, applied.Totals[back], fold.Keys[back].Cells)
			weighed.totals = a.net
		}
		var near bool
		if near, counts = isNear(rule, &weighed, fold.Now, counts); !near && !refunds.freesPermits(key) {
			continue
		}
		a.put(rule, key.Text, known)
		if refunded {
			a.put(&fold.Rules[fold.Keys[back].Rule], key.Text, alarmed{version: known.version, totals: applied.Totals[back]})
		}
	}
	return counts
}

// isNear reports whether what is known of a key has reached half of its rule's limit, or of the room that there is if
// it drains. counts is memory to work with, returned for the next time.
func isNear(r *Rule, known *alarmed, now int64, counts []int64) (bool, []int64) {
	sum := int64(0)
	for _, c := range known.totals {
		sum = Sum(sum, c.Count)
	}
	if !r.Drains() && (r.Limit == 0 || sum < r.Limit-r.Limit/2) { // most keys: even in full they are not
		return false, counts
	}
	live := r.Shape.Live()
	for len(counts) < live {
		counts = append(counts, 0)
	}
	clear(counts[:live])
	current := r.Shape.Bucket(now)
	for _, c := range known.totals {
		// Hits ahead of this worker's clock are news of the current bucket soon enough.
		if age := max(current-c.Bucket, 0); age < int64(live) {
			counts[age] = Sum(counts[age], c.Count)
		}
	}
	if r.Drains() {
		return r.Drain().Use(known.level, counts[:live], now) >= 0.5, counts
	}
	return r.Shape.Count(counts[:live], now)*2 >= float64(r.Limit), counts
}

func (t *table) put(r *Rule, text string, known alarmed) {
	id := ruleID{r.Name, r.Shape, r.Kind}
	rule, ok := t.ruleAt[id]
	if !ok {
		rule = len(t.rules)
		t.ruleAt[id] = rule
		t.rules = append(t.rules, *r)
	}
	t.rules[rule].learn(r.Limit, r.Burst, r.Revision)
	known.alarmID = alarmID{rule, text}
	at, ok := t.keyAt[known.alarmID]
	if !ok {
		at = len(t.keys)
		t.keyAt[known.alarmID] = at
		t.keys = append(t.keys, known)
	}
	if known.version >= t.keys[at].version { // folds of one shard may end in another order than they began
		t.keys[at] = known
	}
}

func (t *table) clear() {
	clear(t.rules)
	clear(t.keys)
	clear(t.ruleAt)
	clear(t.keyAt)
	t.rules, t.keys = t.rules[:0], t.keys[:0]
}

// due is when the next alarm should be sent, in own time; never if there is nothing to tell.
func (a *alarms) due() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	due := a.told.due()
	if len(a.keys) > 0 {
		due = min(due, a.nextDue)
	}
	return due
}

// hurry makes what there is due at once.
func (a *alarms) hurry() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.nextDue = math.MinInt64
}

// take returns the messages that are due at own time now, and forgets what is in them; fleet is the
// fleet's time. The next ones are due after so long.
func (a *alarms) take(shard uint32, now, fleet, every int64) (messages [][]byte, keys int, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if again := a.told.take(now, fleet, every); again != nil {
		keys = len(again.keys)
		if messages, err = again.messages(nil, a.envelope(shard, 0), fleet); err != nil {
			return nil, 0, err
		}
	}
	if len(a.keys) == 0 || now < a.nextDue {
		return messages, keys, nil
	}
	a.nextDue = now + every
	defer a.clear()
	a.told.add(&a.table)
	messages, err = a.table.messages(messages, a.envelope(shard, a.made), fleet)
	return messages, keys + len(a.keys), err
}

// envelope makes an alarm without totals.
func (a *alarms) envelope(shard uint32, made int64) func(*events.Table) *events.Alarm {
	state := a.state
	return func(t *events.Table) *events.Alarm {
		return &events.Alarm{Shard: shard, Generation: state.Generation, Version: state.Version, Totals: t, Made: made}
	}
}

// messages appends alarms of all keys, in such envelopes; fleet is the fleet's time. What was
// refunded goes first, in messages of its own, which older checkers do not get: who hears totals
// without it would be kept out.
func (t *table) messages(to [][]byte, envelope func(*events.Table) *events.Alarm, fleet int64) ([][]byte, error) {
	refunded, others := t.parts()
	for _, part := range []struct {
		keys   []alarmed
		format uint32
	}{{refunded, events.FormatRefunds}, {others, 0}} {
		for rest := part.keys; len(rest) > 0; {
			var totals *events.Table
			totals, rest = t.message(rest, fleet)
			m := envelope(totals)
			m.Format = part.format
			data, err := events.Append(nil, m)
			if err != nil {
				return nil, fmt.Errorf("make alarm: %w", err)
			}
			to = append(to, data)
		}
	}
	return to, nil
}

// parts returns the keys of refunded hits, but for those that were only asked for, and the others.
func (t *table) parts() (refunded, others []alarmed) {
	isRefunded := func(k alarmed) bool { return t.rules[k.rule].Kind == Refunded }
	if !slices.ContainsFunc(t.keys, isRefunded) {
		return nil, t.keys
	}
	for _, k := range t.keys {
		switch {
		case !isRefunded(k):
			others = append(others, k)
		case len(k.totals) > 0:
			refunded = append(refunded, k)
		}
	}
	return refunded, others
}

// message returns as many keys as an alarm can hold, and the others.
func (t *table) message(keys []alarmed, fleet int64) (*events.Table, []alarmed) {
	m := &events.Table{}
	index := make(map[int]uint32, 1)
	for i := range keys {
		k := &keys[i]
		if i > 0 && (i >= alarmKeys || len(m.Age)+len(k.totals) > alarmCells || len(m.KeyText)+len(k.text) > alarmText) {
			return m, keys[i:]
		}
		rule, ok := index[k.rule]
		if !ok {
			rule = uint32(len(m.Rules))
			index[k.rule] = rule
			m.Rules = append(m.Rules, wireRule(&t.rules[k.rule], t.rules[k.rule].Shape.Bucket(fleet)))
		}
		m.AddKey(rule, k.text)
		for _, c := range k.totals {
			m.AddCell(m.Rules[rule].GetNewest()-c.Bucket, events.Count(min(c.Count, events.MaxCount)))
		}
		if t.rules[k.rule].Drains() {
			m.SetLevel(m.Rules[rule].GetNewest()-k.level.Bucket, events.Count(k.level.Parts))
		}
	}
	return m, nil
}
