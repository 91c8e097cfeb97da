// Package shares divides what a limit leaves among those who hold a part of it, and hear of each other only now and then.
//
// A *holder* is one Envoy's bucket. It has a *share*, which it spends by itself, and reports some seconds later what it has
// spent and what it has turned away; both together are its *demand*. A [Ledger] holds all shares of one key under one rule, and
// sees to it that together they are never more than its *pool*, the part of the limit that is theirs to spend.
//
// What a share is depends on how long the rule's window is beside the time between two reports:
//
//   - With a short window, a share is a *rate*: hits per window. It is spent over and over until it is changed. One that
//     is lowered is lower as soon as its holder is told, and what is freed goes to others.
//   - With a long window, a share is a *stock*: hits that may be spent until the next report. What was granted stays counted until its
//     holder reports what became of it, so that hits that are counted and hits that are held never exceed the limit.
//
// Everything is a function of the time that it is given, in Unix nanoseconds. A Ledger is not safe for concurrent use.
package shares

import (
	"math"
	"slices"
	"time"
)

// Division is a pool, divided among demands. While the pool lasts, everybody has what they demand, and what is left over goes half to all
// alike and half by demand. When it does not, nobody has more than some level, which those with the largest demand have.
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

// waterLevel is the level at which demands, each cut to it, come to the pool, which is less than all of them.
func waterLevel(pool float64, demands []float64) float64 {
	sorted := slices.Sorted(slices.Values(demands))
	for i, d := range sorted {
		rest := float64(len(sorted) - i)
		if d*rest >= pool {
			return pool / rest
		}
		pool -= d
	}
	return 0 // not reached: the last demand is at least what is left
}

// Share is the part of a holder with this demand, which must be among those that were divided among.
func (d Division) Share(demand float64) float64 {
	return min(demand, d.level) + d.even + demand*d.scale
}

// Pool is what there is to divide at a time.
type Pool struct {
	// Span is the time that a share is for: the rule's window if shares are rates, the time between two reports if they are stocks.
	Span time.Duration
	// Stock says that shares are stocks.
	Stock bool
	// Now is how many hits may be spent at once, and Ahead how many within Span: of rates, only Ahead counts.
	Now, Ahead float64
	// Burst is which part of a rate's hits may be saved up and spent at once.
	Burst float64
	// Comers is how many are there, at least, who may come to hold a part of a stock.
	Comers int
}

// Grant is what a holder may spend: Burst hits at once, at least 1, and Rate hits a second. The zero value is nothing.
type Grant struct {
	Burst int64
	Rate  float64
	// Anew says that the burst is there now, whatever is left of an earlier one.
	Anew bool
}

// None says that nothing may be spent.
func (g Grant) None() bool { return g.Burst == 0 }

// And is what both grants allow.
func (g Grant) And(other Grant) Grant {
	return Grant{Burst: min(g.Burst, other.Burst), Rate: min(g.Rate, other.Rate), Anew: g.Anew || other.Anew}
}

// grant is what a share of the pool comes to.
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
	return Grant{Burst: int64(burst), Rate: (share - burst) / seconds, Anew: true}
}

// worth is what a grant takes of the pool.
func (p Pool) worth(g Grant) float64 {
	switch {
	case g.None():
		return 0
	case p.Stock:
		return float64(g.Burst) + g.Rate*p.Span.Seconds()
	}
	return g.Rate * p.Span.Seconds()
}
