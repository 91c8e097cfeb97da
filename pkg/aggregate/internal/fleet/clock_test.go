package fleet

import (
	"math/rand/v2"
	"testing"
)

const (
	s  = int64(1_000_000_000)
	ms = int64(1_000_000)
	at = 1_800_000_000 * s // where own time begins
)

// aggregator is a clock, in a time of its own that is ahead of the true one.
type aggregator struct {
	Clock
	ahead int64
}

// storage is a store with a clock and a record.
type storage struct{ ahead, kept int64 }

// join is a look at the store's clock at true time now, the answer of which takes trip; the store
// reads its clock at this share of it.
func (a *aggregator) join(st *storage, now, trip int64, share float64, keeper bool) {
	own := now + a.ahead
	theirs := now - trip + int64(share*float64(trip)) + st.ahead
	st.kept = a.ObserveStore(own-trip, own, theirs, st.kept, keeper)
}

// measure has one aggregator measure another one at true time now.
func (a *aggregator) measure(b *aggregator, now, trip int64, keeper bool) {
	own := now + a.ahead
	theirs, err := b.Tell(now - trip/3 + b.ahead)
	a.ObservePeer(own-trip, own, theirs+trip/2, trip/2+err, keeper)
}

// startAt has clocks look at the store, and know the time from at on; the one that is the keeper's
// says so.
func startAt(st *storage, keeper *aggregator, all ...*aggregator) {
	for _, a := range all {
		a.join(st, at, 2*ms, 0.5, a == keeper)
		a.Start(at, true, false)
	}
}

// startUntil has a clock try to start every 250 ms, from at on.
func (a *aggregator) startUntil(until int64, listened, told bool) {
	for now := at; now <= until; now += s / 4 {
		a.Start(now+a.ahead, listened, told)
	}
}

// hear has a clock hear another one, which does not hear it, at true time now.
func (a *aggregator) hear(b *aggregator, now, took int64) {
	theirs, err := b.Tell(now - took + b.ahead)
	a.Hear(now+a.ahead, theirs, err)
}

// off is by how much an aggregator's fleet time differs from the true time.
func (a *aggregator) off(now int64) int64 { return a.Time(now+a.ahead) - now }

func TestClockStarts(t *testing.T) {
	type look struct{ at, trip int64 }
	for _, tt := range []struct {
		why            string
		looks          []look
		told           bool
		peer           []look
		listened, from int64 // when it has listened, and knows the time
		most           int64 // how far off it may be then
	}{
		{"by the store, after listening", []look{{0, 2 * ms}}, false, nil, 750, 750, ms},
		{"a good look is waited for", []look{{0, s}, {1000, 800 * ms}, {2000, 4 * ms}}, false, nil, 750, 2000, 2 * ms},
		{"at last by the best", []look{{0, s}, {1000, 600 * ms}, {2000, 800 * ms}}, false, nil, 750, 3000, 300 * ms},
		{"it hears nobody, itself included", []look{{0, 2 * ms}}, false, nil, 9000, 3000, ms},
		{"one who knows it is measured", []look{{0, 2 * ms}}, true, []look{{500, 2 * ms}}, 750, 500, 2 * ms},
		{"well", []look{{0, 2 * ms}}, true, []look{{500, 100 * ms}, {1500, 6 * ms}}, 750, 1500, 4 * ms},
		{"but cannot be", []look{{0, 2 * ms}}, true, nil, 750, 3000, ms},
		{"the store is away", nil, true, []look{{500, 2 * ms}}, 750, 500, 2 * ms},
	} {
		var a, b aggregator
		a.ahead, b.ahead = 3600*s, -60*s
		st := &storage{ahead: 30 * s, kept: -30 * s}
		b.join(st, at, 0, 0, false)
		b.Start(at+b.ahead, true, false)
		known := int64(-1)
		for now := int64(0); now <= 4000; now += 50 {
			for _, l := range tt.looks {
				if l.at == now {
					a.join(st, at+now*ms, l.trip, 1, false)
				}
			}
			for _, l := range tt.peer {
				if l.at == now {
					a.measure(&b, at+now*ms, l.trip, true)
				}
			}
			if tt.told {
				a.hear(&b, at+now*ms, 0)
			}
			if a.Start(at+now*ms+a.ahead, now >= tt.listened, tt.told) && known < 0 {
				known = now
				if off := a.off(at + now*ms); abs(off) > tt.most || abs(off) > a.Error(at+now*ms+a.ahead) {
					t.Errorf("%s: %d ns off", tt.why, off)
				}
			}
		}
		if known != tt.from {
			t.Errorf("%s: the time is known after %d ms, want %d", tt.why, known, tt.from)
		}
	}
}

