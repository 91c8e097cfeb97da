package torture

import (
	"math"
	"slices"
	"time"

	"github.com/offpath-io/offpath/internal/testing/membus"
	"github.com/offpath-io/offpath/pkg/events"
)

// kind is a kind of fault. In these faults, d is how long one lasts; it returns false if it could
// not happen now.
type kind struct {
	name   string
	weight int
	begin  func(w *world, d int64) bool
}

const clockOff = "checker starts with a wrong clock"

var faults = []kind{
	{"checker killed", 10, func(w *world, d int64) bool {
		l := w.slots[w.rand.IntN(checkers)].life
		if l == nil {
			return false
		}
		w.endChecker(l)
		w.restart(l.slot, d)
		return true
	}},
	{"checker leaves", 6, func(w *world, d int64) bool {
		return w.withChecker(func(l *life) {
			w.leave(l, func() { w.restart(l.slot, d) })
		})
	}},
	{"checker paused", 8, func(w *world, d int64) bool {
		s := w.slots[w.rand.IntN(checkers)]
		return s.life != nil && extend(&s.paused, w.now+d)
	}},
	{"checker cut off", 6, func(w *world, d int64) bool { return w.cutChecker(d, true, true) }},
	{"checker cannot send", 4, func(w *world, d int64) bool { return w.cutChecker(d, true, false) }},
	{"checker cannot hear", 4, func(w *world, d int64) bool { return w.cutChecker(d, false, true) }},
	{"aggregator killed", 10, func(w *world, d int64) bool {
		return w.withWorker(func(k *worker) { w.endWorker(k.number, d) })
	}},
	{"aggregator leaves", 5, func(w *world, d int64) bool {
		return w.withWorker(func(k *worker) { w.leaveWorker(k.number, d) })
	}},
	{"aggregator paused", 8, func(w *world, d int64) bool {
		return w.withWorker(func(k *worker) { extend(&k.paused, w.now+d) })
	}},
	{"aggregator cut off", 5, func(w *world, d int64) bool { return w.cutWorker(d, true, true) }},
	{"aggregator cannot send", 3, func(w *world, d int64) bool { return w.cutWorker(d, true, false) }},
	{"aggregator cannot hear", 3, func(w *world, d int64) bool { return w.cutWorker(d, false, true) }},
	{"aggregators apart", 5, func(w *world, d int64) bool {
		w.sides = splits{until: w.now + d, salt: w.rand.Uint64() | 1}
		return true
	}},
	{"network slow", 6, func(w *world, d int64) bool {
		w.net.slow, w.net.delay = w.now+d, w.rand.Int64N(500*ms)
		w.net.jitter = w.rand.Int64N(500*ms - w.net.delay)
		return w.setNetwork(d)
	}},
	{"network loses", 6, func(w *world, d int64) bool {
		w.net.loses, w.net.loss = w.now+d, 0.3*w.rand.Float64()
		return w.setNetwork(d)
	}},
	{"network repeats", 5, func(w *world, d int64) bool {
		w.net.repeats, w.net.repeat = w.now+d, 0.5*w.rand.Float64()
		return w.setNetwork(d)
	}},
	{"store down", 4, func(w *world, d int64) bool { return extend(&w.store.down, w.now+d) }},
	{"store hangs", 4, func(w *world, d int64) bool {
		extend(&w.store.hangs, w.now+d)
		w.at(w.now+d, w.store.finish)
		return true
	}},
	{"store's answers lost", 4, func(w *world, d int64) bool { return extend(&w.store.cut, w.now+d) }},
	{"node of a shard dead", 5, func(w *world, d int64) bool {
		w.store.dead[uint32(w.rand.IntN(w.shards))] = w.now + d
		return true
	}},
	{"store's clock set", 3, func(w *world, _ int64) bool {
		w.store.ahead = w.between(-60*second, 60*second)
		return true
	}},
	{"store loses all", 3, func(w *world, _ int64) bool { return w.lose(copied{}) }},
	{"store goes back", 5, func(w *world, _ int64) bool {
		if len(w.store.copies) == 0 {
			return false
		}
		return w.lose(w.store.copies[w.rand.IntN(len(w.store.copies))])
	}},
	{"checker's clock jumps ahead", 5, func(w *world, _ int64) bool {
		by := w.between(5*second, 60*second)
		if w.rand.IntN(2) == 0 {
			by = w.between(ms, second)
		}
		return w.jumpy && w.withChecker(func(l *life) { w.setClock(l, by) })
	}},
	{"checker suspended", 5, func(w *world, d int64) bool { // its clock stands still
		s := w.slots[w.rand.IntN(checkers)]
		if !w.jumpy || s.life == nil || w.now < s.paused {
			return false
		}
		s.paused, s.life.asleep = w.now+d, w.now+s.life.skew
		w.setClock(s.life, -d)
		return true
	}},
	{"limits raised", 3, func(w *world, _ int64) bool { return w.changeLimits(2, 1) }},
	{"limits lowered", 3, func(w *world, _ int64) bool { return w.changeLimits(1, 2) }},
	{"rules replaced", 3, func(w *world, _ int64) bool { return w.replaceRule() }},
	{"invalid rules refused", 2, func(w *world, _ int64) bool { return w.offerInvalid() }},
}

// kinds are the names of all faults.
func kinds() []string {
	names := []string{clockOff}
	for _, f := range faults {
		names = append(names, f.name)
	}
	return names
}

