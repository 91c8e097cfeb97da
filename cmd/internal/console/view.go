package console

import (
	"cmp"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/offpath-io/offpath/internal/status"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
)

// View is a fleet at a glance: what the page shows, and "offpath top" and "fleet" print.
type View struct {
	Now       time.Time `json:"now"`
	Namespace string    `json:"namespace"`
	Version   string    `json:"version"`
	// By is the aggregator that shows it.
	By string `json:"by"`
	// Connected to NATS: if not, nothing is heard of anybody.
	Connected bool `json:"connected"`
	// CanChange says that there are tokens, with which keys may be blocked and reset.
	CanChange   bool             `json:"can_change"`
	Verdict     Verdict          `json:"verdict"`
	Heard       Heard            `json:"heard"`
	Checkers    []CheckerView    `json:"checkers"`
	Aggregators []AggregatorView `json:"aggregators"`
	Rules       []RuleView       `json:"rules"`
	// Counters names all rules and overrides that keys can be looked up under.
	Counters []string  `json:"counters"`
	Used     []TopView `json:"used"`
	Denied   []TopView `json:"denied"`
	// Near are the keys nearest to their limits, or beyond them, of the last minute.
	Near   []status.Near `json:"near"`
	Blocks []BlockView   `json:"blocks"`
	// BlocksWhy is why blocks cannot be read, "" if they can.
	BlocksWhy string   `json:"blocks_why,omitempty"`
	Book      BookView `json:"book"`
	Audit     []Record `json:"audit"`
}

// Heard says of how many parts the numbers are sums. Those of silent ones are left out.
type Heard struct {
	Checkers    int `json:"checkers"`
	Silent      int `json:"silent"`
	Aggregators int `json:"aggregators"`
	// Hellos is how many checkers aggregators hear: more than tell their status if some are of an
	// older version, or embedded in services that do not tell it.
	Hellos int `json:"hellos"`
	// Blocks is how many keys are blocked.
	Blocks int `json:"blocks"`
	// Limited is how many keys were denied anything in the last minute, and Near how many were near
	// their limit, of those that parts tell of.
	Limited int `json:"limited"`
	Near    int `json:"near"`
	// LimitedMore says that there may be more of the former than parts tell of.
	LimitedMore bool `json:"limited_more,omitempty"`
	// Rules is how many rules anything was decided under.
	Rules   int   `json:"rules"`
	Allowed int64 `json:"allowed"`
	Denied  int64 `json:"denied"`
	// AllowedRate and DeniedRate are per second, as of the last statuses.
	AllowedRate float64 `json:"allowed_rate"`
	DeniedRate  float64 `json:"denied_rate"`
	// Estimates of the last five minutes: hits beyond their limit as part of those that passed, and
	// denials although there was room as part of all decisions.
	OverShare  float64 `json:"over_share"`
	FalseShare float64 `json:"false_share"`
}

// CheckerView is a checker, and how long ago it was heard.
type CheckerView struct {
	status.Part
	Ago           int64   `json:"ago_ms"`
	Silent        bool    `json:"silent"`
	Freshness     string  `json:"freshness"`
	HeardAgo      int64   `json:"heard_ago_ms"`
	RulesRevision uint64  `json:"rules_revision"`
	RulesDigest   string  `json:"rules_digest"`
	Unreported    int64   `json:"unreported"`
	Blocks        int     `json:"blocks"`
	Allowed       int64   `json:"allowed"`
	Denied        int64   `json:"denied"`
	Rate          float64 `json:"rate"`
}

// AggregatorView is an aggregator, and how long ago it was heard.
type AggregatorView struct {
	status.Part
	Ago      int64 `json:"ago_ms"`
	Silent   bool  `json:"silent"`
	Ready    bool  `json:"ready"`
	Behind   int64 `json:"behind_ms"`
	Waiting  int64 `json:"waiting"`
	Reports  int64 `json:"reports"`
	Folds    int64 `json:"folds"`
	Errors   int64 `json:"errors"`
	Checkers int   `json:"checkers"`
	Shards   int   `json:"shards"`
	// Loss is the last loss of data by Redis that it has found out, null if there was none.
	Loss *status.Loss `json:"loss"`
}

// RuleView is a rule's decisions over the fleet: the sums of offpath_decisions_total of all
// checkers that are heard.
type RuleView struct {
	Rule        string  `json:"rule"`
	Allowed     int64   `json:"allowed"`
	Denied      int64   `json:"denied"`
	AllowedRate float64 `json:"allowed_rate"` // per second
	DeniedRate  float64 `json:"denied_rate"`
	// Limit is what is known of the rule, null if nothing is.
	Limit *status.Rule `json:"limit"`
}

