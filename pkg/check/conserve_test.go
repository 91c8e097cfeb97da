package check

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
)

// store is a Link to an aggregator that keeps totals, of hits here and elsewhere, and answers when it is told to.
type store struct {
	echo
	mu              sync.Mutex
	admitted        map[storeKey]uint64
	own, ownDenied  uint64 // hits of all reports
	late            uint64
	sequence, alarm uint64
	waiting         []*events.Report
}

type storeKey struct {
	rule, key string
	bucket    int64
	denied    bool
}

func (s *store) Report(_ uint32, report []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, err := events.DecodeReport(report)
	if err != nil {
		return err
	}
	if m.Sequence > s.sequence { // else it has been counted
		s.sequence = m.Sequence
		s.count(m)
	}
	s.waiting = append(s.waiting, m)
	return nil
}

// count takes in a report's hits.
func (s *store) count(m *events.Report) {
	for _, kind := range [...]int{ofAdmitted, ofDenied} {
		denied := kind == ofDenied
		eachKey(m.Hits, kind, func(rule uint32, key []byte, t totals) {
			for i, v := range t.value {
				s.admitted[storeKey{m.Hits.Rules[rule].Name, string(key), t.newest - t.age[i], denied}] += v
				if denied {
					s.ownDenied += v
				} else {
					s.own += v
				}
			}
		})
	}
	for _, n := range m.Late {
		s.late += n
	}
}

// answers returns the answers to what has come, each of the totals of its keys' buckets of this second and the last.
func (s *store) answers(t testing.TB) (payloads [][]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.waiting {
		a := &events.Refresh{Epoch: m.Epoch, Shard: m.Shard, Sequence: m.Sequence, Generation: 1, Version: m.Sequence}
		text := m.Hits.KeyText
		for i, n := range m.Hits.KeyLength {
			r := m.Hits.Rules[m.Hits.KeyRule[i]]
			for age := range int64(2) {
				a.Age = append(a.Age, age)
				a.Total = append(a.Total, s.admitted[storeKey{r.Name, string(text[:n]), r.Newest - age, r.Denied}])
			}
			a.KeyCells = append(a.KeyCells, 2)
			text = text[n:]
		}
		payload, err := events.Append(nil, a)
		if err != nil {
			t.Error(err)
		}
		payloads = append(payloads, payload)
	}
	s.waiting = nil
	return payloads
}

// elsewhere lets others admit and deny hits, and returns an alarm that says so.
func (s *store) elsewhere(t testing.TB, l *Limiter, key string, now int64, admitted, denied uint64) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	table := new(events.Table)
	for i, hits := range [...]uint64{denied, admitted} {
		rule := l.wire(now)
		rule.Denied = i == 0
		k := storeKey{rule.Name, key, rule.Newest, rule.Denied}
		s.admitted[k] += hits
		table.Rules = append(table.Rules, rule)
		table.AddKey(uint32(i), key)
		table.AddCell(0, s.admitted[k])
	}
	s.alarm++
	payload, err := events.Append(nil, &events.Alarm{Generation: 1, Version: s.alarm, Totals: table, Made: now})
	if err != nil {
		t.Error(err)
	}
	return payload
}

func newStore(t testing.TB, o Options, list ...rules.Rule) (*store, *Checker) {
	s := &store{admitted: make(map[storeKey]uint64)}
	o.Link, o.HelloEvery = s, time.Hour
	c := newChecker(t, o, list...)
	c.Step(noon)
	welcome, err := events.Append(nil, &events.Welcome{Epoch: c.Epoch(), Sent: noon, Shards: 1, Time: noon, Checkers: 4})
	if err != nil {
		t.Fatal(err)
	}
	c.Receive(noon, events.KindWelcome, welcome)
	return s, c
}

// settled reports and answers until nothing is on its way.
func (s *store) settled(t testing.TB, c *Checker, now int64) {
	for range 4 {
		now += 50 * ms
		c.behind.step(now, true)
		for _, a := range s.answers(t) {
			c.Receive(now, events.KindRefresh, a)
		}
	}
}

