// Package shares divides the rest of a limit among holders that report rarely.
//
// A *holder* is one Envoy's bucket. It has a *share*, which it uses by itself. Some seconds later
// it reports how many requests it has allowed and denied; both together are its *demand*. A
// [Ledger] has all shares of one key under one rule. Together they never exceed its *pool*, the
// part of the limit that they may use.
//
// There are two kinds of shares, depending on the rule's window and the report interval:
//
//   - With a short window, a share is a *rate*: hits per window. It is used over and over until it
//     changes. A lower one takes effect as soon as its holder has it, and others get the rest.
//   - With a long window, a share is a *stock*: hits that may be used until the next report. A
//     grant stays counted until its holder reports, so that counted and held hits never exceed
//     the limit.
//
// Times are arguments, in Unix nanoseconds. A Ledger is not safe for concurrent use.
package shares

import (
	"math"
	"slices"
	"time"
)

// Division is a pool divided among demands. If the pool is large enough, each holder gets its
// demand; half of the rest is divided equally, and half in proportion to demand. Otherwise no
// holder gets more than a level, which those with the largest demands get.
type Division struct {
	level, even, scale float64
}

// Divide divides a pool, which is at least 0, among demands of at least 0.
func Divide(pool float64, demands []float64) Division {
	if len(demands) == 0 {
		return Division{}
	}
	sum, n := 0.0, float64(len(demands))
	for _, d := range demands {
		sum += d
	}
	switch left := pool - sum; {
	case left < 0:
		return Division{level: waterLevel(pool, demands)}
	case sum <= rounding*pool:
		return Division{level: math.MaxFloat64, even: left / n}
	default:
		return Division{level: math.MaxFloat64, even: left / 2 / n, scale: left / 2 / sum}
	}
}

// waterLevel returns the level at which the demands, each cut to it, add up to the pool. The pool
// must be less than their sum.
func waterLevel(pool float64, demands []float64) float64 {
	sorted := slices.Sorted(slices.Values(demands))
	for i, d := range sorted {
		rest := float64(len(sorted) - i)
		if d*rest >= pool {
			return pool / rest
		}
		pool -= d
	}
	return 0 // unreachable: the last demand is at least the rest
}

// Share returns the share of a holder with this demand, which must be one of those given to Divide.
func (d Division) Share(demand float64) float64 {
	return min(demand, d.level) + d.even + demand*d.scale
}

// Pool is what a Ledger divides.
type Pool struct {
	// Span is the time of a share: the rule's window for rates, the report interval for stocks.
	Span time.Duration
	// Stock: shares are stocks.
	Stock bool
	// Now is how many hits may be used at once, and Ahead how many within Span. Rates use only
	// Ahead.
	Now, Ahead float64
	// Burst is the part of a rate's hits that may accumulate.
	Burst float64
	// Expected is how many holders a stock may have, including those that have not joined yet.
	Expected int
}

// Grant is what a holder may use: Burst hits at once, at least 1, and Rate hits a second. The zero
// value is nothing.
type Grant struct {
	Burst int64
	Rate  float64
	// Refill: the whole burst may be used now, whatever is left of an earlier one.
	Refill bool
}

// None reports whether nothing may be used.
func (g Grant) None() bool { return g.Burst == 0 }

// And returns what both grants allow.
func (g Grant) And(other Grant) Grant {
	return Grant{
		Burst:  min(g.Burst, other.Burst),
		Rate:   min(g.Rate, other.Rate),
		Refill: g.Refill || other.Refill,
	}
}

// grant returns the grant for a share of the pool.
func (p Pool) grant(share float64) Grant {
	seconds := p.Span.Seconds()
	if !p.Stock {
		if share <= 0 {
			return Grant{}
		}
		return Grant{Burst: max(1, int64(math.Ceil(share*p.Burst))), Rate: share / seconds}
	}
	if share < 1 || p.Ahead <= 0 {
		return Grant{}
	}
	burst := max(1, math.Floor(share*min(p.Now/p.Ahead, 1)))
	return Grant{Burst: int64(burst), Rate: (share - burst) / seconds, Refill: true}
}

// worth returns how much of the pool a grant takes.
func (p Pool) worth(g Grant) float64 {
	switch {
	case g.None():
		return 0
	case p.Stock:
		return float64(g.Burst) + g.Rate*p.Span.Seconds()
	}
	return g.Rate * p.Span.Seconds()
}
