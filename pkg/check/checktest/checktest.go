// Package checktest is for the tests of those who embed a checker: a [Checker] that allows, denies,
// or follows a script, and remembers what it was asked.
//
//	checker := checktest.Deny(3 * time.Second).For("user")
//	limit, err := httplimit.New(checker, httplimit.Options{User: userOf})
//	… // send requests, look at the answers
//	checker.Asked() // who was asked about
//
// It has the methods of a [check.Checker] that adapters use. It counts nothing, knows no time, and
// never waits.
package checktest

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

// Rule is the name of the rule in the decisions of Allowed and Denied, and in the set that a
// Checker has by default.
const Rule = "checktest"

// Limit is the limit of these decisions, and that rule's, per hour.
const Limit = 100

// Allowed is a decision to let a hit pass, after which so many more would.
func Allowed(remaining int64) check.Decision {
	return check.Decision{Allowed: true, Freshness: check.Fresh, Rule: Rule, Limit: Limit, Remaining: remaining, Reset: time.Hour}
}

// Denied is a decision to deny a hit, with status 429. It would pass after so long; [check.Never]
// is never.
func Denied(retryAfter time.Duration) check.Decision {
	return check.Decision{Freshness: check.Fresh, Status: http.StatusTooManyRequests, Rule: Rule, Limit: Limit, RetryAfter: retryAfter, Reset: time.Hour}
}

// Asked is one call of a Checker, and its answer.
type Asked struct {
	// Method that was called: Check, Do, Wait or Settle.
	Method string
	// Request as it was given, with a copy of its attributes. Of Settle it has the cost alone.
	check.Request
	// Settled is the receipt that was settled.
	Settled string
	// Decision that was given. In mode Record, and of Settle, there is none.
	Decision check.Decision
}

// Checker gives the decisions that it was told to. Its methods are safe for concurrent use.
type Checker struct {
	decide func(Asked) check.Decision // called with mu held
	settle error

	mu    sync.Mutex
	set   *rules.Set
	asked []Asked
}

// By returns a checker that decides by a function. It is called by one goroutine at a time, and
// must not call the checker.
func By(decide func(Asked) check.Decision) *Checker {
	return (&Checker{decide: decide}).For()
}

// Allow returns a checker that lets everything pass.
func Allow() *Checker { return Script(Allowed(Limit - 1)) }

// Deny returns a checker that denies everything, with this RetryAfter.
func Deny(retryAfter time.Duration) *Checker { return Script(Denied(retryAfter)) }

// Script returns a checker that gives these decisions in this order, one each time that it is asked
// for one, and the last one from then on. An empty script lets everything pass.
func Script(decisions ...check.Decision) *Checker {
	if len(decisions) == 0 {
		decisions = []check.Decision{Allowed(Limit - 1)}
	}
	rest := slices.Clone(decisions)
	return By(func(Asked) check.Decision {
		d := rest[0]
		if len(rest) > 1 {
			rest = rest[1:]
		}
		return d
	})
}

// ByAttribute returns a checker that decides by the value of an attribute, which it has adapters
// read. A request with another value, or without the attribute, may pass.
func ByAttribute(name string, decisions map[string]check.Decision) *Checker {
	decisions = maps.Clone(decisions)
	return By(func(a Asked) check.Decision {
		if value, ok := a.Attributes.Get(name); ok {
			if d, ok := decisions[value]; ok {
				return d
			}
		}
		return Allowed(Limit - 1)
	}).For(name)
}

// For makes these attributes the key of the checker's one rule, so that adapters read them from
// requests, and returns the checker. At first there are none. It panics if there can be no such
// rule.
func (c *Checker) For(attributes ...string) *Checker {
	set, err := rules.NewSet(rules.Rule{Name: Rule, Key: attributes, OnMissing: rules.Empty, Limit: Limit, Window: window.Shape{Length: time.Hour}})
	if err != nil {
		panic(fmt.Sprintf("checktest: For(%q): %v", attributes, err))
	}
	return c.WithRules(set)
}

// WithRules makes this the set that adapters take to be in force, and returns the checker. It may
// change at any time. What the checker decides has nothing to do with it.
func (c *Checker) WithRules(set *rules.Set) *Checker {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.set = set
	return c
}

// SettleError makes Settle return an error, or nil again, and returns the checker.
func (c *Checker) SettleError(err error) *Checker {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settle = err
	return c
}

// Asked is what the checker was asked so far, in order.
func (c *Checker) Asked() []Asked {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.asked)
}

// Rules is the set that adapters take to be in force.
func (c *Checker) Rules() *rules.Set {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.set
}

// Check decides.
func (c *Checker) Check(attrs identity.Attributes, cost int64) check.Decision {
	return c.ask("Check", check.Request{Attributes: attrs, Cost: cost}).Decision
}

// Do decides, in whichever mode, but in mode Record: that is only remembered. A script goes on
// whenever it decides. The receipt that a request asks for is "receipt" if it may pass.
func (c *Checker) Do(r check.Request) check.Result { return c.ask("Do", r) }

// Wait is Do, at once. If ctx is done the error is ctx's, and the decision a denial.
func (c *Checker) Wait(ctx context.Context, r check.Request) (check.Result, error) {
	err := ctx.Err()
	if err == nil {
		return c.ask("Wait", r), nil
	}
	d := Denied(time.Second)
	c.mu.Lock()
	defer c.mu.Unlock()
	a := asked("Wait", r)
	a.Decision = d
	c.asked = append(c.asked, a)
	return check.Result{Decision: d}, err
}

// Settle only remembers that it was called.
func (c *Checker) Settle(receipt string, cost int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := asked("Settle", check.Request{Cost: cost})
	a.Settled = receipt
	c.asked = append(c.asked, a)
	return c.settle
}

func (c *Checker) ask(method string, r check.Request) (result check.Result) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := asked(method, r)
	if r.Mode != check.Record {
		a.Decision = c.decide(a)
	}
	c.asked = append(c.asked, a)
	result.Decision = a.Decision
	if r.Receipt && a.Decision.Allowed {
		result.Receipt = "receipt"
	}
	return result
}

// asked is a call that shares no memory with the request, which some servers use again.
func asked(method string, r check.Request) Asked {
	r.Attributes = slices.Clone(r.Attributes)
	for i := range r.Attributes {
		r.Attributes[i].Value = strings.Clone(r.Attributes[i].Value)
	}
	return Asked{Method: method, Request: r}
}