// TopView is a key, and how often it came per second in about the last minute.
type TopView struct {
	Rule string      `json:"rule"`
	Key  status.Text `json:"key"`
	Rate float64     `json:"rate"`
}

// most bounds what a view lists of each kind, so that a page stays quick, also over a phone's
// network; the counts are of all.
const most = 300

// View returns the fleet as it was last heard.
func (c *Console) View() View {
	known := c.known()
	v := c.picture.view()
	v.Namespace, v.Version, v.By = c.o.Namespace, c.part.Version, c.part.Name
	v.Connected, v.CanChange = c.o.Conn.IsConnected(), len(c.o.Tokens()) > 0
	v.Book, v.Audit, v.Counters = c.rules.view(), c.diary.latest(), sortedNames(known)
	if len(v.Counters) > maxRules {
		v.Counters = v.Counters[:maxRules]
	}
	for i := range v.Rules {
		if r, ok := known[v.Rules[i].Rule]; ok {
			v.Rules[i].Limit = new(r.wire())
		}
	}
	all, byRule := c.picture.history.Lately(lately, c.o.Worker.Now())
	v.Heard.OverShare = all.Over / max(all.Allowed, 1)
	v.Heard.FalseShare = all.False / max(all.Allowed+all.Denied, 1)
	v.Verdict = judge(&v, all, byRule, c.picture.lastFull())
	c.mu.Lock()
	defer c.mu.Unlock()
	v.BlocksWhy, v.Blocks = c.why, []BlockView{}
	now := c.o.Worker.Now()
	for _, e := range c.blocks {
		if e.Ended(now) {
			continue
		}
		if v.Heard.Blocks++; len(v.Blocks) < most {
			v.Blocks = append(v.Blocks, blockView(e, now))
		}
	}
	return v
}

// shown is the view as JSON, made at most twice a tick, however many look.
type shown struct {
	mu   sync.Mutex
	at   time.Time
	data []byte
}

// viewJSON returns the view, at most half a tick old. It must not be changed.
func (c *Console) viewJSON() ([]byte, error) {
	s := &c.shown
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.data != nil && time.Since(s.at) < tick/2 {
		return s.data, nil
	}
	data, err := json.Marshal(c.View())
	if err == nil {
		s.at, s.data = time.Now(), data
	}
	return data, err
}

// halve leaves the first half of the longest lists; false if there is nothing to leave out. Those
// that need a look come first in them.
func (v *View) halve() bool {
	longest := max(len(v.Checkers), len(v.Aggregators), len(v.Rules), len(v.Blocks))
	v.Checkers, v.Aggregators = half(v.Checkers, longest), half(v.Aggregators, longest)
	v.Rules, v.Blocks = half(v.Rules, longest), half(v.Blocks, longest)
	return longest > 1
}

func half[T any](list []T, longest int) []T { return list[:min(len(list), longest/2)] }

// short is the view without what is only chosen from or read on the page, which no message needs to
// carry.
func (v View) short() View {
	v.Counters, v.Audit = nil, nil
	return v
}

// view is what the picture shows.
func (p *picture) view() View {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	v := View{Now: now, Checkers: []CheckerView{}, Aggregators: []AggregatorView{}}
	rules := make(map[string]*RuleView)
	for _, name := range sortedNames(p.checkers) {
		h := p.checkers[name]
		silent := isSilent(&h.Part, h.at, now)
		c := checkerView(h, now, silent)
		if silent {
			v.Heard.Silent++
		} else {
			v.Heard.Checkers++
			c.Allowed, c.Denied, c.Rate = addUp(rules, h)
			v.Heard.LimitedMore = v.Heard.LimitedMore || len(h.Denied.List) >= deniedTold
			v.Heard.Allowed = storage.Sum(v.Heard.Allowed, c.Allowed)
			v.Heard.Denied = storage.Sum(v.Heard.Denied, c.Denied)
		}
		v.Checkers = append(v.Checkers, c)
	}
	for _, name := range sortedNames(p.aggregators) {
		h := p.aggregators[name]
		silent := isSilent(&h.Part, h.at, now)
		if !silent {
			v.Heard.Aggregators++
			v.Heard.Hellos = max(v.Heard.Hellos, h.Checkers)
		}
		v.Aggregators = append(v.Aggregators, aggregatorView(h, now, silent))
	}
	// Those that need a look come first.
	slices.SortStableFunc(v.Checkers, func(a, b CheckerView) int { return cmp.Compare(b.trouble(), a.trouble()) })
	v.Checkers = v.Checkers[:min(len(v.Checkers), most)]
	slices.SortStableFunc(v.Aggregators, func(a, b AggregatorView) int { return cmp.Compare(b.trouble(), a.trouble()) })
	v.Aggregators = v.Aggregators[:min(len(v.Aggregators), most)]
	for _, r := range rules {
		v.Heard.AllowedRate += r.AllowedRate
		v.Heard.DeniedRate += r.DeniedRate
	}
	v.Heard.AllowedRate, v.Heard.DeniedRate = round(v.Heard.AllowedRate), round(v.Heard.DeniedRate)
	v.Heard.Rules, v.Rules = len(rules), rulesOf(rules)
	used, denied := p.topKeysLocked(now)
	v.Heard.Limited = len(denied)
	used, denied = used[:min(len(used), topShown)], denied[:min(len(denied), topShown)]
	v.Used, v.Denied = topViews(used), topViews(denied)
	v.Near, v.Heard.Near = p.nearLocked(now)
	return v
}

