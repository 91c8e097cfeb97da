package torture

import (
	"context"

	"github.com/offpath-io/offpath/internal/testing/membus"
	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/events"
)

// worker is the place of one aggregator, and its life.
type worker struct {
	*aggregate.Worker // nil while there is none
	world             *world
	link              *membus.Worker
	number            int
	id                uint64
	skew              int64
	knows             bool  // the fleet's time, and has told others or a checker
	told              int64 // when it last heard one that does
	time              int64 // how far that is ahead, as it tells the others
	low, high         int64 // between which it is, by all that it told them; high is 0 before
	said              bool  // it has told the others
	welcomed          int64 // the same, as it last told a checker
	welcomedAt        int64
	next              int64
	paused            int64
	from, to          int64 // until when its messages are lost
	inbox             []func()
}

// startWorker begins the life of an aggregator, after a while.
func (w *world) startWorker(i int, after int64) {
	old := w.crew[i]
	if old.Worker != nil {
		w.noticedByGone += old.Stats().Losses
	}
	k := &worker{world: w, number: i, from: old.from, to: old.to}
	w.crew[i] = k
	w.at(min(w.now+after, w.mended), func() {
		if w.crew[i] == k && k.Worker == nil {
			w.bringUp(k)
		}
	})
	if after == 0 {
		w.bringUp(k)
	}
}

func (w *world) bringUp(k *worker) {
	k.link = w.bus.Worker()
	k.id, k.skew, k.next = w.rand.Uint64()|1, w.between(-60*second, 60*second), w.now
	o := aggregate.Options{Store: w.store, Bus: k, ID: k.id, Shards: w.shards}
	if w.remembers {
		o.Memory = &w.memory
	}
	var err error
	if k.Worker, err = aggregate.New(o); err != nil {
		panic(err)
	}
	if w.trusts {
		k.SetRules(w.rules.stored())
	}
	w.due = w.now
	k.link.Attach(func(kind events.Kind, payload []byte, reply func([]byte) error) {
		if w.now < k.to || kind == events.KindMember && w.sides.part(w.now, k.id, payload) {
			return
		}
		k.inbox = append(k.inbox, func() {
			if kind == events.KindMember {
				k.hears(payload)
			}
			k.Receive(w.now+k.skew, kind, payload, k.through(kind, reply))
			after := gather
			switch kind {
			case events.KindLease:
				after = gatherLeases
			case events.KindMember:
				after = 0
			}
			k.next = min(k.next, w.now+after)
		})
		if w.now >= k.paused {
			k.inbox = drain(k.inbox)
		}
		w.due = min(w.due, k.next)
	})
}

// hears notes whether another aggregator knows the fleet's time.
func (k *worker) hears(member []byte) {
	switch m, err := events.DecodeMember(member); {
	case err != nil || m.GetId() == k.id:
	case m.GetTime() != 0:
		k.told = k.world.now
	case m.GetLeaving():
		k.told = 0
	}
}

// through notes what time checkers are told, and loses answers while messages from the aggregator
// are lost.
func (k *worker) through(kind events.Kind, reply func([]byte) error) func([]byte) error {
	if reply == nil {
		return nil
	}
	return func(answer []byte) error {
		if kind == events.KindHello {
			m, err := events.DecodeWelcome(answer)
			if err != nil {
				panic(err)
			}
			k.welcomed, k.welcomedAt = k.world.tells(k, m.GetTime(), m.GetError()), k.world.now
		}
		if k.world.now < k.from {
			return nil
		}
		return reply(answer)
	}
}

// Attend is for package aggregate, as are Tell, Serve and Alarm.
func (k *worker) Attend(attended, owned []bool) error { return k.link.Attend(attended, owned) }

// Tell tells all aggregators, unless messages from this one are lost.
func (k *worker) Tell(member []byte) error {
	if m, err := events.DecodeMember(member); err == nil && m.GetTime() != 0 {
		k.time = k.world.tells(k, m.GetTime(), m.GetError())
		k.says(m.GetError() + int64(clockError))
	}
	if k.world.now < k.from {
		return nil
	}
	return k.link.Tell(member)
}

// says takes in that it tells the others its time, to ± err. What it tells first has to be true.
func (k *worker) says(err int64) {
	low, high := k.time-err, k.time+err
	switch {
	case k.said:
		low, high = max(low, k.low), min(high, k.high)
	case k.world.shift < low || k.world.shift > high:
		low, high = never, -never
	}
	k.said, k.low, k.high = true, low, high
}

// Serve is never called: the world steps its workers.
func (k *worker) Serve(context.Context, func(events.Kind, []byte, func([]byte) error)) error {
	return nil
}

// Alarm tells all checkers, likewise.
func (k *worker) Alarm(shard uint32, alarm []byte) error {
	if k.world.now < k.from {
		return nil
	}
	return k.link.Alarm(shard, alarm)
}

// endWorker takes an aggregator away with all that it has in hand, and starts another one later.
func (w *world) endWorker(i int, after int64) {
	w.crew[i].link.Attach(nil)
	w.startWorker(i, after)
}

// leaveWorker lets one leave in order: it takes no more requests, answers those that it has, and
// tells the others.
func (w *world) leaveWorker(i int, after int64) {
	k := w.crew[i]
	k.link.Attach(nil)
	w.at(w.now+3*ms, func() {
		if w.crew[i] != k { // killed meanwhile
			return
		}
		leave, err := events.Append(nil, &events.Member{
			Id: k.id, Sent: w.now + k.skew, Leaving: true,
		})
		if err != nil {
			panic(err)
		}
		_ = k.Tell(leave)
		w.startWorker(i, after)
	})
}

func (w *world) stepWorker(k *worker) (next int64) {
	if k.Worker == nil {
		return never
	}
	if w.now < k.paused {
		return k.paused
	}
	k.inbox = drain(k.inbox)
	if k.next <= w.now {
		k.next = max(k.Step(context.Background(), w.now+k.skew)-k.skew, w.now+1)
	}
	return k.next
}