// The store's clock was set, and the one that knows that cannot record it or be measured yet, but
// is heard: an aggregator that starts does not take the store's time for the fleet's. After a
// minute without a way to find out it does. By less than a message may take it sees that only if it
// has looked at the store before.
func TestClockStartsByNoStoreThatWasSet(t *testing.T) {
	for _, tt := range []struct {
		step, took int64
		before     bool
	}{
		{-14 * s, 400 * ms, false},
		{14 * s, 400 * ms, false},
		{700 * ms, 2 * ms, false},
		{-450 * ms, 700 * ms, true},
		{400 * ms, 2 * ms, true},
	} {
		step := tt.step
		for _, recorded := range []int64{10 * s, 1000 * s} {
			a, b := &aggregator{ahead: 5 * s}, &aggregator{ahead: -7 * s}
			st := &storage{}
			b.join(st, at, 0, 0, true)
			b.Start(at+b.ahead, true, false)
			if tt.before {
				a.join(st, at, 2*ms, 0.5, false)
			}
			st.ahead = step
			known := int64(0)
			for now := at + s; known == 0; now += s / 4 {
				if now >= at+recorded {
					st.kept = -step
				}
				a.join(st, now, 2*ms, 0.5, false)
				a.hear(b, now, tt.took)
				if a.Start(now+a.ahead, true, true) {
					known = now - at
				}
				off, want := a.off(now), min(recorded, s+believeStore)
				if tt.took > delay {
					want = s + believeStore
				}
				if known > 0 && (known != want || recorded == 10*s && abs(off) > 2*ms) {
					t.Errorf("step %d, recorded after %d: known after %d, %d off", step, recorded, known, off)
				}
			}
		}
	}
}

// An aggregator that first looked at a store whose clock was set already believes the keeper, which
// puts that on record.
func TestClockStartsByTheRecord(t *testing.T) {
	for _, step := range []int64{-600 * ms, 600 * ms} {
		a, b := &aggregator{ahead: 5 * s}, &aggregator{ahead: -7 * s}
		st := &storage{}
		b.join(st, at, 0, 0, true)
		b.Start(at+b.ahead, true, false)
		st.ahead = step
		known := false
		for now := at + s; now < at+6*s && !known; now += s / 4 {
			if now >= at+2*s {
				st.kept = -step
			}
			a.join(st, now, 2*ms, 0.5, false)
			a.hear(b, now, 2*ms)
			known = a.Start(now+a.ahead, true, true)
		}
		if off := a.off(at + 6*s); !known || abs(off) > 2*ms {
			t.Errorf("step %d: known is %v, %d off", step, known, off)
		}
	}
}

// What another aggregator tells may be off by as much as it says, and late: a store that agrees
// with it by that was not set.
func TestClockStartsBesideAVagueOne(t *testing.T) {
	for _, err := range []int64{2 * ms, 300 * ms, 600 * ms} {
		for _, share := range []float64{0, 1} {
			for _, took := range []int64{2 * ms, 400 * ms} {
				a, b := &aggregator{}, &aggregator{ahead: -7 * s}
				st := &storage{}
				b.join(st, at, 2*err, share, true)
				b.startUntil(at+3*s, true, false)
				known := int64(0)
				for now := at; known == 0 && now < at+100*s; now += s / 4 {
					a.join(st, now, 2*ms, 0.5, false)
					a.hear(b, now, took)
					if a.Start(now, true, true) {
						known = now - at
					}
				}
				if off := a.off(at + known); known != 3*s || abs(off) > ms {
					t.Errorf("told to %d ms, %d ms late: known after %d ms, %d off", err/ms, took/ms, known/ms, off)
				}
			}
		}
	}
}

