package torture

import (
	"fmt"
	"slices"
	"time"

	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

const (
	// settled is for how long there must have been no fault before the tight bounds hold, and fresh
	// for how long every checker must have known the fleet: what passed before is in no window
	// then.
	settled = 5 * second
	fresh   = 2500 * ms
	// clockError is how far checkers may be from the fleet's time (docs/protocol.md, Clocks).
	clockError = 50 * time.Millisecond
	// unheard is how long a hit can be unknown to others, by "The bound" of docs/accuracy.md,
	// beside a fast interval: a round trip, the gathering, and the time between two alarms.
	unheard = 2*int64(oneWay) + gather + 4*ms
	// few is how many hits limits of a few hundred and less go beyond that (docs/accuracy.md, What
	// chance does, and Small limits).
	few = 5
	// remembered is for how long a checker that was killed may count as live: 15 s, but for the
	// time in which an aggregator hears nobody (docs/protocol.md, How many checkers there are).
	remembered = 15*second + faulty
	// mostViolations of a seed are kept: one cause often has many effects.
	mostViolations = 4
)

// judge is what is known of the fleet's state, to say which bounds hold.
type judge struct {
	most      [len(firstRules)]int64 // the highest limit of each rule since it was last calm
	losses    int64                  // of the store's data since then
	replaced  int64                  // rules since then
	lostIn    int64                  // the bucket of turn in which the store last lost data
	disturbed int64                  // when there was last a fault
	unsettled int64                  // when a checker last was not fresh, or its clock or rules wrong
	tight     bool                   // the bounds of a fleet without faults hold
	lostTime  bool                   // the fleet's time may have stepped with the store's clock
	lostHour  bool                   // and it may have done so into another hour
	shift     int64                  // how far the fleet's time is ahead of the true one
	margin    int64                  // how far the fleet may be from it
}

func (j *judge) init(w *world) { j.disturbed, j.unsettled = w.now, w.now }

// violate notes what must not have happened, the first few times.
func (w *world) violate(invariant, format string, args ...any) {
	v := &w.result.Violations
	same := 0
	for _, o := range *v {
		if o.Invariant == invariant {
			same++
		}
	}
	if len(*v) >= mostViolations || same >= 2 {
		return
	}
	*v = append(*v, Violation{
		Seed: w.seed, At: time.Duration(w.now - w.start).Seconds(), Invariant: invariant,
		Figures: fmt.Sprintf(format, args...), Command: w.command(),
	})
}

func (w *world) command() string {
	text := fmt.Sprintf("go run ./loadtest sim --torture --seeds 1 --seed %d", w.seed)
	if w.o.Rounds != 3 {
		text += fmt.Sprintf(" --rounds %d", w.o.Rounds)
	}
	return text
}

// disturb notes a fault that happens now.
func (w *world) disturb() { w.disturbed, w.tight = w.now, false }

// ongoing says whether a fault lasts.
func (w *world) ongoing() bool {
	s, now := w.store, w.now
	if now < max(s.down, s.hangs, s.cut, w.net.slow, w.net.loses, w.net.repeats, w.sides.until) {
		return true
	}
	for _, until := range s.dead {
		if now < until {
			return true
		}
	}
	for _, k := range w.crew {
		if k.Worker == nil || now < max(k.paused, k.from, k.to) {
			return true
		}
	}
	return slices.ContainsFunc(w.slots, func(s *slot) bool {
		return s.life == nil || s.life.leaving || now < max(s.paused, s.from, s.to)
	})
}

// look decides now and then which bounds hold, and keeps copies of the store.
func (w *world) look() {
	if w.losing && w.rand.IntN(60) == 0 {
		w.store.copy()
	}
	if w.ongoing() {
		w.disturb()
	}
	w.watchTime()
	for _, s := range w.slots {
		if s.life == nil {
			continue
		}
		if w.now >= s.paused && w.off(s.life).Abs() > clockError {
			s.life.wrong, w.unsettled = w.now, w.now
		}
	}
	w.tight = !w.lostTime && w.now-w.disturbed >= settled && w.now-w.unsettled >= fresh
	if w.now-w.disturbed < second || w.tight {
		return
	}
	for _, s := range w.slots {
		l := s.life
		if l == nil || l.Revision() != w.rules.revision || l.Stats().Freshness != check.Fresh {
			w.unsettled = w.now
		}
	}
	if w.now-w.disturbed >= settled-second && w.now-w.unsettled >= second { // what was before is over
		w.losses, w.replaced = 0, 0
		for i := range w.most {
			w.most[i] = w.rules.list[i].Limit
		}
	}
}

// believe takes in what a checker says of its knowledge.
func (w *world) believe(d *check.Decision) {
	if d.Freshness != check.Fresh {
		w.unsettled, w.tight = w.now, false
	}
}

// counts are the hits of one key in the last buckets.
type counts struct {
	newest int64
	hits   [8]int64 // by age
}

// add counts a hit in the first of some buckets that has room, else in the last one, and returns
// the count of that. As hits come in order, this finds a way to stay within the limit if there is one.
func (c *counts) add(first, last, limit int64) int64 {
	for ; c.newest < last; c.newest++ {
		if last-c.newest > int64(len(c.hits)) {
			c.newest = last - int64(len(c.hits)) - 1
		}
		copy(c.hits[1:], c.hits[:])
		c.hits[0] = 0
	}
	first = max(first, c.newest-int64(len(c.hits))+1)
	for first < last && c.hits[c.newest-first] >= limit {
		first++
	}
	c.hits[c.newest-first]++
	return c.hits[c.newest-first]
}

// admit notes a hit that has passed, and holds the rule's own count of all hits, each at the time
// that it truly came, against its limit.
func (w *world) admit(l *life, k *key, r *rules.Rule) {
	w.result.Admitted++
	l.admitted++
	k.total++
	c := k.counts[r.Window]
	if c == nil {
		c = new(counts)
		k.counts[r.Window] = c
	}
	now, limit := w.now+w.shift, w.rules.list[k.rule].Limit
	bucket := r.Window.Bucket(now)
	switch k.rule {
	case hour:
		if w.judgesStrict(!k.exempt) && k.total > limit {
			w.violate("strict", "hit %d of %s passes at %s, the limit is %d", k.total, k.text, l.name, limit)
		}
	case turn:
		// A machine that was suspended spends permits until its first hello (Leases, weak spots).
		if l.asleep != 0 {
			k.asleepIn = bucket
		}
		knows := bucket-w.lostIn > 1 && k.asleepIn != bucket && !w.lostTime
		first, last := bucket, bucket
		if knows {
			first, last = r.Window.Bucket(now-w.margin), r.Window.Bucket(now+w.margin)
		}
		count := c.add(first, last, limit)
		if w.judgesStrict(knows) && count > limit {
			w.violate("strict", "hit %d of %s passes at %s in a slice of 2 s, the limit is %d",
				count, k.text, l.name, limit)
		}
	default:
		c.add(bucket, bucket, limit)
		w.judgeAsync(l, k, r.Window, c)
	}
}

// judgesStrict counts a hit of a strict rule, and whether it is held against the limit.
func (w *world) judgesStrict(judged bool) bool {
	w.result.StrictHits++
	if judged {
		w.result.StrictJudged++
	}
	return judged
}

// judgeAsync holds a count against the bound that is documented for the fleet's state.
func (w *world) judgeAsync(l *life, k *key, s window.Shape, c *counts) {
	count := s.Count(c.hits[:s.Live()], w.now+w.shift)
	if w.tight {
		limit := float64(w.rules.list[k.rule].Limit)
		fast, demand := w.fastInterval(), slices.Max(k.rates[:])
		bound := 1.02*limit + demand*time.Duration(fast+unheard).Seconds() + few
		if w.result.Calm++; fast > shortest {
			w.result.Slow++
			w.result.SlowOver = max(w.result.SlowOver, count/limit-1)
		} else {
			w.result.CalmOver = max(w.result.CalmOver, count/limit-1)
		}
		if count > bound {
			w.violate("bound", "%.0f hits of %s in a window at %s, the limit is %.0f, the bound %.0f: "+
				"all are fresh, %.0f a second are asked for", count, k.text, l.name, limit, bound, demand)
		}
		return
	}
	limit := float64(w.most[k.rule])
	if count <= limit {
		return
	}
	if bound := w.loose(s)*limit*1.05 + few; count > bound {
		w.violate("limit x lives", "%.0f hits of %s in a window at %s, the limit is %.0f, the bound %.0f",
			count, k.text, l.name, limit, bound)
	}
}

// shortest is the fast interval on a network without faults: a report takes 6 ms.
const shortest = 8 * ms

// fastInterval is the longest fast interval of any checker: the power of two of milliseconds in
// which a report is answered, on the average of the last ones (docs/protocol.md, Reports).
func (w *world) fastInterval() int64 {
	fast := 4 * ms
	for _, s := range w.slots {
		for s.life != nil && fast < s.life.trip {
			fast *= 2
		}
	}
	return fast
}

// loose is how many times its limit a rule may admit while faults last: each life keeps to the
// limit by its own hits. It does so twice where it had another time meanwhile, since windows begin
// elsewhere then; and once more after each loss of the store's data, whose new totals take the
// place of those that it knew, and each time that the rule started clean.
func (w *world) loose(s window.Shape) float64 {
	begin, n := w.now-int64(s.Length)-int64(s.BucketSize()), int64(0)
	for _, l := range w.lives {
		switch {
		case l.died < begin:
		case l.wrong >= begin || l.born >= begin:
			n += 2
		default:
			n++
		}
	}
	return float64(n * (1 + w.losses + w.replaced))
}

// recovered checks that the fleet has come back by itself, 5 s after the last fault.
func (w *world) recovered() {
	w.agreeOnTime()
	gone := 0
	for _, l := range w.lives {
		if l.died != never && w.now-l.died < remembered {
			gone++
		}
	}
	for _, s := range w.slots {
		l := s.life
		st := l.Stats()
		if st.Freshness != check.Fresh {
			w.violate("recovery", "%s is %v: %v, last heard %v ago: %s",
				l.name, st.Freshness, st.ShardFreshness, st.Heard, st.Problem)
		}
		if st.Checkers < checkers || st.Checkers > checkers+gone {
			w.violate("fleet size", "%s knows of %d checkers, there are %d, and %d that have gone lately",
				l.name, st.Checkers, checkers, gone)
		}
		if off := w.off(l); off.Abs() > clockError && w.now > l.slewed && !w.lostTime {
			w.violate("clock", "%s is %v off, want at most %v (its own clock %v)",
				l.name, off, clockError, time.Duration(l.skew))
		}
		if st.Revision != w.rules.revision {
			w.violate("rules", "%s has revision %d, want %d", l.name, st.Revision, w.rules.revision)
		}
	}
}

// stillPermits checks that strict rules let hits pass when all is well. After a loss of data they
// grant nothing for a window by the fleet's time, which is longer if that has stepped back since. A
// hit that comes too rarely finds no permit, as a permit is returned before the next one comes: if
// none has passed, a key is asked for more often.
func (w *world) stillPermits(before int64) {
	stepped := w.lostTime || w.losing && w.result.TimeSteps > 0
	i := slices.IndexFunc(w.keys, func(k *key) bool { return k.rule == turn })
	for range 20 {
		if w.result.StrictHits > before || stepped {
			return
		}
		w.requestOf(w.slots[0].life, w.keys[i])
		w.advance(w.now + 50*ms)
	}
	w.violate("strict starves", "no hit of a strict rule has passed in %v without a fault, nor any of 20 in a row",
		time.Duration(calm))
}

// forgotten checks that checkers have let go of all keys, but for those that may be blocked for an
// hour.
func (w *world) forgotten() {
	most := w.serial - len(w.keys) + 2 // all keys but the first of the other rules
	for _, s := range w.slots {
		st := s.life.Stats()
		if st.LiveKeys > most {
			w.violate("memory", "%s holds %d keys %v after the last request, want at most %d",
				s.life.name, st.LiveKeys, time.Duration(forgetting), most)
		}
		if st.Checkers != checkers {
			w.violate("fleet size", "in the end %s knows of %d checkers, there are %d",
				s.life.name, st.Checkers, checkers)
		}
	}
}
