package console

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/offpath-io/offpath/cmd/internal/console/history"
	"github.com/offpath-io/offpath/internal/status"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
)

// runbook is the page that says what to do, by the names of alerts.
const runbook = "https://github.com/offpath-io/offpath/blob/main/docs/operations_alerts.md#"

// State is how bad something is, by the words of the alerts: a page is for what makes limits wrong
// now, a ticket for what can wait for the morning.
type State string

// States, the worst first.
const (
	Page   State = "page"
	Ticket State = "ticket"
	Good   State = "good"
)

// rank is lower for what is worse.
func (s State) rank() int { return slices.Index([]State{Page, Ticket, Good}, s) }

// Verdict is how a fleet is, in a sentence.
type Verdict struct {
	State State  `json:"state"`
	Text  string `json:"text"`
	// Findings are what is wrong, the worst first; the text tells the first.
	Findings []Finding `json:"findings"`
}

// Finding is something that is wrong.
type Finding struct {
	State State  `json:"state"`
	Text  string `json:"text"`
	// Alert is the one that is about it, Runbook the address of what to do.
	Alert   string `json:"alert"`
	Runbook string `json:"runbook"`
}

const (
	// lately is the time that findings are about which are sums.
	lately = 5 * time.Minute
	// newsFor is for how long a loss is told.
	newsFor = 10 * time.Minute
	// settleFor is for how long new rules may take to be everywhere.
	settleFor = 10 * time.Second
	// maxBehind is how late hits may be counted, in milliseconds.
	maxBehind = 5000
	// mostOver and mostFalse are the parts of the hits that passed, and of the decisions, above
	// which an estimate is a finding, as of the alerts; at least leastRate a second of either.
	mostOver, mostFalse, leastRate = 0.01, 0.02, 1
)

// judge says how the fleet in a view is; all and rules are the sums of the last five minutes, of
// the fleet and of its rules, full is when an aggregator last had no room for a key.
func judge(v *View, all history.Point, rules map[string]history.Point, full time.Time) Verdict {
	var f findings
	f.connections(v)
	f.aggregators(v)
	f.checkers(v)
	f.losses(v, all.Lost, full)
	f.estimates(rules)
	slices.SortStableFunc(f, func(a, b Finding) int { return cmp.Compare(a.State.rank(), b.State.rank()) })
	if len(f) > 0 {
		return Verdict{f[0].State, f[0].Text, f}
	}
	return Verdict{Good, healthy(v), []Finding{}}
}

type findings []Finding

func (f *findings) add(state State, alert, text string, values ...any) {
	*f = append(*f, Finding{state, fmt.Sprintf(text, values...), alert, runbook + strings.ToLower(alert)})
}

func (f *findings) connections(v *View) {
	if !v.Connected {
		f.add(Page, "OffpathNATSDown", "This aggregator has no connection to NATS: what is shown is old.")
	}
}

func (f *findings) aggregators(v *View) {
	counting, behind, problem := 0, int64(0), ""
	for i := range v.Aggregators {
		a := &v.Aggregators[i]
		switch {
		case a.Silent:
			problem = cmp.Or(problem, fmt.Sprintf("%s has been silent for %s", a.Host, seconds(a.Ago)))
		case !a.Ready:
			problem = cmp.Or(a.Problem, problem)
		default:
			counting++
			behind = max(behind, a.Behind)
		}
	}
	switch all := len(v.Aggregators); {
	case !v.Connected:
	case counting == 0 && all > 0:
		f.add(Page, "OffpathNoAggregator", "No aggregator can count, so limits are kept less and less exactly: %s.", problem)
	case counting == 0 && len(v.Checkers) > 0:
		f.add(Page, "OffpathNoAggregator", "No aggregator is heard, so limits are kept less and less exactly.")
	case problem != "" && strings.HasPrefix(problem, "the store: "):
		f.add(Page, "OffpathStoreDown", "%d of %d aggregators cannot count: %s.", all-counting, all, problem)
	case problem != "":
		f.add(Ticket, "OffpathNoAggregator", "%d of %d aggregators cannot count: %s.", all-counting, all, problem)
	}
	if behind > maxBehind {
		f.add(Page, "OffpathCountingBehind", "Hits are counted %s late.", seconds(behind))
	}
}

