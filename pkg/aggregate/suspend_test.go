package aggregate_test

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/memstore"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/events"
)

var errAway = errors.New("away")

// fleetOf is some workers that tell each other about themselves, in a time of its own. Each is a
// machine that may be suspended.
type fleetOf struct {
	t        *testing.T
	now      int64
	store    *faulty
	shift    int64 // of the store's clock
	machines []*machine
}

// machine runs one worker.
type machine struct {
	*fixture
	behind    int64 // own time, which may stand still while it is suspended
	suspended bool
	notices   bool  // when it wakes, for how long it was
	deaf      int64 // until when nothing comes from NATS
	inbox     [][]byte
	next      int64 // own time
}

func newFleetOf(t *testing.T, n int) *fleetOf {
	f := &fleetOf{t: t, now: start, store: &faulty{Store: memstore.New()}}
	f.store.clock = func() int64 { return f.now + f.shift }
	for i := range n {
		id := uint64(i + 1)
		m := &machine{fixture: coldFixture(t, f.store, func(o *aggregate.Options) { o.ID, o.Shards = id, 3 })}
		m.bus.hear = func(said []byte) {
			for _, to := range f.machines {
				if m.deaf <= f.now && to.deaf <= f.now {
					to.inbox = append(to.inbox, said)
				}
			}
		}
		f.machines = append(f.machines, m)
	}
	return f
}

// pass lets time pass. A machine that wakes first does what is due, and then reads what has come.
func (f *fleetOf) pass(d time.Duration) {
	for end := f.now + int64(d); f.now < end; f.now += 5 * ms {
		for _, m := range f.machines {
			if m.suspended {
				if !m.notices {
					m.behind += 5 * ms
				}
				continue
			}
			own := f.now - m.behind
			if own >= m.next || len(m.inbox) > 0 {
				m.next = m.step(own)
			}
			for _, said := range m.inbox {
				m.worker.Receive(own, events.KindMember, said, nil)
			}
			m.inbox = m.inbox[:0]
		}
	}
}

// off is by how much what machine i tells checkers differs from the true time.
func (f *fleetOf) off(i int) time.Duration {
	m := f.machines[i]
	return time.Duration(m.greet(f.now-m.behind, &events.Hello{Epoch: 1}).GetTime() - f.now)
}

// nats keeps messages to machines while it stands still.
type nats struct {
	still bool
	kept  []func()
}

func (n *nats) bring(to *machine, said []byte) {
	bring := func() { to.inbox = append(to.inbox, said) }
	if n.still {
		n.kept = append(n.kept, bring)
		return
	}
	bring()
}

func (n *nats) goOn() {
	for n.still = false; len(n.kept) > 0; n.kept = n.kept[1:] {
		n.kept[0]()
	}
}

// TestStandingStillWhileItIsTold: the store's clock was set, and the one that knows that hears
// nothing any more, so it cannot be measured; one that starts waits. That this one stands still
// meanwhile, or NATS does, does not let it take the store's time.
func TestStandingStillWhileItIsTold(t *testing.T) {
	for _, stood := range []time.Duration{0, 700 * time.Millisecond, 990 * time.Millisecond, 1300 * time.Millisecond, 5 * time.Second} {
		for from := time.Second; from < 4*time.Second; from += 105 * time.Millisecond {
			for _, process := range []bool{true, false} {
				f, n := newFleetOf(t, 2), new(nats)
				knows, starts := f.machines[0], f.machines[1]
				f.machines = f.machines[:1]
				f.pass(5 * time.Second)
				knows.bus.hear = func(said []byte) { n.bring(starts, said) }
				starts.bus.hear = knows.bus.hear
				f.shift = -30 * second
				f.pass(2 * time.Second)
				starts.inbox = nil
				f.machines = append(f.machines, starts)
				f.pass(from)
				starts.suspended, starts.notices, n.still = process, true, !process
				f.pass(stood)
				starts.suspended = false
				n.goOn()
				f.pass(5 * time.Second)
				if starts.worker.Ready() == nil {
					t.Errorf("%v after it had started something stood still for %v (the process: %v): it takes the store's time",
						from, stood, process)
				}
			}
		}
	}
}

