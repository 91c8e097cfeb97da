package shares

import (
	"math"
	"time"
)

const (
	// A pool with at most few holders is divided at each report; with more, at most every
	// dividedFor.
	few        = 64
	dividedFor = int64(250 * time.Millisecond)
	// moved is the smallest relative change of a share that is granted.
	moved = 0.1
	// fading is the weight of the previous demand when a report has a lower one.
	fading = 0.25
	// rounding is the error of sums.
	rounding = 1e-9
	// trusted is the part of a departed holder's rate that stays reserved. Most of them have
	// stopped, and their successors should not wait in vain.
	trusted = 7.0 / 8
	// reserved is the part of a stock that is kept for new holders.
	reserved = 1.0 / 32
)

// Holder has a share in one Ledger.
type Holder struct {
	// Owner is the caller's. This package does not use it.
	Owner any
	// From is the owner's host. An owner that joins from there later may be the same one.
	From string
	// Grant is what it may use now.
	Grant Grant

	rate  float64 // demand per second
	known bool    // rate is from a report, not a guess
	held  float64 // of the pool
	until int64   // when the grant ends, unless it is renewed
	most  float64 // that its other limits allow
	place int     // index in the ledger
}

// Ledger has the shares of one key under one rule.
type Ledger struct {
	holders  []*Holder
	left     []departed // in the order of their leaving
	held     float64    // by holders and departed ones
	divided  Division
	pool     Pool
	divideAt int64
}

// departed is a holder that has left and may still use its grant.
type departed struct {
	*Holder
	counts float64 // the part of held that stays reserved
}

func (g departed) holds() float64 { return g.held * g.counts }

// Join adds a holder, without a share. If one from the same host has left and may still use its
// grant, the new holder takes it over.
func (l *Ledger) Join(now int64, owner any, from string) *Holder {
	h := &Holder{From: from, most: math.Inf(1)}
	for i, g := range l.left {
		if from != "" && g.From == from && g.until > now {
			h = g.Holder
			l.held += h.held - g.holds()
			l.left = append(l.left[:i], l.left[i+1:]...)
			break
		}
	}
	h.Owner, h.place = owner, len(l.holders)
	l.holders = append(l.holders, h)
	return h
}

// Leave removes a holder. Its grant stays reserved until it ends, unless it was given back.
func (l *Ledger) Leave(h *Holder, gaveBack bool) {
	last := len(l.holders) - 1
	l.holders[h.place] = l.holders[last]
	l.holders[h.place].place = h.place
	l.holders[last] = nil
	l.holders = l.holders[:last]
	l.held -= h.held
	if gaveBack || h.held == 0 {
		return
	}
	g := departed{Holder: h, counts: 1}
	if h.Owner = nil; !l.pool.Stock {
		g.counts = trusted
	}
	l.held += g.holds()
	l.left = append(l.left, g)
}

// Empty reports whether there are no holders and no departed ones.
func (l *Ledger) Empty(now int64) bool {
	l.expire(now)
	return len(l.holders) == 0 && len(l.left) == 0
}

// Held returns how much of the pool is held.
func (l *Ledger) Held() float64 { return l.held }

// Demand sets a holder's demand from the requests that it has allowed and denied since its last
// report, over this time. If the time is not positive, the demand stays.
func (l *Ledger) Demand(h *Holder, hits float64, over time.Duration) {
	if over <= 0 {
		return
	}
	rate := hits / over.Seconds()
	if h.known {
		rate = max(rate, fading*h.rate+(1-fading)*rate)
	}
	h.rate, h.known = rate, true
}

