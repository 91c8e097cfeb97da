package check

import (
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/evaluation"
	"github.com/offpath-io/offpath/pkg/identity"
)

// Request is one request to decide, for [Checker.Do] and [Checker.Wait]. All rules that match its
// Attributes decide it; or the one Limiter, about Key; or the limit that it brings along as Inline,
// about Key.
type Request struct {
	// Attributes describe the request. A Limiter and an Inline limit do not look at them.
	Attributes identity.Attributes
	// Limiter, of the same checker, decides alone.
	Limiter *Limiter
	// Inline is a limit that the request brings along: it decides alone. Rules do not matter to it,
	// nor do changes of rules.
	Inline *InlineLimit
	// Key that a Limiter or an Inline limit counts under.
	Key string
	// Cost in hits. Below 1 it counts as 1.
	Cost int64
	// Mode says what to do. The default is Charge.
	Mode Mode
	// Receipt asks Charge and Reserve for Result.Receipt: the true cost is known only later, when
	// the request has been served. The check takes the keys' locks and allocates then, which costs
	// about a microsecond.
	Receipt bool
	// Ahead lets Peek, Explain and Standing answer as of a time that is to come, as if no hit came
	// until then.
	Ahead time.Duration
}

// Mode is what to do with a request.
type Mode uint8

const (
	// Charge decides, and charges the request if it may pass: to all rules that match, or to none.
	Charge Mode = iota
	// Peek decides as Charge would, and charges, counts and changes nothing. Remaining is what is
	// left now.
	Peek
	// Record charges without deciding, whether or not there is room: for a cost that is known only
	// afterwards, such as that of a failed login. Use Peek to decide beforehand. It does not charge
	// rules whose lists, overrides or blocks allow, deny or exempt the caller. The decision is
	// empty.
	Record
	// Reserve is Charge for callers that would rather wait for their turn than be denied. A hit
	// that does not fit now is charged all the same, if it will fit: into a leaky bucket's queue as
	// long as that has room, and from a token bucket as long as no more tokens are owed than it can
	// hold; and never if the turn is later than the rule's OnLimit.MaxWait, if that is given. By
	// attributes, a rule lets callers wait if it says so (on_limit: queue). Result.Delay says how
	// long to wait, and Result.Cancel gives the hits back. Other algorithms cannot tell a turn:
	// they decide as Charge. With [Checker.Wait], the call itself waits, under any algorithm.
	Reserve
	// Explain is Peek, and explains what each rule of the set makes of the request, in the order of
	// the set: Result.Explanations. Its cost grows with the number of rules. It needs Attributes.
	Explain
	// Standing explains only the rules that limit the request, and decides nothing: the decision
	// has Freshness alone. If no rule limits the request, it is Peek. Its cost grows with the
	// number of rules that match. It needs Attributes.
	Standing
)

// Result is what [Checker.Do] and [Checker.Wait] make of a request.
type Result struct {
	Decision
	// Delay is how long from the call of Do until it is a reserved request's turn: that of the rule
	// that makes it wait longest. It is 0 if the request may pass now.
	Delay time.Duration
	// Receipt names what the request was charged with, for one call of [Checker.Settle] at any
	// checker of the fleet. It is "" if the request did not ask for one or was not charged. It has
	// letters, digits, - and _: about 100 for each rule and 60 more. It is no secret, and nobody
	// can make or change one without the fleet's key (Options.ReceiptKeys). A hit whose receipt is
	// dropped stays at its estimate.
	//
	// If some of the rules that match take their cost from an attribute, the receipt is about these
	// alone, not about, say, a limit of requests beside one of what they cost. Otherwise it is
	// about all of them.
	Receipt string
	// Explanations are those of Explain and Standing.
	Explanations []Explanation
	// Err says why an Inline limit was not applied: [ErrInlineLimits], or what is wrong with it; or
	// that a Key came without a limiter, or with one of another checker. Nothing was decided or
	// charged then. A request by Attributes has no error.
	Err error

	reservation *evaluation.Reservation
}

// Cancel gives all hits of a reservation back before its turn, and reports whether it has. It
// cannot when the turn has come, or when hits of one of its rules have been reported: those are
// counted, and all stay, but a receipt can be settled at 0 even then. Do not do both. It works
// once, and for Do in mode Reserve alone. It is safe for concurrent use.
func (r Result) Cancel() bool {
	return r.reservation != nil && r.reservation.Cancel()
}

// Explanation is what one rule makes of a request.
type Explanation struct {
	Rule string
	// Why the rule does not apply; "" if it does.
	Why string
	// Barred is why the rule denies the request whatever its counts are; "" if it does not.
	Barred string
	// Counter is the name under which hits are counted: the rule's, or that of an override with a
	// limit of its own.
	Counter string
	// Override is the place of the override for the request, or -1.
	Override int
	Key      string
	// Limit that decides the request, with what overrides, throttle and priority change.
	Limit int64
	// Cost in hits. BadCost means that the cost attribute is invalid, so that Cost is the caller's.
	Cost    int64
	BadCost bool
	// Count is the number of hits that are known to lie in the window. Others is the number that
	// other checkers are expected to have admitted beyond that, including a reserve.
	Count, Others float64
	// Room is how many hits would pass now.
	Room int64
	// Denies means that the rule would deny the request. RetryAfter is that denial's.
	Denies     bool
	RetryAfter time.Duration
	// Shadow means that the rule only shows its denials.
	Shadow bool
	// Decides means that Check would name this rule.
	Decides bool
}
