package torture

import (
	"fmt"
	"time"

	"github.com/offpath-io/offpath/internal/testing/membus"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/events"
)

// slot is the place of one checker.
type slot struct {
	world  *world
	number int
	life   *life // nil while there is none
	paused int64 // until when the process stands still
	from   int64 // until when messages from it are lost
	to     int64 // and those to it
}

// life is one checker's.
type life struct {
	*check.Checker
	slot       *slot
	name       string
	epoch      uint64
	link       *membus.Checker
	inbox      []func()
	next, last int64
	born, died int64 // died is never while it lives
	leaving    bool
	skew       int64 // how far its own clock is ahead
	slewed     int64 // until when it may take to follow a change of that while it ran
	asleep     int64 // own time of a wake-up after which no good answer has come to a hello; 0: none
	wrong      int64 // when its idea of the fleet's time was last seen to be wrong
	unheard    int64 // how far that has moved without it having heard so, at most

	admitted int64 // hits
	reported int64 // in reports, each once
	pending  int64 // in no report when it died
	inFlight int64 // in reports without an answer then
	overflow int64
	givenUp  int64    // in reports
	flights  []flight // by shard
	trip     int64    // how long its reports take to be answered, as it knows that
}

// startChecker begins a life in an empty slot. A third of the lives find a clock that is up to a
// minute off.
func (w *world) startChecker(s *slot) {
	w.epochs++
	l := &life{
		slot: s, name: fmt.Sprint("c", w.epochs), epoch: w.epochs, next: w.now, born: w.now, died: never,
		skew: w.between(-2*second, 2*second), wrong: w.now,
	}
	if w.rand.IntN(3) == 0 {
		l.skew = w.between(-60*second, 60*second)
		w.note(clockOff, 0)
	}
	l.next += w.rand.Int64N(20 * ms) // not all flush in the same instant
	l.link = w.bus.Checker(l.name)
	var err error
	l.Checker, err = check.New(check.Options{
		Rules: w.rules.set, Revision: w.rules.revision, Epoch: l.epoch,
		Link: &tapped{l.link, w, l}, MaxIdleKeys: -1,
		Now: func() time.Time { return time.Unix(0, w.now+l.skew) },
	})
	if err != nil {
		panic(err)
	}
	l.link.Attach(func(kind events.Kind, payload []byte) {
		if w.o.mutation == deafToAlarms && (kind == events.KindAlarm ||
			kind == events.KindRefresh && w.rand.IntN(2) == 0) {
			return
		}
		receive := func(waited bool) {
			if kind == events.KindWelcome {
				payload = w.welcome(l, payload)
			}
			l.answered(kind, payload, w.now, waited)
			l.Receive(kind, payload)
		}
		if w.now < s.paused {
			l.inbox = append(l.inbox, func() { receive(true) })
			return
		}
		receive(false)
	})
	s.life = l
	w.lives = append(w.lives, l)
	w.due = min(w.due, l.next)
	w.cut(s)
}

// welcome notes what a checker hears of the time.
func (w *world) welcome(l *life, payload []byte) []byte {
	m, err := events.DecodeWelcome(payload)
	if err != nil {
		panic(err)
	}
	off := (w.now+l.skew-m.GetSent())/2 + m.GetError()
	w.hears(l, off)
	if m.GetSent() > l.asleep && off < 10*ms { // a bad answer contradicts nothing
		l.asleep = 0
	}
	if w.o.mutation == wrongFleetTime && l.slot.number == 0 {
		m.Time += 200 * ms
		if payload, err = events.Append(nil, m); err != nil {
			panic(err)
		}
	}
	return payload
}

// endChecker ends a life as it is: a process that is killed, or has left.
func (w *world) endChecker(l *life) {
	l.link.Attach(nil)
	l.died = w.now
	w.bury(l)
	l.slot.life, l.slot.paused = nil, 0
}

// leave lets a checker leave in order: it takes no more requests, delivers what it has, for at most
// 5 s, and says goodbye. Permits that it has left lapse; production gives them back.
func (w *world) leave(l *life, then func()) {
	l.leaving = true
	deadline := w.now + 5*second
	var end func()
	end = func() {
		switch {
		case l.slot.life != l: // killed meanwhile
			return
		case w.now < l.slot.paused, l.Stats().Unreported() > 0 && w.now < deadline:
			w.at(w.now+5*ms, end)
			return
		}
		goodbye, err := events.Append(nil, &events.Hello{
			Epoch: l.epoch, Sent: w.now + l.skew, Leaving: true,
		})
		if err != nil {
			panic(err)
		}
		_ = l.link.Hello(goodbye)
		w.endChecker(l)
		then()
	}
	end()
}

func (w *world) stepChecker(l *life) (next int64) {
	if w.now < l.slot.paused {
		return l.slot.paused
	}
	l.inbox = drain(l.inbox)
	w.heed(l)
	if l.next <= w.now {
		l.last = w.now
		if l.next = l.Step().UnixNano() - l.skew; l.next <= w.now {
			l.next = w.now + stepFloor
		}
		w.heed(l)
	}
	return l.next
}

// heed brings a checker's next step forward if it asks for that.
func (w *world) heed(l *life) {
	select {
	case <-l.Wake():
		l.next = min(l.next, max(w.now, l.last+stepFloor))
		w.due = min(w.due, l.next)
	default:
	}
}