// Give sets a holder's grant, after its report, until a time. If shares are rates, it lowers at
// once the grants of other holders that have too much, and returns these holders.
//
// Afterwards the held part does not exceed the pool, if shares are rates or it did not exceed it
// before. A share that has hardly changed stays.
func (l *Ledger) Give(now int64, h *Holder, p Pool, until int64) (lowered []*Holder) {
	l.pool = p
	divide := now >= l.divideAt || len(l.holders) <= few
	if divide {
		l.expire(now)
		l.divide(now)
	}
	share := l.divided.Share(l.demand(h))
	if p.Stock {
		l.set(h, p.grant(l.whole(h, share)), until)
		return nil
	}
	if math.Abs(share-h.held) <= moved*h.held && l.held <= p.Ahead {
		share = h.held
	}
	if divide && l.held-h.held+share > p.Ahead {
		lowered = l.lower(h)
	}
	l.set(h, p.grant(min(share, l.free(h))), until)
	return lowered
}

// free returns how much of the pool no other holder has.
func (l *Ledger) free(h *Holder) float64 { return max(l.pool.Ahead-(l.held-h.held), 0) }

// spare returns how much of a stock is for holders that have not reported yet. Of a rate these get
// what others have too much of.
func (l *Ledger) spare() float64 {
	if !l.pool.Stock {
		return 0
	}
	return math.Floor(l.pool.Ahead * reserved)
}

// whole returns how much of its share of a stock a holder gets: whole hits, of the free ones. A
// holder with any demand gets at least one hit, if one is free. A new holder leaves as much for
// each other one that is expected.
func (l *Ledger) whole(h *Holder, share float64) float64 {
	free := l.free(h)
	if others := l.pool.Expected - len(l.holders); h.known || l.pool.Expected <= 1 {
		free -= l.spare()
	} else {
		free /= float64(max(others+1, 2))
	}
	hits := math.Floor(min(share, free) + rounding)
	if hits < 1 && l.free(h) >= 1 && (h.rate > 0 || !h.known) {
		return 1
	}
	return max(hits, 0)
}

// Keep lets a holder keep what it has until another time.
func (l *Ledger) Keep(h *Holder, until int64) { h.until = until }

// Use takes the unused part of a holder's share back: g is what all its limits allow, and others
// what they allow without this one, which bounds its demand from now on.
func (l *Ledger) Use(h *Holder, g, others Grant) {
	if worth := l.pool.worth(g); worth < h.held {
		l.held += worth - h.held
		h.held = worth
	}
	h.most = l.pool.worth(others)
}

func (l *Ledger) set(h *Holder, g Grant, until int64) {
	worth := l.pool.worth(g)
	l.held += worth - h.held
	h.Grant, h.held, h.until = g, worth, until
}

// demand returns a holder's expected hits in the pool's span, plus half a standard deviation.
func (l *Ledger) demand(h *Holder) float64 {
	if !h.known {
		return l.pool.Ahead / float64(len(l.holders))
	}
	mean := min(h.rate*l.pool.Span.Seconds(), h.most)
	return mean + math.Sqrt(mean)/2
}

func (l *Ledger) divide(now int64) {
	demands := make([]float64, len(l.holders))
	for i, h := range l.holders {
		demands[i] = l.demand(h)
	}
	pool := l.pool.Ahead - l.spare()
	for _, gone := range l.left {
		pool -= gone.holds()
	}
	l.divided = Divide(max(pool, 0), demands)
	l.divideAt = now + dividedFor
}

// lower lowers the grants of holders with too much, except one.
func (l *Ledger) lower(except *Holder) (lowered []*Holder) {
	for _, h := range l.holders {
		share := l.divided.Share(l.demand(h))
		if h == except || h.held <= share+rounding {
			continue
		}
		l.set(h, l.pool.grant(share), h.until)
		lowered = append(lowered, h)
	}
	return lowered
}

// expire removes grants that have ended.
func (l *Ledger) expire(now int64) {
	kept := l.left[:0]
	l.held = 0
	for _, gone := range l.left {
		if gone.until > now {
			kept = append(kept, gone)
			l.held += gone.holds()
		}
	}
	l.left = kept
	for _, h := range l.holders {
		if h.until <= now {
			h.held, h.Grant = 0, Grant{}
		}
		l.held += h.held
	}
}