// A machine that stands still again and again holds up a start for a minute at most.
func TestClockStartsOnAMachineThatStandsStill(t *testing.T) {
	for _, step := range []int64{0, 14 * s} {
		a, b := &aggregator{}, &aggregator{}
		st := &storage{}
		b.join(st, at, 0, 0, true)
		b.Start(at, true, false)
		st.ahead = step
		known, now := int64(0), at
		for i := 1; known == 0 && i < 1000; i++ {
			if now += s / 4; i%8 == 0 {
				now += 1100 * ms
			}
			a.join(st, now, 20*ms, 0.5, false)
			a.hear(b, now, 2*ms)
			if a.Start(now, true, true) {
				known = now - at
			}
		}
		if known < believeStore || known > 2*believeStore {
			t.Errorf("step %d: known after %d ns", step, known)
		}
	}
}

// A process that stood still while it started has not waited for others meanwhile, and begins to
// wait anew.
func TestClockOfAFrozenStart(t *testing.T) {
	for _, before := range []int64{0, 2750 * ms} {
		var a aggregator
		a.join(&storage{}, at, 2*ms, 0.5, false)
		a.startUntil(at+before, true, true)
		if a.Start(at+60*s, true, true) {
			t.Errorf("after %d ns it takes the store's time before it has measured the one that it hears", before)
		}
	}
}

// A bad first look is corrected at once when a better one shows it wrong; the fleet's time is never
// further off than Error says.
func TestClockCorrectsABadStart(t *testing.T) {
	var a, b aggregator
	st := &storage{}
	a.join(st, at, s, 0, true)
	a.startUntil(at+3*s, true, false)
	b.measure(&a, at+3*s, 2*ms, true)
	b.startUntil(at+3*s, true, true)
	for i, c := range []*aggregator{&a, &b} {
		off, err := c.off(at+3*s), c.Error(at+3*s)
		if abs(off) < 400*ms || abs(off) > err || err > 502*ms {
			t.Errorf("%d: off by %d, it says %d", i, off, err)
		}
	}
	a.join(st, at+4*s, 2*ms, 0, true)
	b.measure(&a, at+4*s, 2*ms, true)
	for i, c := range []*aggregator{&a, &b} {
		if off, err := c.off(at+4*s), c.Error(at+4*s); abs(off) > err || err > 3*ms {
			t.Errorf("%d: corrected, it is off by %d, and says %d", i, off, err)
		}
	}
	if st.kept != 0 {
		t.Errorf("%d on record", st.kept)
	}
}

// A keeper that was set by a bad look has measured another aggregator better since, and is on its
// way to that time, when the store's clock is set. A store that contradicts the better look is not
// followed because it agrees with the bad one.
func TestClockKnowsWhereItIsGoing(t *testing.T) {
	a, b := &aggregator{}, &aggregator{}
	st := &storage{}
	b.join(st, at, 2*ms, 0.5, false)
	b.Start(at, true, false)
	a.measure(b, at, 900*ms, true) // + 150 ms ± 450
	a.startUntil(at+3*s, true, true)
	now := at + 3*s
	a.measure(b, now, 500*ms, true) // + 83 ms ± 250
	st.ahead = 400 * ms
	was := a.off(now)
	for end := now + 10*s; now < end && st.kept == 0; now += s {
		a.join(st, now, 2*ms, 0.5, true)
	}
	if off := st.ahead + st.kept; abs(off) > was {
		t.Errorf("the fleet's time is %d off, and was %d before the store's clock was set", off, was)
	}
}

// While the store's clock contradicts a keeper that was set by a bad look, another aggregator that
// knows the time better corrects it before it records its own: one look at that one is enough.
func TestClockCorrectsABadKeeper(t *testing.T) {
	for _, trip := range []int64{2 * ms, 100 * ms, 300 * ms} {
		a, b := &aggregator{}, &aggregator{}
		st := &storage{}
		b.join(st, at, 2*ms, 0.5, false)
		b.Start(at, true, false)
		st.ahead = -30 * s
		a.measure(b, at, 500*ms, false)
		a.startUntil(at+3*s, true, true)
		if off := a.off(at + 3*s); abs(off) < 80*ms {
			t.Fatalf("started off by %d only", off)
		}
		now := at + 3*s
		for ; now <= at+20*s && st.kept == 0; now += s / 4 {
			a.measure(b, now, trip, false)
			if (now-at)%s == 0 {
				a.join(st, now+20*ms, 2*ms, 0.5, true)
			}
		}
		most := trip/6 + 3*ms // by which the look is off
		if trip > 250*ms {    // it is no better than the first
			most = 84 * ms
		}
		off, err := a.off(now), a.Error(now+a.ahead)
		if took := now - at - 3*s; took > 5*s || abs(off) > most || abs(st.ahead+st.kept) > most {
			t.Errorf("trips of %d ms: recorded after %d ms, %d off, and says %d; %d on record",
				trip/ms, took/ms, off, err, st.kept)
		}
	}
}

