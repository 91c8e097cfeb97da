package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/offpath-io/offpath/loadtest/result"
)

// A group is what belongs together: a table of its own on the terminal, a block in a run's section
// of the page.
type group struct {
	Title   string
	Columns []column
}

// A column is one figure: a column where runs are lines, a line where one run is shown alone.
type column struct {
	Head  string // at most two short words or lines, a | between them
	Label string // in full, with the unit unless the value has it
	shown int    // where else, besides its group: inOverview, inSummary
	Value func(result.Run) string
}

const (
	inSummary  = 1 + iota // in the page's table of all runs
	inOverview            // there, and in the terminal's
)

// Summary returns the columns that the page's table of all runs has.
func (g group) Summary() []column {
	return slices.DeleteFunc(slices.Clone(g.Columns), func(c column) bool { return c.shown < inSummary })
}

func headOf(c column) string { return strings.ReplaceAll(c.Head, "|", " ") }

// groups is every figure of a run, in the order of reading. The tables, the sheet and the page all
// come from here.
var groups = []group{
	{"Run", overall},
	{"Accuracy", accuracy},
	{"Decisions", decisions},
	{"Counting", counting},
	{"Traffic", traffic},
	{"Conservation", conservation},
	{"Parameters", parameters},
}

// findings are the groups without the last: where one run is shown alone, its parameters are told
// in words.
func findings() []group { return groups[:len(groups)-1] }

var overall = []column{
	{"mode", "mode", inOverview, mode},
	{"measured", "measured", 0, func(r result.Run) string { return scaled(r.MeasuredSeconds*1000, milliseconds) }},
	{"hits", "hits", inOverview, func(r result.Run) string { return count(r.Hits) }},
	{"admitted", "admitted", 0, func(r result.Run) string { return count(r.Admitted) }},
	{"oracle's", "admitted by the oracle", 0, func(r result.Run) string { return count(r.OracleAdmitted) }},
	{"denied", "denied", 0, func(r result.Run) string { return count(r.Denied) }},
	{"keys hit", "distinct keys hit", 0, func(r result.Run) string { return count(r.Keys) }},
	{"missed", "hits asked too late for the measured part", 0, func(r result.Run) string { return count(r.MissedHits) }},
	{"offered", "offered, per second", 0, func(r result.Run) string { return scaled(r.OfferedRate, perSecond) }},
}

var accuracy = []column{
	{"over worst|window", "over the limit in the worst window", inOverview, func(r result.Run) string { return excess(r.OverWorstWindow) }},
	{"over|p99.9", "over the limit, in all but one in 1,000 windows of all keys", 0, func(r result.Run) string { return ifAnyExcess(r.Over999) }},
	{"oracle's|worst", "the oracle's worst window", 0, func(r result.Run) string { return excess(r.OracleOverWorstWindow) }},
	{"over|total", "over what the oracle admitted, in total", inOverview, func(r result.Run) string { return excess(r.OverTotal) }},
	{"wrong|allow", "wrongly allowed", inOverview, func(r result.Run) string { return share(r.WrongAllowShare) }},
	{"false|denial", "falsely denied", inOverview, func(r result.Run) string { return share(r.FalseDenialShare) }},
	{"wrong,|no band", "wrongly allowed, without a band", 0, func(r result.Run) string { return share(r.WrongAllowShareExact) }},
	{"false,|no band", "falsely denied, without a band", 0, func(r result.Run) string { return share(r.FalseDenialShareExact) }},
	{"rolling|worst", "worst by the rolling count", 0, func(r result.Run) string { return excess(r.RollingOverWorst) }},
	{"oracle's|rolling", "the oracle's by the rolling count", 0, func(r result.Run) string { return excess(r.OracleRollingOverWorst) }},
}