// TestConservation: at any time every charged hit is in exactly one place, and in the end all of them are with the
// aggregator, denied ones too; whatever forecasts let pass, and whichever rule denies.
func TestConservation(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		narrow := rule("narrow", 40, time.Second, 1)
		narrow.Key = []string{"ip"}
		s, c := newStore(t, Options{ReportKeys: 3}, rule("r", 200, time.Second, 1), narrow)
		l := limiter(t, c, "r")
		keys := [...]string{"a", "b", "c"}
		var allowed, denied, charged int64
		now := noon
		for range 3000 {
			now += r.Int64N(2 * ms)
			key := keys[r.IntN(len(keys))]
			cost := max(1, r.Int64N(12)-7)
			switch r.IntN(8) {
			case 0:
				c.Step(now)
			case 1:
				for _, a := range s.answers(t) {
					c.Receive(now, events.KindRefresh, a)
				}
			case 2:
				c.Receive(now, events.KindAlarm, s.elsewhere(t, l, key, now, r.Uint64N(5), r.Uint64N(5)))
			case 3:
				attrs := identity.Attributes{{Name: "user", Value: key}, {Name: "ip", Value: "192.0.2.1"}}
				if d := c.CheckAt(now, attrs, cost); d.Allowed {
					charged += 2 * cost
				}
			default:
				if d := l.CheckAt(now, key, cost); d.Allowed {
					allowed, charged = allowed+1, charged+cost
				} else if denied++; d.RetryAfter <= 0 {
					t.Fatalf("seed %d: %+v", seed, d)
				}
			}
			for _, rule := range c.Stats().Rules {
				if rule.Pending < 0 || rule.InFlight < 0 || rule.Answered < 0 || rule.Answered+rule.InFlight+rule.Pending != rule.Charged {
					t.Fatalf("seed %d: %+v", seed, rule)
				}
			}
		}
		s.settled(t, c, now)
		one, two := c.Stats().Rules[0], c.Stats().Rules[1]
		if got := one.Charged + two.Charged; got != charged || unreported(one)+unreported(two) != 0 {
			t.Errorf("seed %d: %d hits charged, %d admitted: %+v", seed, got, charged, one)
		}
		if got := s.own + s.late; got != uint64(charged) {
			t.Errorf("seed %d: the store has %d hits, %d were admitted", seed, got, charged)
		}
		if one.Allowed < allowed || one.Denied < denied {
			t.Errorf("seed %d: %d allowed and %d denied decisions: %+v", seed, allowed, denied, one)
		}
		if s.ownDenied == 0 || denied == 0 || allowed == 0 {
			t.Errorf("seed %d: nothing was denied (%d, %d told) or allowed (%d)", seed, denied, s.ownDenied, allowed)
		}
	}
}

// TestDeniedAreConserved: with one rule and hits of cost 1, those that are denied are told, each once, from the
// time on that there is a forecast.
func TestDeniedAreConserved(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	s, c := newStore(t, Options{}, rule("r", 100, time.Second, 1))
	l := limiter(t, c, "r")
	denied, now := uint64(0), noon
	for range 20_000 {
		now += r.Int64N(ms / 4)
		if !l.CheckAt(now, "k", 1).Allowed {
			denied++
		}
		switch r.IntN(30) {
		case 0:
			c.Step(now)
		case 1:
			for _, a := range s.answers(t) {
				c.Receive(now, events.KindRefresh, a)
			}
		}
	}
	s.settled(t, c, now)
	if got := c.Stats().Rules[0].Denied; got != int64(denied) || s.ownDenied != denied || denied < 10_000 {
		t.Errorf("%d denied: Stats has %d, the store %d", denied, got, s.ownDenied)
	}
}

// TestChecksWhileWordsComeIn: goroutines check a key near its limit while reports are made and answered, and alarms
// come. Each decision is counted once, and each hit is in one place.
func TestChecksWhileWordsComeIn(t *testing.T) {
	const tries, goroutines, steps = 4000, 4, 400
	s, c := newStore(t, Options{}, rule("r", 2000, time.Second, 1), rule("all", 1e9, time.Second, 1))
	l := limiter(t, c, "r")
	var clock, taken, allowed, denied, hits atomic.Int64
	clock.Store(noon)
	var checking, behind sync.WaitGroup
	done := make(chan struct{})
	behind.Go(func() {
		for i := uint64(0); ; i++ {
			select {
			case <-done:
				return
			default:
			}
			now := clock.Add(ms / 2)
			c.Step(now)
			for _, a := range s.answers(t) {
				c.Receive(now, events.KindRefresh, a)
			}
			c.Receive(now, events.KindAlarm, s.elsewhere(t, l, "hot", now, i%3, i%5))
			taken.Add(1)
		}
	})
	for g := range goroutines {
		checking.Go(func() {
			for i := 0; i < tries || taken.Load() < steps; i++ {
				cost := int64(1 + (g+i)%7/6)
				d := Decision{}
				if g == 0 && i%4 == 0 {
					d = c.CheckAt(clock.Load(), identity.Attributes{{Name: "user", Value: "hot"}}, cost)
				} else {
					d = l.CheckAt(clock.Load(), "hot", cost)
				}
				if d.Allowed {
					allowed.Add(1)
					hits.Add(cost)
				} else if denied.Add(1); d.RetryAfter <= 0 {
					t.Errorf("%+v", d)
				}
			}
		})
	}
	checking.Wait()
	close(done)
	behind.Wait()
	s.settled(t, c, clock.Load())
	got := c.Stats().Rules[0]
	if got.Allowed != allowed.Load() || got.Denied != denied.Load() || got.Charged != hits.Load() {
		t.Errorf("%+v; %d allowed, %d denied, %d hits", got, allowed.Load(), denied.Load(), hits.Load())
	}
	if got.Charged != got.Answered || unreported(got) != 0 {
		t.Errorf("not all is answered: %+v", got)
	}
}