// Better and better looks at another aggregator do not put off what a keeper is to record: a minute
// after the first contradiction, where the store is far away.
func TestClockCorrectionsPutOffNothing(t *testing.T) {
	a, b := &aggregator{}, &aggregator{}
	st := &storage{}
	b.join(st, at, 2*ms, 0.5, false)
	b.Start(at, true, false)
	st.ahead = -30 * s
	a.measure(b, at, 900*ms, false)
	a.startUntil(at+3*s, true, true)
	begin := at + 3*s
	now, trip := begin, 400*ms
	for ; now < begin+200*s && st.kept == 0; now += s {
		if (now-begin)%(25*s) == 24*s {
			a.measure(b, now, trip, false)
			trip /= 3
		}
		a.join(st, now, 120*ms, 0.5, true)
	}
	if took := now - begin; took < 60*s || took > 63*s {
		t.Errorf("recorded after %d ms", took/ms)
	}
}

// A keeper that knew the time badly when it put that on record looks at the store again at once:
// from then on it knows its own time well, and notices each step.
func TestClockKnowsWhatItHasRecorded(t *testing.T) {
	a, b := &aggregator{}, &aggregator{}
	st := &storage{}
	b.join(st, at, 2*ms, 0.5, false)
	b.Start(at, true, false)
	a.measure(b, at, 900*ms, false)
	a.startUntil(at+3*s, true, true)
	st.ahead = -30 * s
	now := at + 3*s
	for ; now < at+20*s && st.kept == 0; now += s / 2 {
		a.join(st, now, 2*ms, 0.5, true)
	}
	kept := st.kept
	if kept == 0 || !a.Wants() {
		t.Fatalf("%d on record, and another look is not wanted", kept)
	}
	a.join(st, now, 2*ms, 0.5, true)
	if err := a.Error(now); err > 2*ms || a.Wants() {
		t.Errorf("it knows its own record to %d, and wants another look: %v", err, a.Wants())
	}
	off := a.off(now)
	st.ahead += 300 * ms
	a.join(st, now+s/2, 2*ms, 0.5, true)
	if moved := a.off(now+s/2) - off; abs(moved) > ms {
		t.Errorf("it follows a step of the store by %d", moved)
	}
}

// A keeper records within seconds that the store's clock was set, for however long the store was away.
func TestClockRecordsAfterAnOutage(t *testing.T) {
	for _, away := range []int64{10 * s, 300 * s, 3600 * s} {
		var a aggregator
		st := &storage{}
		a.join(st, at, 2*ms, 0.5, true)
		a.Start(at, true, false)
		st.ahead = -30 * s
		now := at + away
		for end := now + 10*s; now < end && st.kept == 0; now += s {
			a.join(st, now, 2*ms, 0.5, true)
		}
		if took := now - at - away; took > 5*s || abs(st.kept-30*s) > 2*ms {
			t.Errorf("away for %d s: %d s later %d are on record", away/s, took/s, st.kept)
		}
	}
}

// Where the store does not contradict a keeper that was set by a bad look, no other aggregator's
// time takes the place of the store's: that one's machine may have stood still.
func TestClockBelievesNoOtherBeforeTheStore(t *testing.T) {
	a, b := &aggregator{}, &aggregator{}
	st := &storage{}
	b.join(st, at, 2*ms, 0.5, false)
	b.Start(at, true, false)
	a.measure(b, at, 500*ms, false)
	a.startUntil(at+3*s, true, true)
	b.ahead = -150 * ms
	for now := at + 3*s; now < at+20*s; now += s / 4 {
		a.measure(b, now, 2*ms, false)
		b.measure(a, now, 2*ms, true)
		if (now-at)%(2*s) == s {
			a.join(st, now+20*ms, 2*ms, 0.5, true)
			b.join(st, now+30*ms, 2*ms, 0.5, false)
		}
	}
	if off := a.off(at + 20*s); abs(off) > 2*ms || st.kept != 0 {
		t.Errorf("the fleet's time is %d off, and %d on record", off, st.kept)
	}
}

