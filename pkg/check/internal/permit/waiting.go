package permit

import "slices"

// Join lets a caller wait for as many permits as a hit costs, behind those who wait already.
func (a *Account) Join(w Waiter, cost int64) *Place {
	p := &Place{waiter: w, cost: cost}
	a.places = append(a.places, p)
	a.waiting += cost
	return p
}

// Leave takes a caller out. If permits are kept for it, it is its turn until EndTurn.
func (a *Account) Leave(p *Place) {
	switch {
	case p.reserved:
		a.reserved -= p.cost
		a.turn = true
	case !p.woken:
		i := slices.Index(a.places, p)
		a.places = slices.Delete(a.places, i, i+1)
		a.waiting -= p.cost
	}
}

// EndTurn notes that a caller has decided, and serves the next ones with what it has left.
func (a *Account) EndTurn(m Moment) {
	a.turn = false
	if len(a.places) > 0 && a.unspent(&m) > 0 {
		a.serve(&m)
	}
}

// IsAwaited says whether callers wait.
func (a *Account) IsAwaited() bool { return len(a.places) > 0 }

// serve keeps permits for those who wait, in their order, and wakes them. If no more can be had
// now, it wakes the others too, to be denied.
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
