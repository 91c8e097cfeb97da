package console

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/offpath-io/offpath/cmd/internal/console/history"
	"github.com/offpath-io/offpath/internal/rulelabel"
	"github.com/offpath-io/offpath/internal/status"
)

const (
	// silentAfter is after how many statuses that have not come a part is silent, and what it said
	// counts no more.
	silentAfter = 4
	// forgetAfter is how long a silent part stays in view.
	forgetAfter = time.Minute
	// maxParts bounds the parts of each kind; others are not seen.
	maxParts = 20_000
	// maxMore bounds what one status may add to a number of a rule's: sums stay numbers.
	maxMore = 1e12
	// maxHeld bounds what is kept of all parts, in bytes, about: the parts that would be beyond it
	// are not seen. A thousand checkers with a thousand rules each take half of it.
	maxHeld = 256 << 20
)

// picture is what was last heard of all parts of a fleet, and a past of it.
type picture struct {
	now     func() time.Time
	fleet   func() time.Time // the fleet's time, by which consoles agree on the slots of its history
	history *history.History

	mu          sync.Mutex
	checkers    map[string]*heardChecker
	aggregators map[string]*heardAggregator
	demand      *demand
	held        int           // bytes, about, of checkers and aggregators
	set         []status.Rule // told last: checkers of a fleet have the same
}

type heardChecker struct {
	status.Checker
	at    time.Time
	rates []ratesOfTwo // of each of Rules, per second since the status before
	size  int
}

type ratesOfTwo struct{ allowed, denied float64 }

type heardAggregator struct {
	status.Aggregator
	at   time.Time
	size int
	full time.Time          // when a key was last not counted for want of room
	over map[string]float64 // by rule, as last told: a status may leave rules out for a while
}

func newPicture(now func() time.Time) *picture {
	return &picture{
		now: now, fleet: now, history: history.New(), demand: newDemand(), checkers: make(map[string]*heardChecker), aggregators: make(map[string]*heardAggregator),
	}
}

// checker takes in a checker's status.
func (p *picture) checker(s status.Checker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.checkers[s.Name]
	if s.Leaving {
		p.dropChecker(s.Name)
		return
	}
	if h == nil {
		h = &heardChecker{}
	}
	if s.Set == nil {
		s.Set = h.Set
	}
	size := sizeOfPart(&s.Part) + len(s.Freshness) + len(s.RulesDigest) + sizeOfKeys(&s.Denied)
	for i := range s.Rules {
		size += decisionsSize + len(s.Rules[i].Rule)
	}
	if slices.Equal(s.Set, p.set) {
		s.Set = p.set
	} else {
		p.set = s.Set
		size += sizeOfRules(s.Set)
	}
	if !p.hasRoom(len(p.checkers), p.checkers[s.Name] == nil, size-h.size) {
		return
	}
	p.held += size - h.size
	p.checkers[s.Name] = p.compare(h, s, size)
}

// compare returns what is known of a checker by its status, and by the one before, which h has.
func (p *picture) compare(h *heardChecker, s status.Checker, size int) *heardChecker {
	next := &heardChecker{Checker: s, at: p.now(), rates: make([]ratesOfTwo, len(s.Rules)), size: size}
	if h.at.IsZero() { // what it had done before is no news
		return next
	}
	was := make(map[string]*status.Decisions, len(h.Rules))
	for i := range h.Rules {
		was[h.Rules[i].Rule] = &h.Rules[i]
	}
	// When statuses come late and then several at once, their counts are still of the time between
	// two: it is at least what the one before has said.
	seconds := max(next.at.Sub(h.at), time.Duration(h.Every)*time.Millisecond).Seconds()
	for i, r := range s.Rules {
		before := was[r.Rule]
		if before == nil {
			before = &status.Decisions{}
		}
		more := history.Point{
			Allowed: since(r.Allowed, before.Allowed), Denied: since(r.Denied, before.Denied),
			False: since(r.False, before.False), Lost: since(r.Lost, before.Lost),
		}
		p.addToHistory(r.Rule, next.at.Sub(h.at), more)
		if seconds > 0 {
			next.rates[i] = ratesOfTwo{more.Allowed / seconds, more.Denied / seconds}
		}
	}
	return next
}

// since is by how much a counter has grown; nothing if it has begun again.
func since[N int64 | float64](now, before N) float64 {
	return min(max(float64(now)-float64(before), 0), maxMore)
}

// addToHistory adds what has happened under a rule in the last so long. The label of removed rules
// gets all at once what those had counted, so it has no history.
func (p *picture) addToHistory(rule string, in time.Duration, more history.Point) {
	if rule != rulelabel.Removed {
		now := p.fleet()
		p.history.Add(rule, now.Add(-in), now, more)
	}
}

// aggregator takes in an aggregator's status.
func (p *picture) aggregator(s status.Aggregator) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.Leaving {
		p.dropAggregator(s.Name)
		return
	}
	h, size := p.aggregators[s.Name], sizeOfPart(&s.Part)+sizeOfRules(s.Rules)+sizeOfKeys(&s.Used)
	for i := range s.Near {
		size += keySize + len(s.Near[i].Rule) + len(s.Near[i].Key)
	}
	next := &heardAggregator{Aggregator: s, at: p.now(), over: overOf(h, s.Rules)}
	for rule := range next.over {
		size += overSize + len(rule)
	}
	next.size = size
	before := 0
	if h != nil {
		before = h.size
	}
	if p.hasRoom(len(p.aggregators), h == nil, size-before) {
		p.held += size - before
		if h != nil {
			p.compareAggregator(h, next)
		}
		p.aggregators[s.Name] = next
	}
}