var decisions = []column{
	{"p50", "p50", inSummary, func(r result.Run) string { return ifAny(r.DecisionNS.P50, nanoseconds) }},
	{"p90", "p90", 0, func(r result.Run) string { return ifAny(r.DecisionNS.P90, nanoseconds) }},
	{"decision|p99", "p99", inOverview, func(r result.Run) string { return ifAny(r.DecisionNS.P99, nanoseconds) }},
	{"p99.9", "p99.9", inSummary, func(r result.Run) string { return ifAny(r.DecisionNS.P999, nanoseconds) }},
	{"max", "largest", 0, func(r result.Run) string { return ifAny(r.DecisionNS.Max, nanoseconds) }},
	{"clock's|own", "the clock's own part of each", 0, func(r result.Run) string { return ifAny(r.ClockNS, nanoseconds) }},
	{"decisions", "decisions, at full speed", 0, func(r result.Run) string { return ifAny(r.DecisionsPerSecond, perSecond) }},
	{"per core", "the same, per core", 0, func(r result.Run) string { return ifAny(r.DecisionsPerSecondPerCore, perSecond) }},
	{"admit-|ted", "admitted of those", 0, func(r result.Run) string { return ifAnyShare(r.FullSpeedAdmittedShare) }},
	{"late|p99", "load generator late, p99", 0, late(func(l result.Lateness) float64 { return l.P99 })},
	{"late|max", "load generator late, largest", 0, late(func(l result.Lateness) float64 { return l.Max })},
}

var counting = []column{
	{"lag|p50", "refresh lag, p50", 0, func(r result.Run) string { return ifAny(r.RefreshLagMS.P50, milliseconds) }},
	{"lag|p99", "refresh lag, p99", inOverview, func(r result.Run) string { return ifAny(r.RefreshLagMS.P99, milliseconds) }},
	{"never|told", "hits that others never heard of in time", 0, never},
	{"reports", "reports, per 1,000 hits", inSummary, func(r result.Run) string { return quantity(r.ReportsPer1000) }},
	{"bytes", "bytes of reports, per 1,000 hits", inSummary, func(r result.Run) string { return scaled(r.ReportBytesPer1000, bytes) }},
	{"store|commands", "store commands, per 1,000 hits", inSummary, func(r result.Run) string { return quantity(r.StoreCommandsPer1000) }},
	{"beats", "those that are the aggregators' heartbeats", 0, func(r result.Run) string { return quantity(r.StoreHeartbeatsPer1000) }},
	{"Redis|calls", "Redis's own count of calls, per 1,000 hits", 0, func(r result.Run) string { return ifAnyQuantity(r.RedisCallsPer1000) }},
	{"refresh|/s", "refresh, per checker and second", 0, func(r result.Run) string { return scaled(r.RefreshBytes, bytes) }},
	{"memory,|checker", "memory per key, in a checker", 0, func(r result.Run) string { return ifAny(r.Memory.CheckerBytes, bytes) }},
	{"memory,|store", "memory per key, in the store", 0, func(r result.Run) string { return ifAny(r.Memory.StoreBytes, bytes) }},
}

var traffic = []column{
	{"checkers|send", "checkers send, messages and bytes per second", 0, sent(func(t result.Traffic) result.Flow { return t.Checkers })},
	{"checkers|hear", "checkers hear, messages and bytes per second", 0, heard(func(t result.Traffic) result.Flow { return t.Checkers })},
	{"aggregators|send", "aggregators send, messages and bytes per second", 0, sent(func(t result.Traffic) result.Flow { return t.Aggregators })},
	{"aggregators|hear", "aggregators hear, messages and bytes per second", 0, heard(func(t result.Traffic) result.Flow { return t.Aggregators })},
	{"NATS|in", "into NATS, messages and bytes per second", 0, heard(func(t result.Traffic) result.Flow { return t.NATS })},
	{"NATS|out", "out of NATS, messages and bytes per second", 0, sent(func(t result.Traffic) result.Flow { return t.NATS })},
}

func sent(of func(result.Traffic) result.Flow) func(result.Run) string {
	return func(r result.Run) string { f := of(r.Traffic); return flow(f.Sent, f.SentBytes) }
}

func heard(of func(result.Traffic) result.Flow) func(result.Run) string {
	return func(r result.Run) string { f := of(r.Traffic); return flow(f.Heard, f.HeardBytes) }
}

// flow is messages and their bytes; a live run does not know them.
func flow(messages, size float64) string {
	if messages == 0 {
		return none
	}
	return quantity(messages) + ", " + scaled(size, bytes)
}

