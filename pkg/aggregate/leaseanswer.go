package aggregate

import (
	"time"

	"github.com/offpath-io/offpath/pkg/events"
)

// overflowWait is after how long a key may be asked for again that is one too many.
const overflowWait = 5 * time.Second

// reckonWaits says for each key how long until a permit can be free, if none is given back.
func (h *leaseHand) reckonWaits(fold *LeaseFold, leased *Leased) {
	h.waits = h.waits[:0]
	for i := range leased.Keys {
		r := &fold.Rules[fold.Keys[i].Rule]
		h.counts = layOut(h.counts, r.Shape, leased.Keys[i].Held, leased.Now)
		wait, _ := r.Shape.RetryAfter(h.counts, r.Limit, 1, leased.Now) // a limit of 0 was refused
		wait = max(wait, time.Duration(QuietUntil(r.Shape, leased.Lost)-leased.Now))
		if leased.Keys[i].Overflows { // nobody knows when there will be room
			wait = max(wait, overflowWait)
		}
		h.waits = append(h.waits, uint64((wait+time.Millisecond-1)/time.Millisecond))
	}
}

// grantOf is the answer to a request. It is valid until the next call.
func (h *leaseHand) grantOf(r *leaseRequest, leased *Leased) *events.Grant {
	g, table := &h.grant, r.m.GetKeys()
	*g = events.Grant{
		Epoch: r.epoch, Shard: r.m.GetShard(), Sequence: r.sequence,
		Generation: leased.State.Generation, Version: leased.State.Version,
		Aggregator: h.id, Age: g.Age[:0], Granted: g.Granted[:0], Spoken: g.Spoken[:0], WaitMs: g.WaitMs[:0],
	}
	for i, at := range r.places {
		key := &leased.Keys[at.key]
		g.Age = append(g.Age, table.Rules[table.KeyRule[i]].GetNewest()-key.Bucket)
		g.Granted = append(g.Granted, events.Count(key.Asks[at.ask].Current))
		g.Spoken = append(g.Spoken, events.Count(key.Asks[at.ask].Spoken))
		g.WaitMs = append(g.WaitMs, h.waits[at.key])
	}
	return g
}

func (w *Worker) sendGrant(reply func([]byte) error, grant *events.Grant) {
	data, err := events.Append(nil, grant) // fresh memory, as the carrier may keep it
	if err == nil {
		err = reply(data)
	}
	if err != nil {
		w.counters.replyErrors.Add(1) // the checker asks again
	}
}
