package shares

import (
	"math"
	"time"
)

const (
	// few holders are divided among anew at each report; more, at most every dividedFor.
	few        = 64
	dividedFor = int64(250 * time.Millisecond)
	// moved is the change of a share, as a part of it, from which on it is told.
	moved = 0.1
	// fading is the part of a demand that is still reckoned with one report after it was lower.
	fading = 0.25
	// rounding is what sums may be off by.
	rounding = 1e-9
	// trusted is the part of a rate that those who have gone still count with. Most of them are no more, and who comes instead should not have
	// to wait for nothing.
	trusted = 7.0 / 8
	// spared is the part of a stock that is kept for holders who come.
	spared = 1.0 / 32
)

// Holder has a share in one Ledger.
type Holder struct {
	// Owner is whose it is; nothing here looks at it.
	Owner any
	// From says where its owner is; whoever joins from there later may be the same.
	From string
	// Grant is what it may spend now.
	Grant Grant

	rate  float64 // demand per second
	known bool    // rate is from a report, not a guess
	held  float64 // of the pool
	until int64   // when the grant ends, unless it is renewed
	most  float64 // that its other limits allow
	place int     // in the ledger
}

// Ledger is who holds how much of one key under one rule.
type Ledger struct {
	holders []*Holder
	left    []lease // of those who have gone, in that order
	held    float64 // by holders and those who have gone
	divided Division
	pool    Pool
	anewAt  int64
}

// lease is what somebody may still spend who cannot be heard any more.
type lease struct {
	*Holder
	counts float64 // of what it holds
}

func (g lease) holds() float64 { return g.held * g.counts }

// Join adds a holder, without a share. If one has left from the same place that may still have what it held, not given back, this
// is that one, which has come back.
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

// Leave takes a holder out. What it holds stays counted until it ends, unless it has given it back.
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
	g := lease{Holder: h, counts: 1}
	if h.Owner = nil; !l.pool.Stock {
		g.counts = trusted
	}
	l.held += g.holds()
	l.left = append(l.left, g)
}

// Empty says that nobody holds anything.
func (l *Ledger) Empty(now int64) bool {
	l.expire(now)
	return len(l.holders) == 0 && len(l.left) == 0
}

// Held is how much of the pool is held.
func (l *Ledger) Held() float64 { return l.held }

// Demand takes in how many hits a holder has spent and turned away since it last said so. Without a time for them
// its demand stays as it was.
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

// Give decides anew what a holder may spend, after its report; until says when that ends. What others held too much of is
// taken from them at once, if shares are rates: these are the holders that are returned, whose Grant is another.
//
// Afterwards no more is held than the pool has, if it was so before or shares are rates. A share that has hardly
// moved stays as it is.
func (l *Ledger) Give(now int64, h *Holder, p Pool, until int64) (lowered []*Holder) {
	l.pool = p
	anew := now >= l.anewAt || len(l.holders) <= few
	if anew {
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
	if anew && l.held-h.held+share > p.Ahead {
		lowered = l.lower(h)
	}
	l.set(h, p.grant(min(share, l.free(h))), until)
	return lowered
}

// free is how much of the pool no other holder has.
func (l *Ledger) free(h *Holder) float64 { return max(l.pool.Ahead-(l.held-h.held), 0) }

// spare is how much of a stock only those get who have not reported yet. Of a rate they get what others have too much of.
func (l *Ledger) spare() float64 {
	if !l.pool.Stock {
		return 0
	}
	return math.Floor(l.pool.Ahead * spared)
}

// whole is which part of its share of a stock a holder gets: whole hits, of what is free. Who has a use for a hit gets one if there
// is one. Who comes gets no more than leaves as much for each of the others who may come.
func (l *Ledger) whole(h *Holder, share float64) float64 {
	free := l.free(h)
	if others := l.pool.Comers - len(l.holders); h.known || l.pool.Comers <= 1 {
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

// Use takes back what a holder does not use of its share, since g is what all its limits allow; others is what they allow without this one. Its
// demand is no more than that from now on.
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

// demand is what a holder would spend in the pool's span, with room for chance.
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
	l.anewAt = now + dividedFor
}

// lower takes from all but one what they have too much of.
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

// expire forgets what nobody may spend any more.
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