var conservation = []column{
	{"admitted", "admitted, in the whole run", 0, func(r result.Run) string { return count(r.Conservation.Admitted) }},
	{"charged", "charged", 0, func(r result.Run) string { return count(r.Conservation.Charged) }},
	{"counted", "counted", 0, func(r result.Run) string { return count(r.Conservation.Counted) }},
	{"late", "late", 0, func(r result.Run) string { return count(r.Conservation.Late) }},
	{"refused", "refused", 0, func(r result.Run) string { return count(r.Conservation.Refused) }},
	{"overflow", "overflow", 0, func(r result.Run) string { return count(r.Conservation.Overflow) }},
	{"lost", "lost", 0, func(r result.Run) string { return count(r.Conservation.Lost) }},
	{"sum", "the sum of these five", 0, func(r result.Run) string { return count(r.Conservation.Stored) }},
	{"conserved", "conservation", inOverview, holds},
}

var parameters = []column{
	{"checkers", "checkers", 0, func(r result.Run) string { return count(int64(r.Params.Checkers)) }},
	{"aggre-|gators", "aggregators", 0, func(r result.Run) string { return count(int64(r.Params.Aggregators)) }},
	{"limit", "limit of the first rule, + further rules", inSummary, limit},
	{"flush|every", "flush interval", inSummary, func(r result.Run) string { return scaled(r.Params.FlushMS, milliseconds) }},
	{"flush|early", "flushes early when there is reason to", 0, func(r result.Run) string { return yesNo(r.Params.EarlyFlush) }},
	{"load ÷|limit", "load, times the limit", 0, func(r result.Run) string { return unlessZero(r.Params.Load) }},
	{"keys|asked", "keys asked for", 0, func(r result.Run) string { return count(int64(r.Params.Keys)) }},
	{"store", "store", 0, func(r result.Run) string { return oneLine(r.Params.Store) }},
	{"delay", "delay of a message", 0, func(r result.Run) string { return delay(r.Params) }},
	{"warm-up", "warm-up, left out", 0, func(r result.Run) string { return scaled(r.Params.WarmupS*1000, milliseconds) }},
}

// What a cell says when something is wrong, in capitals so that it is seen in a plain terminal too.
const (
	broken      = "BROKEN"
	interrupted = "INTERRUPTED"
)

func mode(r result.Run) string {
	if r.Interrupted {
		return oneLine(r.Mode) + " " + interrupted
	}
	return oneLine(r.Mode)
}

func holds(r result.Run) string {
	if !r.Conservation.Holds {
		return broken
	}
	return "holds"
}

// alarming says whether a cell is to hit the eye.
func alarming(text string) bool {
	return text == broken || strings.HasSuffix(text, interrupted)
}

func limit(r result.Run) string {
	text := count(r.Params.Limit) + " / " + scaled(r.Params.WindowMS, milliseconds)
	if more := len(r.Params.Rules) - 1; more > 0 {
		text += fmt.Sprintf(" +%d", more) // of further rules
	}
	return text
}

// delay is how long messages take, from and to.
func delay(p result.Params) string {
	if p.JitterMS == 0 {
		return scaled(p.DelayMS, milliseconds)
	}
	return quantity(p.DelayMS) + "–" + scaled(p.DelayMS+p.JitterMS, milliseconds)
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func unlessZero(v float64) string {
	if v == 0 {
		return none
	}
	return quantity(v)
}

func ifAnyQuantity(v *float64) string {
	if v == nil {
		return none
	}
	return quantity(*v)
}

func ifAnyExcess(v *float64) string {
	if v == nil {
		return none
	}
	return excess(*v)
}

func ifAnyShare(v *float64) string {
	if v == nil {
		return none
	}
	return share(*v)
}

func late(which func(result.Lateness) float64) func(result.Run) string {
	return func(r result.Run) string {
		if r.LateMS == nil {
			return none
		}
		return scaled(which(*r.LateMS), milliseconds)
	}
}

func never(r result.Run) string {
	if lag := r.RefreshLagMS; lag.Samples+lag.Never == 0 {
		return none
	}
	text := count(r.RefreshLagMS.Never)
	if r.RefreshLagMS.Truncated {
		text += " (so far)" // there was more to listen to than could be kept
	}
	return text
}
