package check

import (
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/fleetstate"
)

// Decision is the answer to one hit.
type Decision struct {
	// Allowed says that the hit may pass and has been charged. If it is false nothing was charged,
	// under any rule.
	Allowed bool
	// Freshness says how much this checker knew of the shard of the key; of several keys, the worst
	// counts. Of a request that no key decides, it is the worst of all shards.
	Freshness Freshness
	// Exceeded says that the hit passed above a limit, under a rule of `throttle: soft` or
	// `elastic`, as far as this checker knows.
	Exceeded bool
	// Queue says that the rule of a denial has `on_limit: queue`: the caller may wait for at most
	// MaxWait and ask again.
	Queue bool
	// Unmatched says that no rule matched the request, or none but those that skip it for want of
	// an attribute of their key: Options.DenyUnmatched decided. A rule that matches and exempts the
	// caller, by `unlimited` or a list, is a match.
	Unmatched bool
	// Status is the HTTP status of a denial, 429 or 503 as its rule says, or 403 if it is
	// Unmatched; 0 if the hit was allowed.
	Status int
	// Rule is the name of the rule that decided: the one that denied, or else the one with the
	// least left. It is "" if no rule limits the request, or none but those with `shadow: true`.
	Rule string
	// Limit is how many hits that rule has room for at once: its limit, or its override's; the
	// burst of a token or leaky bucket; plus what `throttle: soft` adds, and `elastic` at present;
	// and of that, the share of the caller's class. Remaining is how many more hits would have
	// passed at this moment, at least: a check that takes no lock knows what was left, and whether
	// elastic had room, when the last one did. It is never above Limit.
	//
	// If only rules with `shadow: true` matched, Limit, Remaining and Reset are those of Observed.
	Limit, Remaining int64
	// RetryAfter is how long until a hit of this cost would pass if no other came. It is 0 if the
	// hit was allowed, and Never if its cost is above the limit or it is Unmatched. Under strict
	// enforcement it is what the last grant said, and Remaining is the permits at hand; more may
	// come.
	RetryAfter time.Duration
	// Reset is how long until every hit so far has surely left the window.
	Reset time.Duration
	// MaxWait is how long the caller may wait, if Queue.
	MaxWait time.Duration
	// Shadow is the name of the first rule with `shadow: true` that would have denied the hit; ""
	// if there is none.
	Shadow string
	// Observed is the name of the rule that would have decided, if all that matched have
	// `shadow: true`; else "".
	Observed string
}

// Never is the RetryAfter of a hit that costs more than the limit.
const Never = time.Duration(1<<63 - 1)

// Freshness says how current a checker's knowledge of a shard is: a fixed part of the keys, with a
// store's node of its own. Its String is the name in lower case, such as "local_share".
//
// A shard is silent while a report of it waits for its answer, or while no aggregator sends
// anything; an answer or an alarm of the shard ends that. A refusal does not. Keys of a rule whose
// reports are refused are less fresh than their shard, down to LocalShare.
type Freshness = fleetstate.Freshness

const (
	// Local: this checker has never heard of a fleet, and decides by its own hits alone.
	Local = fleetstate.Local
	// Fresh: the shard has not been silent for longer than Options.StaleAfter.
	Fresh = fleetstate.Fresh
	// Stale: the shard has been silent for longer. The forecast of others' hits fades.
	Stale = fleetstate.Stale
	// LocalShare: it has been silent for Options.ShareAfter, or no aggregator was ever heard and
	// Options.ExpectCheckers says that there are other checkers. This checker keeps to its share of
	// every limit.
	LocalShare = fleetstate.LocalShare
	// Outage: it has been silent for Options.OutageAfter; rules decide by OnOutage. Decisions of
	// rules that keep to their share say LocalShare.
	Outage = fleetstate.Outage
)