// TestNATSStandsStill: while NATS stands still, no aggregator takes the shards of another one.
func TestNATSStandsStill(t *testing.T) {
	for _, stood := range []time.Duration{900 * time.Millisecond, 1010 * time.Millisecond, 1200 * time.Millisecond, 3 * time.Second} {
		for phase := time.Duration(0); phase < 250*time.Millisecond; phase += 35 * time.Millisecond {
			f, n := newFleetOf(t, 2), new(nats)
			for _, m := range f.machines {
				m.bus.hear = func(said []byte) {
					for _, to := range f.machines {
						n.bring(to, said)
					}
				}
			}
			second := f.machines[1]
			f.machines = f.machines[:1]
			f.pass(3*time.Second + 100*time.Millisecond) // so that they do not speak at the same time
			f.machines = append(f.machines, second)
			f.pass(5*time.Second + phase)
			owned := func() int { return f.machines[0].worker.Stats().Owned + second.worker.Stats().Owned }
			n.still = true
			for end := f.now + int64(stood); f.now < end && owned() == 3; {
				f.pass(5 * time.Millisecond)
			}
			n.goOn()
			if got := owned(); got != 3 {
				t.Errorf("it stands still for %v, from %v on: %d shards of 3 are owned", stood, phase, got)
			}
		}
	}
}

// TestTheFleetsTimeOutlivesAnything: machines are suspended, with what they have heard before still
// to be read, NATS or the store is away, and the store's clock is set, one after the other or
// together. The fleet's time goes on.
func TestTheFleetsTimeOutlivesAnything(t *testing.T) {
	seeds := uint64(20)
	if testing.Short() {
		seeds = 5
	}
	for seed := range seeds {
		random := rand.New(rand.NewPCG(seed, 3))
		f := newFleetOf(t, 2+int(seed%3))
		f.pass(5 * time.Second)
		story := ""
		for range 6 {
			lasts := time.Duration(1+random.IntN(90_000)) * time.Millisecond
			m := f.machines[random.IntN(len(f.machines))]
			away, woken := time.Duration(0), (*machine)(nil)
			if random.IntN(2) == 0 {
				away = time.Duration(random.IntN(20_000)) * time.Millisecond
			}
			back := -2 // after how many s the store is
			if random.IntN(3) == 0 {
				back = 1 + random.IntN(20)
				story += " store away"
				f.store.have(faults{join: errAway, before: errAway})
			}
			switch random.IntN(3) {
			case 0:
				story += " suspended " + lasts.String() + " deaf for " + away.String()
				m.suspended, m.deaf, m.notices = true, f.now+int64(lasts+away), random.IntN(3) == 0
				if m.notices {
					story += " which it notices"
				}
				if random.IntN(2) == 0 { // what comes while it is suspended waits
					m.deaf = 0
				}
				f.pass(lasts)
				if m.suspended = false; !m.notices {
					woken = m
				}
			case 1:
				story += " NATS away " + away.String()
				for _, m := range f.machines {
					m.deaf = f.now + int64(away)
				}
				if random.IntN(2) == 0 {
					story += " with a step"
					f.shift += int64(lasts - 45*time.Second)
				}
				f.pass(away)
			case 2:
				story += " step " + (lasts - 45*time.Second).String()
				f.shift += int64(lasts - 45*time.Second)
			}
			for after := range 30 { // the others are right at any time
				if after == back {
					f.store.have(faults{})
				}
				f.pass(time.Second)
				for i, other := range f.machines {
					if after < 29 && other == woken || after <= back+1 { // it tells no time without a store
						continue
					}
					if off := f.off(i); off.Abs() > 100*time.Millisecond {
						t.Fatalf("seed %d, %d machines:%s: after %d s machine %d is %v off",
							seed, len(f.machines), story, after+1, i, off)
					}
				}
			}
		}
	}
}

// TestAnOwnerThatSlept: an aggregator whose machine was suspended, and which notices that, takes
// its shards back from others, and refuses no hits.
func TestAnOwnerThatSlept(t *testing.T) {
	for i := range 3 {
		for _, deaf := range []time.Duration{-time.Minute, 0, 500 * time.Millisecond} {
			f := newFleetOf(t, 3)
			f.pass(10 * time.Second)
			m := f.machines[i]
			before := m.worker.Stats().Owned
			m.suspended, m.notices, m.deaf = true, true, f.now+int64(time.Minute+deaf)
			f.pass(time.Minute)
			m.suspended = false
			sent := uint64(0)
			for range 500 {
				f.pass(10 * time.Millisecond)
				for s, owned := range m.bus.owned {
					if owned {
						sent++
						r := report(uint64(s+1), sent, perSecond(f.now), own{"k", 0, 1})
						r.Shard, r.Shards = uint32(s), 3
						m.send(f.now-m.behind, r)
						m.next = 0 // it is due at once
					}
				}
			}
			if after := m.worker.Stats().Owned; after != before {
				t.Errorf("machine %d owned %d shards, and owns %d", i, before, after)
			}
			f.pass(time.Second)
			wantLedger(t, "after it has woken", f.store.Store.(*memstore.Store), "per-second", storage.RuleLedger{Counted: int64(sent)})
		}
	}
}