func (f *findings) checkers(v *View) {
	silent, refused, none, unwell := 0, "", "", ""
	levels, digests := map[string]int{}, map[string]bool{}
	heard := max(v.Heard.Checkers, 1)
	for i := range v.Checkers {
		c := &v.Checkers[i]
		if c.Silent {
			silent++
			continue
		}
		levels[c.Freshness]++
		digests[c.RulesDigest] = true
		switch {
		case strings.HasPrefix(c.Problem, "rules refused: "):
			refused = c.Problem
		case strings.HasPrefix(c.Problem, "no rules: "):
			none = c.Problem
		case c.Problem != "":
			unwell = c.Host + ": " + c.Problem
		}
	}
	if n := levels["local"]; n > 0 {
		f.add(Page, "OffpathAlone", "%d of %d checkers have never heard of an aggregator: each lets every key have the whole limit.", n, heard)
	}
	if n := levels["stale"] + levels["local_share"] + levels["outage"]; n > 0 {
		f.add(Page, "OffpathRefreshStale", "%d of %d checkers know only old counts.", n, heard)
	}
	if none != "" {
		f.add(Page, "OffpathRulesSourceDown", "A checker has no rules, so it limits nobody: %s.", none)
	}
	if book := v.Book.Why; strings.HasPrefix(book, "refused: ") {
		refused = book
	}
	if refused != "" {
		f.add(Ticket, "OffpathRulesRefused", "New rules are not in force, and the ones before are: %s.", refused)
	}
	if len(digests) > 1 && v.Now.Sub(v.Book.Written) > settleFor {
		f.add(Ticket, "OffpathRulesDiffer", "Checkers decide by %d different sets of rules.", len(digests))
	}
	if silent > 0 {
		f.add(Ticket, "OffpathRefreshStale", "%s silent, and left out of all sums.", counted(silent, "checker is", "checkers are"))
	}
	if unwell != "" {
		f.add(Ticket, "OffpathReportsRefused", "%s.", unwell)
	}
}

func (f *findings) losses(v *View, lost float64, full time.Time) {
	var loss *AggregatorView
	for i := range v.Aggregators {
		if a := &v.Aggregators[i]; a.Loss != nil && v.Now.Sub(a.Loss.At) < newsFor && (loss == nil || a.Loss.At.After(loss.Loss.At)) {
			loss = a
		}
	}
	if loss != nil {
		f.add(Page, "OffpathStoreLostData", "Redis has lost counts of shard %d, %s ago: %s.",
			loss.Loss.Shard, seconds(v.Now.Sub(loss.Loss.At).Milliseconds()), loss.Loss.Size)
	}
	if lost >= 1 {
		f.add(Page, "OffpathBufferDropping", "%s in the last five minutes that nobody will ever count.",
			counted(int64(min(lost, status.MaxCount)), "hit passed", "hits passed"))
	}
	if v.Now.Sub(full) < lately {
		f.add(Page, "OffpathKeysOverflow", "A rule has more new keys than Redis has room for: hits of the others are in no count.")
	}
}

func (f *findings) estimates(rules map[string]history.Point) {
	for _, name := range sortedNames(rules) {
		p := rules[name]
		if part := p.Over / max(p.Allowed, leastRate*lately.Seconds()); part > mostOver {
			f.add(Ticket, "OffpathOvershoot", "Rule %s is exceeded: %.1f %% of what passed in the last five minutes was beyond its limit.", name, 100*part)
		}
		if part := p.False / max(p.Allowed+p.Denied, leastRate*lately.Seconds()); part > mostFalse {
			f.add(Ticket, "OffpathFalseDenials", "Rule %s denies too much: about %.1f %% of the requests of the last five minutes were denied although there was room.", name, 100*part)
		}
	}
}

// healthy is the sentence of a fleet with which nothing is wrong.
func healthy(v *View) string {
	if v.Heard.Checkers == 0 {
		return "No checker has been heard yet, so nothing is limited."
	}
	limited, behind := "No key is being limited.", int64(-1)
	if n := v.Heard.Limited; n > 0 {
		limited = counted(n, "key is", "keys are") + " being limited."
		if v.Heard.LimitedMore {
			limited = "At least " + limited
		}
	}
	for _, a := range v.Aggregators {
		behind = max(behind, a.Behind)
	}
	unreported := int64(0)
	for _, c := range v.Checkers {
		if !c.Silent {
			unreported = storage.Sum(unreported, max(c.Unreported, 0))
		}
	}
	late := "Everything is counted."
	switch {
	case behind >= 0:
		late = "The newest hits were counted after " + seconds(behind) + "."
	case unreported > 0:
		late = counted(unreported, "hit waits", "hits wait") + " to be reported."
	}
	return "All limits hold. " + limited + " " + late
}

func counted[N int | int64](n N, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// seconds says how long so many milliseconds are.
func seconds(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	switch {
	case d >= time.Minute:
		return d.Round(time.Second).String()
	case d >= 100*time.Millisecond:
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return fmt.Sprintf("%d ms", ms)
}
