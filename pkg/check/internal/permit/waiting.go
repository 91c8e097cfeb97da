package permit

import "slices"

// Join gives a caller a place, behind those that wait already, for as many permits as its hit
// costs.
func (a *Account) Join(w Waiter, cost int64) *Place {
	p := &Place{waiter: w, cost: cost}
	a.places = append(a.places, p)
	a.waiting += cost
	return p
}

// Leave removes a caller's place. If permits are reserved for it, the caller decides with them
// until EndTurn.
func (a *Account) Leave(p *Place) {
	switch {
	case p.reserved:
		a.reserved -= p.cost
		a.deciding = true
	case !p.woken:
		i := slices.Index(a.places, p)
		a.places = slices.Delete(a.places, i, i+1)
		a.waiting -= p.cost
	}
}

// EndTurn records that a caller has decided, and serves the next ones with the permits that are
// left.
func (a *Account) EndTurn(m Moment) {
	a.deciding = false
	if len(a.places) > 0 && a.unspent(&m) > 0 {
		a.serve(&m)
	}
}

// IsAwaited returns whether callers wait.
func (a *Account) IsAwaited() bool { return len(a.places) > 0 }

// serve reserves permits for callers that wait, in their order, and wakes them. If asking for more
// is in vain, it also wakes the others, which are then denied.
func (a *Account) serve(m *Moment) {
	if len(a.places) == 0 {
		return
	}
	left, dry := a.unspent(m), m.Now < a.askAt
	served := 0
	for _, p := range a.places {
		if p.reserved = p.cost <= left; p.reserved {
			left -= p.cost
			a.reserved += p.cost
		} else if !dry {
			break
		}
		p.woken = true
		a.waiting -= p.cost
		served++
		p.waiter.Wake(p.reserved)
	}
	a.places = slices.Delete(a.places, 0, served)
}
