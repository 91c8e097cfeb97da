package torture

import (
	"context"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/check"
)

// The books: what became of each hit.

// totals are sums over a checker's rules.
func totals(st *check.Stats) (sum check.RuleStats) {
	for _, r := range append(st.Rules, st.Removed) {
		sum.Charged += r.Charged
		sum.Pending += r.Pending
		sum.InFlight += r.InFlight
		sum.Overflow += r.Overflow
		sum.Lost += r.Lost
	}
	return sum
}

// bury notes what a checker held when it died.
func (w *world) bury(l *life) {
	st := l.Stats()
	sum := totals(&st)
	l.pending, l.inFlight, l.overflow, l.givenUp = sum.Pending, sum.InFlight, sum.Overflow, sum.Lost
	w.balance(l, sum)
}

// balance checks a checker's own books: each hit that it has admitted is pending, overflow, or in
// one report.
func (w *world) balance(l *life, sum check.RuleStats) {
	if sum.Charged != l.admitted || l.admitted != l.reported+sum.Pending+sum.Overflow {
		w.violate("conservation", "%s has admitted %d hits, charged %d, reported %d; %d are pending, "+
			"%d overflow", l.name, l.admitted, sum.Charged, l.reported, sum.Pending, sum.Overflow)
	}
}

// noticed is how many losses of the store aggregators and checkers say to have learnt of.
func (w *world) noticed() int64 {
	n := w.noticedByGone
	for _, k := range w.crew {
		if k.Worker != nil {
			n += k.Stats().Losses
		}
	}
	for _, l := range w.lives {
		n += l.Stats().StoreLosses
	}
	return n
}

// goesOn takes in the answer to a checker's report. If the shard was behind what the checker knew of
// it when the report was counted, and still is, the answer shows that.
func (w *world) goesOn(f *flight, answered reportID) {
	counted, is := w.store.reports[answered].counted, w.store.states[answered.shard]
	behind := func(s storage.State) bool {
		return s.Generation != f.known.state.Generation || s.Version < f.known.state.Version
	}
	switch {
	case f.known.state.Generation == 0 || !behind(counted.state) || !behind(is):
	case len(w.noticedAt) == 0:
		w.violate("losses", "a shard goes back, though the store has lost nothing")
	default: // after the next loss, or after the last one, if that was noticed only later
		w.tellable = max(w.tellable, 1+w.noticedAt[min(f.known.losses, len(w.noticedAt)-1)])
	}
	f.known = counted
}

// told checks that losses of the store are noticed, if a checker could, and only those that there
// were.
func (w *world) told() {
	noticed := w.noticed()
	switch {
	case noticed < w.tellable:
		w.violate("losses", "the store has lost what a checker knows it had, and nobody says so")
	case len(w.noticedAt) == 0 && noticed > 0:
		w.violate("losses", "the store is said to have lost data %d times, and has not", noticed)
	}
}

// atRest balances the books: each admitted hit is in the ledger, or there is a reason why not.
func (w *world) atRest() {
	for _, s := range w.slots {
		l := s.life
		st := l.Stats()
		if n := st.Unreported(); n != 0 {
			w.violate("pending", "%s has %d unreported hits %v after the last request: %s",
				l.name, n, time.Duration(silence), st.Problem)
		}
		sum := totals(&st)
		l.pending, l.inFlight, l.overflow, l.givenUp = sum.Pending, sum.InFlight, sum.Overflow, sum.Lost
		w.balance(l, sum)
	}
	lost := make(map[*life]int64) // hits of reports that were never stored
	byStore := int64(0)
	for _, r := range w.store.reports {
		switch {
		case r.stored:
		case r.lost:
			byStore += r.hits
		default:
			lost[r.of] += r.hits
		}
	}
	byKills, givenUp, overflow, pending := int64(0), int64(0), int64(0), int64(0)
	for _, l := range w.lives {
		overflow += l.overflow
		n := lost[l]
		if n > l.inFlight+l.givenUp {
			w.violate("conservation", "%d hits of %s were reported and not counted; %d were in flight "+
				"when it died, %d given up", n, l.name, l.inFlight, l.givenUp)
		}
		if l.died == never {
			givenUp += min(n, l.givenUp)
			pending += l.pending + max(n-l.givenUp, 0)
		} else {
			byKills += n + l.pending
		}
	}
	stored, late, refused := w.ledger()
	logged := int64(0)
	for _, r := range w.store.log {
		logged += r.hits
	}
	if stored != logged {
		w.violate("conservation", "the ledger has %d hits, the reports in it %d", stored, logged)
	}
	if all := stored + byStore + byKills + givenUp + overflow + pending; all != w.result.Admitted {
		w.violate("conservation", "%d hits admitted, %d accounted for: %d in the ledger, %d lost by "+
			"the store, %d by kills, %d given up, %d overflow, %d pending",
			w.result.Admitted, all, stored, byStore, byKills, givenUp, overflow, pending)
	}
	w.told()
	w.result.Late, w.result.Refused, w.result.LostByKills = late, refused, byKills
	w.result.LostByStore, w.result.GivenUp = byStore, givenUp
}

// ledger is the sum of all rules.
func (w *world) ledger() (all, late, refused int64) {
	ledger, err := w.store.Ledger(context.Background())
	if err != nil {
		panic(err)
	}
	for _, r := range ledger {
		all += r.Counted + r.Late + r.Refused
		late += r.Late
		refused += r.Refused
	}
	return all, late, refused
}