// A store that is far away never gives a good look. Once a bad first look is corrected, the fleet's
// time slews all the same.
func TestClockOfAStoreFarAway(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var a aggregator
	st, steps := &storage{}, 0
	for now := at; now < at+1000*s; now += 2 * s {
		a.ahead = (now - at) / 10_000
		before := a.off(now)
		a.join(st, now, 30*ms+random.Int64N(10*ms), random.Float64(), true)
		if known := a.Start(now+a.ahead, true, false); known && a.off(now) != before {
			steps++
		}
	}
	if steps > 1 { // the first one, from no time at all
		t.Errorf("%d steps", steps)
	}
}

// TestClockGoesOn: the store's clock is set. The fleet's time goes on for the keeper, for those who
// follow it, and for the next one that starts; later the offset on record returns to 0.
func TestClockGoesOn(t *testing.T) {
	steps := []int64{-60 * s, 30 * s, -600 * s}
	if testing.Short() { // a step takes 5,000 times as long to return
		steps = steps[:2]
	}
	for _, step := range steps {
		fleet := []*aggregator{{ahead: 5 * s}, {ahead: -7 * s}}
		st := &storage{}
		now, recorded := at, true
		pause := s
		run := func(looks int) {
			for range looks {
				now += pause
				fleet[0].join(st, now, 2*ms, 0.3, true)
				for _, a := range fleet[1:] {
					a.join(st, now, 2*ms, 0.6, false)
					a.measure(fleet[0], now, 2*ms, true)
					fleet[0].measure(a, now, 2*ms, false)
				}
				for _, a := range fleet {
					a.Start(now+a.ahead, true, false)
					// By as much as the offset has returned to 0, it is off.
					if off := a.off(now) - (st.ahead + st.kept); recorded && abs(off) > a.Error(now+a.ahead)+4*ms {
						t.Fatalf("step %d: off by %d, %d ahead, %d kept", step, off, st.ahead, st.kept)
					}
				}
			}
		}
		run(20)
		st.ahead, recorded = step, false
		run(2)
		recorded = true
		if off := fleet[0].off(now); abs(off) > 5*ms {
			t.Errorf("step %d: the keeper's time stepped by %d", step, off)
		}
		run(5)
		fleet = []*aggregator{fleet[1], {ahead: 11 * s}}
		run(1)
		fleet = []*aggregator{{ahead: 12 * s}}
		run(1)
		if off := fleet[0].off(now); abs(off) > 20*ms {
			t.Errorf("step %d: after all have been replaced the fleet's time is %d off", step, off)
		}
		pause = 10 * s
		run(int(abs(step)/s) * 5001)
		if off := fleet[0].off(now) - step; st.kept != 0 || abs(off) > 3*ms {
			t.Errorf("step %d: in the end %d kept, %d off", step, st.kept, off)
		}
	}
}

// What is on record is as good as the look at the store that it comes from, and whoever starts
// takes it for right. So slow looks are recorded only if there is no better one for a minute, and
// then put right by the first better one.
func TestClockIsSetSlowly(t *testing.T) {
	var a aggregator
	st := &storage{}
	startAt(st, &a, &a)
	for i, step := range []struct{ after, trip, ahead, kept, within int64 }{
		{2 * s, s, -60 * s, 0, 0}, // a better one may come
		{6 * s, s, -60 * s, 0, 0},
		{7 * s, 90 * ms, -60 * s, 60 * s, 46 * ms},
		{9 * s, 2 * ms, -60 * s, 60 * s, 46 * ms}, // another aggregator may bear witness
		{12 * s, 2 * ms, -60 * s, 60 * s, 2 * ms},
		{20 * s, s, 0, 60 * s, 4 * ms},
		{79 * s, s, 0, 60 * s, 4 * ms},
		{80 * s, s, 0, 0, 501 * ms},
	} {
		st.ahead = step.ahead
		a.join(st, at+step.after, step.trip, 0, true)
		if off := a.off(at + step.after); abs(off) > 4*ms || abs(st.kept-step.kept) > step.within {
			t.Errorf("%d: %d off, %d kept", i, off, st.kept)
		}
	}
}

