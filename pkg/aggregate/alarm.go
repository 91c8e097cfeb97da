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
	rules   []Rule
	ruleAt  map[ruleID]int
	keys    []alarmed // in the order they came, so that the same run gives the same messages
	keyAt   map[alarmID]int
	nextDue int64  // own time
	net     []Cell // memory to work with
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
	return &alarms{ruleAt: make(map[ruleID]int), keyAt: make(map[alarmID]int)}
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

func (a *alarms) put(r *Rule, text string, known alarmed) {
	id := ruleID{r.Name, r.Shape, r.Kind}
	rule, ok := a.ruleAt[id]
	if !ok {
		rule = len(a.rules)
		a.ruleAt[id] = rule
		a.rules = append(a.rules, *r)
	}
	a.rules[rule].learn(r.Limit, r.Burst, r.Revision)
	known.alarmID = alarmID{rule, text}
	at, ok := a.keyAt[known.alarmID]
	if !ok {
		at = len(a.keys)
		a.keyAt[known.alarmID] = at
		a.keys = append(a.keys, known)
	}
	if known.version >= a.keys[at].version { // folds of one shard may end in another order than they began
		a.keys[at] = known
	}
}

func (a *alarms) clear() {
	clear(a.rules)
	clear(a.keys)
	clear(a.ruleAt)
	clear(a.keyAt)
	a.rules, a.keys = a.rules[:0], a.keys[:0]
}

// due is when the next alarm should be sent, in own time; never if there is nothing to tell.
func (a *alarms) due() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.keys) == 0 {
		return never
	}
	return a.nextDue
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
	if len(a.keys) == 0 || now < a.nextDue {
		return nil, 0, nil
	}
	a.nextDue = now + every
	defer a.clear()
	// What was refunded goes first, in messages of its own, that older checkers do not get: who hears the totals without it would be kept out.
	isRefunded := func(k alarmed) bool { return a.rules[k.rule].Kind == Refunded }
	var refunded, others []alarmed
	if slices.ContainsFunc(a.keys, isRefunded) {
		for _, k := range a.keys {
			switch {
			case !isRefunded(k):
				others = append(others, k)
			case len(k.totals) > 0: // or else it was only asked for
				refunded = append(refunded, k)
			}
		}
	} else {
		others = a.keys
	}
	for _, list := range []struct {
		keys   []alarmed
		format uint32
	}{{refunded, events.FormatRefunds}, {others, 0}} {
		for rest := list.keys; len(rest) > 0; {
			var message *events.Alarm
			message, rest = a.message(shard, rest, fleet)
			message.Format = list.format
			data, err := events.Append(nil, message)
			if err != nil {
				return nil, 0, fmt.Errorf("make alarm: %w", err)
			}
			messages = append(messages, data)
		}
	}
	return messages, len(a.keys), nil
}

// message makes an alarm of as many keys as it can hold, and returns the others.
func (a *alarms) message(shard uint32, keys []alarmed, fleet int64) (*events.Alarm, []alarmed) {
	t := &events.Table{}
	index := make(map[int]uint32, 1)
	for i := range keys {
		k := &keys[i]
		if i > 0 && (i >= alarmKeys || len(t.Age)+len(k.totals) > alarmCells || len(t.KeyText)+len(k.text) > alarmText) {
			keys = keys[i:]
			return a.envelope(shard, t), keys
		}
		rule, ok := index[k.rule]
		if !ok {
			rule = uint32(len(t.Rules))
			index[k.rule] = rule
			t.Rules = append(t.Rules, wireRule(&a.rules[k.rule], a.rules[k.rule].Shape.Bucket(fleet)))
		}
		t.AddKey(rule, k.text)
		for _, c := range k.totals {
			t.AddCell(t.Rules[rule].GetNewest()-c.Bucket, events.Count(min(c.Count, events.MaxCount)))
		}
		if a.rules[k.rule].Drains() {
			t.SetLevel(t.Rules[rule].GetNewest()-k.level.Bucket, events.Count(k.level.Parts))
		}
	}
	return a.envelope(shard, t), nil
}

func (a *alarms) envelope(shard uint32, t *events.Table) *events.Alarm {
	return &events.Alarm{Shard: shard, Generation: a.state.Generation, Version: a.state.Version, Totals: t, Made: a.made}
}
