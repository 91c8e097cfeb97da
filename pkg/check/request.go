package check

import (
	"errors"
	"time"

	"github.com/offpath-io/offpath/pkg/identity"
)

// Request is one request to decide, for [Checker.Do] and [Checker.Wait]. All rules that match its
// Attributes decide it; or the one Limiter, about Key; or the limit that it brings along as Inline,
// about Key.
type Request struct {
	// Attributes describe the request. A Limiter and an Inline limit do not look at them.
	Attributes identity.Attributes
	// Limiter of the same checker: it decides alone.
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
	// afterwards, such as that of a login that has failed. Before, Peek. It charges no rule whose
	// lists, overrides or blocks allow, deny or exempt the caller. The decision is empty.
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
	// has Freshness alone. Its cost grows with the number of rules that match. It needs Attributes.
	Standing
)

// Result is what [Checker.Do] and [Checker.Wait] make of a request.
type Result struct {
	Decision
	// Delay is how long from the call of Do until it is a reserved request's turn: that of the rule
	// that makes it wait longest. 0: it may pass now.
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

	reservation *reservation
}

var (
	errNoLimiter      = errors.New("check: a request with a key needs a limiter or an inline limit")
	errForeignLimiter = errors.New("check: the limiter belongs to another checker")
)

// Do decides one request in one of several modes. It does no I/O and does not wait. It costs a
// little more than [Checker.Check] and [Limiter.Check].
func (c *Checker) Do(r Request) (res Result) {
	by, err := c.deciderOf(&r)
	if err != nil {
		return Result{Err: err}
	}
	cost, now := max(r.Cost, 1), by.now(c)
	switch {
	case r.Mode == Peek || r.Mode > Standing || r.Mode >= Explain && by.limiter != nil:
		res.Decision = c.peek(by, now+int64(r.Ahead), r.Attributes, r.Key, cost)
	case r.Mode == Explain:
		res.Decision, res.Explanations = c.explain(by, now+int64(r.Ahead), r.Attributes, cost)
	case r.Mode == Standing:
		res.Explanations = c.standing(by.program, now+int64(r.Ahead), r.Attributes, cost)
		res.Freshness = Freshness(c.freshness.Load())
	case r.Mode != Charge || r.Receipt:
		c.charge(&res, by, now, &r)
	case by.limiter != nil:
		by.limiter.checkBy(&res.Decision, by.limits, now, r.Key, cost)
	default:
		c.check(&res.Decision, by.program, now, r.Attributes, cost)
	}
	return res
}

// decider is what decides a request: the rules of a ruleset that match, or one limiter.
type decider struct {
	program *ruleset
	limiter *Limiter
	limits  *limits // the limiter's
}

func (c *Checker) deciderOf(r *Request) (by decider, err error) {
	switch {
	case r.Inline != nil:
		by.limiter, by.limits, err = c.inline.limiter(c, r.Inline)
	case r.Limiter != nil && r.Limiter.checker != c:
		err = errForeignLimiter
	case r.Limiter != nil:
		by.limiter, by.limits = r.Limiter, r.Limiter.limits.Load()
	case r.Key != "":
		err = errNoLimiter
	default:
		by.program = c.ruleset.Load()
		return by, nil
	}
	r.Attributes = nil
	return by, err
}

// now returns the fleet's time for a decision.
func (by decider) now(c *Checker) int64 {
	if by.limiter != nil {
		return by.limiter.now()
	}
	return c.now(by.program)
}

// fill fills in the rules that are asked, for some purpose. It returns false if one of them bars
// the request, whatever its counts are; see match.
func (a *evaluation) fill(
	by decider, now int64, attrs identity.Attributes, key string, cost int64, to purpose,
) bool {
	if by.limiter == nil {
		return a.match(by.program, attrs, now, cost, to)
	}
	a.askAlone(by.limiter, by.limits, now, key, cost, to)
	return true
}

// charge charges a request in a mode that Check does not have, or with a receipt.
func (c *Checker) charge(res *Result, by decider, now int64, r *Request) {
	a := c.scratch.Get().(*evaluation)
	defer c.scratch.Put(a)
	purpose := charging
	switch r.Mode {
	case Record:
		purpose = recording
	case Reserve:
		purpose = reserving
	}
	switch {
	case !a.fill(by, now, r.Attributes, r.Key, max(r.Cost, 1), purpose):
		a.denyBarred(&res.Decision, r.Attributes, now)
		return
	case purpose == recording:
		a.record(now)
		return
	case len(a.decisions) == 0:
		a.allowUnmatched(&res.Decision, c)
	default:
		if r.Receipt {
			a.mayBeSettled()
		}
		res.reservation = a.decide(&res.Decision, r.Attributes, now)
	}
	if res.reservation != nil {
		res.Delay = res.reservation.delay
	}
	if by.limiter != nil {
		res.ownShadow()
	}
	if r.Receipt && res.Allowed {
		res.Receipt = a.receipt(c, now)
	}
}

// allowUnmatched lets a request pass that no rule matches.
func (a *evaluation) allowUnmatched(d *Decision, c *Checker) {
	d.Allowed, d.Freshness = true, Freshness(c.freshness.Load())
}

// denyBarred denies a request that a rule bars, whatever its counts are.
func (a *evaluation) denyBarred(d *Decision, attrs identity.Attributes, now int64) {
	a.bar.limiter.tallies[0].denied.Add(1)
	a.noteBarred(attrs)
	a.bar.decideBarred(d, now)
}