// TestClockOfTheSuspended: a machine's clock stood still while it was suspended. Two of three are
// right: the store and another aggregator. In whichever order it looks at them when it wakes, it
// takes over their time, and records nothing.
func TestClockOfTheSuspended(t *testing.T) {
	for _, keeper := range []bool{true, false} {
		for _, first := range []string{"store", "peer", "what the peer said before"} {
			a, b := &aggregator{}, &aggregator{}
			st := &storage{}
			startAt(st, nil, a, b)
			a.measure(b, at+ms, 2*ms, !keeper)
			now := at + 60*s
			a.ahead = -60*s + 2*ms
			if first == "what the peer said before" {
				a.join(st, now, 2*ms, 0.5, keeper)
				a.ObservePeer(at+ms, now+ms+a.ahead, at+3*ms, ms, !keeper)
			}
			if first == "peer" {
				a.measure(b, now, 2*ms, !keeper)
			}
			for range 5 {
				b.join(st, now, 2*ms, 0.5, !keeper)
				a.join(st, now, 2*ms, 0.5, keeper)
				b.measure(a, now+2*ms, 2*ms, keeper)
				now += 100 * ms
			}
			a.measure(b, now, 2*ms, !keeper)
			a.join(st, now+100*ms, 2*ms, 0.5, keeper)
			now += 200 * ms
			if abs(a.off(now)) > 2*ms || abs(b.off(now)) > 2*ms || st.kept != 0 {
				t.Errorf("keeper %v, %s first: %d and %d off, %d kept", keeper, first, a.off(now), b.off(now), st.kept)
			}
		}
	}
}

// TestClockOfAWrongKeeper: the store is away, and the keeper's machine was suspended. The others,
// two of three, do not follow it.
func TestClockOfAWrongKeeper(t *testing.T) {
	fleet := []*aggregator{{}, {}, {}}
	keeper, st := fleet[0], &storage{}
	startAt(st, keeper, fleet...)
	keeper.ahead = -60 * s
	for now := at + 60*s; now < at+80*s; now += s / 4 {
		for i, a := range fleet[1:] {
			a.measure(keeper, now, 2*ms, true)
			a.measure(fleet[2-i], now, 2*ms, false)
			if off := a.off(now); abs(off) > 2*ms {
				t.Fatalf("after %d ns aggregator %d is %d off", now-at-60*s, i+1, off)
			}
		}
	}
}

// TestClockWithoutAKeeper: aggregators do not hear each other. Each follows the store, none changes
// what is on record, however long that takes, and when the store's clock is set, all go on for a
// while, and then take it over together.
func TestClockWithoutAKeeper(t *testing.T) {
	fleet := []*aggregator{{}, {}, {}}
	st := &storage{kept: 5 * s}
	for now := at; now < at+3600*s; now += s / 2 {
		after := now - at
		if after == 1800*s {
			st.ahead = 30 * s
		}
		for i, a := range fleet {
			a.ahead = (int64(i) - 1) * after / 10_000
			a.join(st, now+int64(i)*500*ms, 2*ms, 0.5, false)
			a.Start(now+int64(i)*500*ms+a.ahead, false, false)
			if wants := a.Wants(); wants && after > 1810*s {
				t.Fatalf("after %d s it still asks the store again and again", after/s)
			}
			want := 5 * s
			if after >= 1800*s+believeStore {
				want += 30 * s
			}
			if off := a.off(now+s) - want; after > 4*s && abs(after-1800*s-believeStore) > 4*s && abs(off) > 10*ms {
				t.Fatalf("after %d s aggregator %d is off by %d", after/s, i, off)
			}
		}
	}
	if st.kept != 5*s {
		t.Errorf("%d on record", st.kept)
	}
}