// nearLocked returns the keys that are nearest to their limits, and how many are near.
func (p *picture) nearLocked(now time.Time) (list []status.Near, all int) {
	known := make(map[keyID]status.Near)
	for _, h := range p.aggregators {
		if isSilent(&h.Part, h.at, now) {
			continue
		}
		for _, k := range h.Near { // after a change of owner two may tell of it
			if id := (keyID{k.Rule, string(k.Key)}); k.Count >= known[id].Count {
				known[id] = k
			}
		}
	}
	list = slices.AppendSeq([]status.Near{}, maps.Values(known))
	slices.SortFunc(list, byUse)
	return list[:min(len(list), topShown)], len(list)
}

// trouble is 1 for a checker that something is wrong with.
func (c *CheckerView) trouble() int {
	if c.Silent || c.Problem != "" || c.Freshness != "fresh" {
		return 1
	}
	return 0
}

// trouble is 1 for an aggregator that something is wrong with.
func (a *AggregatorView) trouble() int {
	if a.Silent || !a.Ready {
		return 1
	}
	return 0
}

// addUp adds a checker's counters to those of the fleet, and returns its own sums.
func addUp(rules map[string]*RuleView, h *heardChecker) (allowed, denied int64, rate float64) {
	for i, r := range h.Rules {
		sum := rules[r.Rule]
		if sum == nil {
			sum = &RuleView{Rule: r.Rule}
			rules[r.Rule] = sum
		}
		sum.Allowed, sum.Denied = storage.Sum(sum.Allowed, r.Allowed), storage.Sum(sum.Denied, r.Denied)
		rates := h.rates[i]
		sum.AllowedRate += rates.allowed
		sum.DeniedRate += rates.denied
		allowed, denied, rate = storage.Sum(allowed, r.Allowed), storage.Sum(denied, r.Denied), rate+rates.allowed+rates.denied
	}
	return allowed, denied, round(rate)
}

// round leaves as many digits as anybody reads.
func round(rate float64) float64 { return math.Round(rate*100) / 100 }

func checkerView(h *heardChecker, now time.Time, silent bool) CheckerView {
	return CheckerView{
		Part: h.Part, Ago: now.Sub(h.at).Milliseconds(), Silent: silent, Freshness: h.Freshness, HeardAgo: h.HeardAgo,
		RulesRevision: h.RulesRevision, RulesDigest: h.RulesDigest, Unreported: h.Unreported, Blocks: h.Blocks,
	}
}

func aggregatorView(h *heardAggregator, now time.Time, silent bool) AggregatorView {
	return AggregatorView{
		Part: h.Part, Ago: now.Sub(h.at).Milliseconds(), Silent: silent, Ready: h.Ready, Behind: h.Behind, Waiting: h.Waiting,
		Reports: h.Reports, Folds: h.Folds, Errors: h.Errors, Checkers: h.Aggregator.Checkers, Shards: h.Shards, Loss: h.Loss,
	}
}

// rulesOf returns the sums, the busiest rule first, and then by name.
func rulesOf(rules map[string]*RuleView) []RuleView {
	list := make([]RuleView, 0, len(rules))
	for _, name := range sortedNames(rules) {
		list = append(list, *rules[name])
	}
	slices.SortStableFunc(list, func(a, b RuleView) int {
		return cmp.Compare(storage.Sum(b.Allowed, b.Denied), storage.Sum(a.Allowed, a.Denied))
	})
	list = list[:min(len(list), most)]
	for i := range list {
		r := &list[i]
		r.AllowedRate, r.DeniedRate = round(r.AllowedRate), round(r.DeniedRate)
	}
	return list
}

func topViews(top []topKey) []TopView {
	list := make([]TopView, len(top))
	for i, k := range top {
		list[i] = TopView{Rule: k.rule, Key: status.Text(k.key), Rate: round(k.rate)}
	}
	return list
}