// overOf is what an aggregator has told of all its rules, also of those that it leaves out now.
// It knows maxRules: with more, the others are no longer its own.
func overOf(h *heardAggregator, rules []status.Rule) map[string]float64 {
	over := make(map[string]float64)
	for i := range rules {
		over[rules[i].Name] = rules[i].Over
	}
	if h != nil {
		for rule, n := range h.over {
			if _, ok := over[rule]; !ok && len(over) < maxRules {
				over[rule] = n
			}
		}
	}
	return over
}

// compareAggregator takes in what has happened since an aggregator's status before. What a rule has
// that was not heard of before is news, unless others were left out, too.
func (p *picture) compareAggregator(h, next *heardAggregator) {
	next.full = h.full
	if next.Uncounted > h.Uncounted {
		next.full = next.at
	}
	for i := range next.Rules {
		r := &next.Rules[i]
		was, ok := h.over[r.Name]
		if ok || len(h.Rules) < rulesTold {
			p.addToHistory(r.Name, next.at.Sub(h.at), history.Point{Over: since(r.Over, was)})
		}
	}
}

// lastFull is when an aggregator last did not count a key for want of room; zero for never.
func (p *picture) lastFull() (at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range p.aggregators {
		if h.full.After(at) {
			at = h.full
		}
	}
	return at
}

// hasRoom says whether there is room for a part, one more of so many if it is new, that takes so
// much more than before.
func (p *picture) hasRoom(parts int, isNew bool, more int) bool {
	return (!isNew || parts < maxParts) && (more <= 0 || p.held+more <= maxHeld)
}

// What a part, a rule, a rule's decisions with their rates, a key, and an estimate of a rule take
// beside their texts, in bytes. The slices that they are in may have room for twice as many, and
// each text takes up to 16 bytes more than it has.
const partSize, ruleSize, decisionsSize, keySize, overSize = 800, 320, 170, 112, 64

func sizeOfPart(p *status.Part) int {
	return partSize + 2*len(p.Name) + len(p.Host) + len(p.Version) + len(p.Problem)
}

func sizeOfRules(rules []status.Rule) (size int) {
	for i := range rules {
		r := &rules[i]
		size += ruleSize + len(r.Name) + len(r.Of) + len(r.Algorithm)
	}
	return size
}

func sizeOfKeys(keys *status.Keys) (size int) {
	for i := range keys.List {
		size += keySize + len(keys.List[i].Rule) + len(keys.List[i].Key)
	}
	return size
}

func (p *picture) dropChecker(name string) {
	if h := p.checkers[name]; h != nil {
		p.held -= h.size
		delete(p.checkers, name)
	}
}

func (p *picture) dropAggregator(name string) {
	if h := p.aggregators[name]; h != nil {
		p.held -= h.size
		delete(p.aggregators, name)
	}
}

// isSilent says whether a part has missed several of its statuses.
func isSilent(p *status.Part, at, now time.Time) bool {
	return now.Sub(at) > max(silentAfter*time.Duration(p.Every)*time.Millisecond, silentAfter*time.Second)
}

// forget forgets who has been silent for long, and notes what the busiest keys ask for.
func (p *picture) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	for name, h := range p.checkers {
		if isSilent(&h.Part, h.at.Add(forgetAfter), now) {
			p.dropChecker(name)
		}
	}
	for name, h := range p.aggregators {
		if isSilent(&h.Part, h.at.Add(forgetAfter), now) {
			p.dropAggregator(name)
		}
	}
	used, denied := p.topKeysLocked(now)
	p.demand.note(now, used, denied)
}

// rulesHeard are the rules that checkers and aggregators tell of, the newest revision of each.
func (p *picture) rulesHeard() map[string]status.Rule {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make(map[string]status.Rule)
	hear := func(list []status.Rule) {
		for _, r := range list {
			known, ok := all[r.Name]
			of := cmp.Or(r.Of, known.Of)
			if !ok || r.Revision > known.Revision {
				known = r
			}
			known.Of = of // aggregators do not know
			all[r.Name] = known
		}
	}
	for _, h := range p.aggregators {
		hear(h.Rules)
	}
	var last []status.Rule
	for _, h := range p.checkers {
		if len(h.Set) > 0 && (len(last) == 0 || &h.Set[0] != &last[0]) { // most have the very same
			hear(h.Set)
			last = h.Set
		}
	}
	return all
}

// mayBeOverrides says whether a name may be that of an override's counter, whose rule is not known
// yet: aggregators tell of counters at once, and checkers of their rules now and then.
func (p *picture) mayBeOverrides(name string) bool {
	if !strings.Contains(name, "/") {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	untold := false
	for _, h := range p.checkers {
		if slices.ContainsFunc(h.Set, func(r status.Rule) bool { return r.Name == name }) {
			return false
		}
		untold = untold || len(h.Set) == 0
	}
	return untold
}

// sortedNames are a map's keys in order.
func sortedNames[T any](all map[string]T) []string {
	names := slices.AppendSeq(make([]string, 0, len(all)), maps.Keys(all))
	slices.Sort(names)
	return names
}