// note counts a fault.
func (w *world) note(fault string, lasts int64) {
	w.result.Faults[fault]++
	if w.o.Log != nil {
		w.o.Log(time.Duration(w.now-w.start), time.Duration(lasts), fault)
	}
}

// inject plans faults until a time, each for 0.1 to 8 s: most are short, or dense schedules would
// have nothing left to break.
func (w *world) inject(until int64) {
	all := 0
	for _, f := range faults {
		all += f.weight
	}
	w.mended = until
	for at := w.now; ; {
		at += int64(w.rand.ExpFloat64() * w.gap)
		if at >= until {
			return
		}
		x := w.rand.IntN(all)
		i := slices.IndexFunc(faults, func(f kind) bool {
			x -= f.weight
			return x < 0
		})
		d := min(int64(0.1e9*math.Pow(80, w.rand.Float64())), until-at)
		w.at(at, func() {
			w.disturb()
			if faults[i].begin(w, d) {
				w.note(faults[i].name, d)
			}
		})
	}
}

// extend moves the end of a fault, unless it ends later anyway.
func extend(until *int64, to int64) bool {
	*until = max(*until, to)
	return true
}

// withChecker does something to a checker at random, if it is there and does not leave.
func (w *world) withChecker(do func(*life)) bool {
	l := w.slots[w.rand.IntN(checkers)].life
	if l == nil || l.leaving {
		return false
	}
	do(l)
	return true
}

func (w *world) withWorker(do func(*worker)) bool {
	k := w.crew[w.rand.IntN(len(w.crew))]
	if k.Worker == nil {
		return false
	}
	do(k)
	return true
}

// restart starts a checker in an empty slot later, but not after the faults' end.
func (w *world) restart(s *slot, after int64) {
	w.at(min(w.now+after, w.mended), func() {
		if s.life == nil {
			w.startChecker(s)
		}
	})
}

// setClock moves a running checker's own clock. It slews by 1/20, or, if it is more than 5 s off,
// steps when eight welcomes have shown that (docs/protocol.md, Clocks).
func (w *world) setClock(l *life, by int64) {
	l.skew += by
	l.next -= by
	follows := 20 * max(by, -by)
	if follows > 160*second {
		follows = 30 * second
	}
	extend(&l.slewed, max(l.slewed, w.now)+follows+35*second)
}

func (w *world) cutChecker(d int64, from, to bool) bool {
	return w.withChecker(func(l *life) {
		if from {
			extend(&l.slot.from, w.now+d)
		}
		if to {
			extend(&l.slot.to, w.now+d)
		}
		w.cut(l.slot)
		w.at(w.now+d, func() { w.cut(l.slot) })
	})
}

// cut has the bus follow a slot's cuts.
func (w *world) cut(s *slot) {
	if s.life != nil {
		w.bus.CutWays(s.life.name, w.now < s.from, w.now < s.to)
	}
}

func (w *world) cutWorker(d int64, from, to bool) bool {
	return w.withWorker(func(k *worker) {
		if from {
			extend(&k.from, w.now+d)
		}
		if to {
			extend(&k.to, w.now+d)
		}
	})
}

// network is what is wrong with it, until when.
type network struct {
	slow, loses, repeats int64
	delay, jitter        int64
	loss, repeat         float64
}

// setNetwork has the bus follow, now and when the fault ends.
func (w *world) setNetwork(d int64) bool {
	f := membus.Faults{Delay: oneWay, RepeatWithin: time.Second}
	if w.now < w.net.slow {
		f.Delay, f.Jitter = oneWay+time.Duration(w.net.delay), time.Duration(w.net.jitter)
	}
	if w.now < w.net.loses {
		f.Lose = w.net.loss
	}
	if w.now < w.net.repeats {
		f.Repeat = w.net.repeat
	}
	w.bus.SetFaults(f)
	if d > 0 {
		w.at(w.now+d, func() { w.setNetwork(0) })
	}
	return true
}

// splits are two sides of aggregators that do not hear each other.
type splits struct {
	until int64
	salt  uint64
}

// part says whether a message does not get to the aggregator of this id.
func (s *splits) part(now int64, id uint64, member []byte) bool {
	if now >= s.until {
		return false
	}
	m, err := events.DecodeMember(member)
	return err == nil && (m.GetId()*s.salt^id*s.salt)>>63 != 0
}

// lose lets the store lose data. Strict keys of now need not keep to their limit any more.
func (w *world) lose(to copied) bool {
	if !w.losing {
		return false
	}
	w.store.goBack(to)
	w.losses++
	for _, k := range w.keys {
		k.exempt = true
	}
	w.lostIn = firstRules[turn].Window.Bucket(w.now)
	return true
}

// mend ends all faults now.
func (w *world) mend() {
	w.net, w.sides = network{}, splits{}
	if w.o.mutation == neverRecovers {
		w.net = network{loses: never, loss: 0.97}
	}
	w.setNetwork(0)
	s := w.store
	s.down, s.hangs, s.cut = 0, 0, 0
	clear(s.dead)
	s.finish()
	for _, k := range w.crew {
		k.paused, k.from, k.to = 0, 0, 0
		if k.Worker == nil {
			w.bringUp(k)
		}
	}
	for _, s := range w.slots {
		s.paused, s.from, s.to = 0, 0, 0
		if s.life != nil && s.life.leaving { // its time is over
			w.endChecker(s.life)
		}
		if s.life == nil {
			w.startChecker(s)
		}
		w.cut(s)
	}
	w.disturb()
	w.due = w.now
}