// TestVagueWitness: where the time of another aggregator is known so badly that both the store's
// and the keeper's may be right, it decides nothing: the keeper's goes on.
func TestVagueWitness(t *testing.T) {
	var a, b aggregator
	st := &storage{}
	startAt(st, &a, &a)
	startAt(st, &b, &b)
	for now := at + s; now < at+10*s; now += s / 4 {
		st.ahead = 500 * ms
		a.join(st, now, 2*ms, 0.5, true)
		a.measure(&b, now+ms, s, false)
		if now < at+3*s && st.kept != 0 {
			t.Fatalf("after %d ns %d are on record: a better witness may come", now-at, st.kept)
		}
		if off := a.off(now + ms); abs(off) > 20*ms { // the offset returns to 0
			t.Fatalf("after %d ns the keeper's time has moved by %d", now-at, off)
		}
	}
	if abs(st.kept+500*ms) > 20*ms {
		t.Errorf("%d on record", st.kept)
	}
}

// TestClockIsAsGoodAsItSays: whatever the round trips and the drift, the fleet's time is never
// further off than Error says and checkers allow for, and moves by at most 1/40 of the time.
func TestClockIsAsGoodAsItSays(t *testing.T) {
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 1))
		drift := float64(random.IntN(200)-100) / 1e6
		var a aggregator
		st := &storage{}
		trip := func() int64 {
			if random.IntN(4) > 0 {
				return 100_000 + random.Int64N(4*ms)
			}
			return random.Int64N(s)
		}
		last, known := int64(0), false
		for now := at; now < at+1000*s; now += s / 5 {
			a.ahead = int64(drift * float64(now-at))
			if now%(2*s) == 0 {
				a.join(st, now, trip(), random.Float64(), true)
			}
			if !a.Start(now+a.ahead, true, false) {
				continue
			}
			off := a.off(now)
			if abs(off) > a.Error(now+a.ahead)+ms {
				t.Fatalf("seed %d: off by %d, it says %d", seed, off, a.Error(now+a.ahead))
			}
			if known && now > at+20*s && abs(off-last) > s/5/slewShare+ms/10 {
				t.Fatalf("seed %d: a step of %d", seed, off-last)
			}
			last, known = off, true
		}
		if st.kept != 0 {
			t.Errorf("seed %d: %d on record", seed, st.kept)
		}
	}
}

// TestFollowerDrifts: checkers allow for 1 ms that the keeper and an aggregator that follows it may
// have drifted, not for 1 ms of each.
func TestFollowerDrifts(t *testing.T) {
	var keeper, follower aggregator
	st := &storage{}
	keeper.join(st, at, 0, 0, true)
	keeper.Start(at, true, false)
	for after := int64(0); after < 7*s; after += s / 10 {
		drifted := after * 11 / 100_000
		keeper.ahead, follower.ahead, st.ahead = drifted, drifted, -drifted
		now := at + after
		if after == 33*s/10 {
			follower.measure(&keeper, now, 0, true)
			follower.Start(now+follower.ahead, true, true)
		}
		if !follower.Known() {
			continue
		}
		off := follower.off(now) - st.ahead
		if said := follower.Error(now+follower.ahead) + ms; abs(off) > said {
			t.Errorf("after %d ms it is %d off, and says %d", after/ms, off, said)
		}
	}
}

// TestClocksAgreeWhileTheOffsetReturns: an offset returns to 0, by the keeper. One that has not
// looked at any clock for a while, and whose crystal is as bad as can be, is never further from the
// keeper's time than both say and checkers allow for.
func TestClocksAgreeWhileTheOffsetReturns(t *testing.T) {
	for _, drift := range []int64{-1, 1} {
		for _, kept := range []int64{-3600 * s, 3600 * s} {
			var keeper, other aggregator
			st := &storage{kept: kept}
			for now := at; now < at+300*s; now += 2 * s {
				keeper.ahead, other.ahead = -drift*(now-at)/10_000, drift*(now-at)/10_000
				keeper.join(st, now, 2*ms, 0.5, true)
				keeper.Start(now+keeper.ahead, true, false)
				if now < at+100*s {
					other.join(st, now, 2*ms, 0.5, false)
					other.Start(now+other.ahead, true, false)
				}
				off := other.Time(now+other.ahead) - keeper.Time(now+keeper.ahead)
				if said := other.Error(now+other.ahead) + keeper.Error(now+keeper.ahead) + ms; abs(off) > said {
					t.Fatalf("drift %d, %d kept: after %d s off by %d, they say %d", drift, kept, (now-at)/s, off, said)
				}
			}
			if abs(st.kept) == abs(kept) {
				t.Errorf("drift %d: the offset does not return to 0", drift)
			}
		}
	}
}
