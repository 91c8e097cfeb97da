package forecast

import "math/rand/v2"

// fleet simulates checkers that share one key, whose window is a second of one bucket. They decide
// by what they know and by their forecasts, all report in every round, and updates come a while
// after.
type fleet struct {
	Fleet
	round    int64
	halves   bool // two updates of a round: the first of half of the reports
	checkers []*checker
	updates  []message
	total    counted // what everybody has admitted and denied
	random   *rand.Rand

	now         int64
	from, until int64   // when counts are looked at
	most, least float64 // count in that time
	wrong, hits float64 // hits denied that would have fitted with 2 % to spare, of all
}

const limit = 1000.0

// seconds are hits by the second, from the one before noon on.
type seconds [8]float64

type counted struct{ admitted, denied seconds }

type checker struct {
	*Key
	base     seconds // as of the last update
	own      seconds
	reported seconds // of own, in base

	// What may be decided without a look, as a checker does: so many hits, all to pass or all to be
	// denied, until then. They are noted together.
	left, taken, until int64
	pass               bool
	part               float64
}

// message is what an update will tell.
type message struct {
	counted
	at, made int64
	own      []seconds // per checker
}

func newFleet(checkers int, round int64) *fleet {
	y := &fleet{Fleet: of(float64(checkers)), round: round, now: noon, random: rand.New(rand.NewPCG(11, 12))}
	for i := range checkers {
		phase := float64(i) / float64(checkers)
		y.checkers = append(y.checkers, &checker{Key: New(noon, y.Fleet, phase, 1)})
	}
	return y
}

// run lets traffic come for so long: perMs hits each ms, and where says at which checker a hit is.
func (y *fleet) run(span int64, perMs float64, where func() int) {
	for end := y.now + span; ; {
		next := y.now + int64(y.random.ExpFloat64()/perMs*1e6)
		for at := y.now - y.now%(ms/2) + ms/2; at <= min(next, end); at += ms / 2 {
			y.step(at)
		}
		if next >= end {
			y.now = end
			return
		}
		y.now = next
		y.hit(y.checkers[where()])
	}
}

// step does what is due half a ms after the last one: a round, or updates.
func (y *fleet) step(now int64) {
	y.now = now
	if now%y.round == 0 {
		y.report()
	}
	for len(y.updates) > 0 && y.updates[0].at <= now {
		for i, c := range y.checkers {
			y.tell(c, y.updates[0], y.updates[0].own[i])
		}
		y.updates = y.updates[1:]
	}
	if y.from <= now && now < y.until {
		y.least = min(y.least, y.total.admitted.count(now))
	}
}

// report sends updates of this round on their way.
func (y *fleet) report() {
	whole := message{counted: y.total, at: y.now + 3*ms, made: y.now}
	half := message{counted: y.total, at: y.now + ms, made: y.now}
	for i, c := range y.checkers {
		y.settle(c)
		c.Reported(y.now, y.Fleet)
		whole.own = append(whole.own, c.own)
		if i%2 == 0 {
			half.own = append(half.own, c.own)
			continue
		}
		half.own = append(half.own, c.reported)
		for s, n := range c.own {
			half.admitted[s] -= n - c.reported[s]
		}
	}
	if y.halves {
		y.updates = append(y.updates, half)
	}
	y.updates = append(y.updates, whole)
}

// tell hands an update to a checker, whose own hits in it are given.
func (y *fleet) tell(c *checker, m message, own seconds) {
	y.settle(c)
	s := second(m.made)
	before := c.known(s) + c.known(s-1)
	c.base, c.reported = m.admitted, own
	c.Look(y.now, y.window(c), y.Fleet)
	totals := func(n seconds) Totals { return Totals{n[s], n[s-1]} }
	c.Observe(Update{
		Now: y.now, Made: m.made, Round: y.round, Bucket: m.made / 1e9, Since: (m.made/1e9 - 1) * 1e9,
		Admitted: totals(m.admitted), Denied: totals(m.denied), DeniedToo: true,
		News: max(c.known(s)+c.known(s-1)-before, 0),
	}, y.Fleet)
	c.Look(y.now, y.window(c), y.Fleet)
}

// hit decides for one hit at a checker.
func (y *fleet) hit(c *checker) {
	passes := c.pass
	if c.left > 0 && y.now < c.until {
		c.left--
		c.taken++
	} else {
		passes = y.look(c)
	}
	if s := second(y.now); passes {
		c.own[s]++
		y.total.admitted[s]++
	} else {
		y.total.denied[s]++
	}
	if y.from > y.now || y.now >= y.until {
		return
	}
	y.hits++
	if count := y.total.admitted.count(y.now); passes {
		y.most = max(y.most, count)
	} else if count+1 <= 0.98*limit {
		y.wrong++
	}
}

// look decides for one hit by the forecast, and for how many more that is decided.
func (y *fleet) look(c *checker) bool {
	y.settle(c)
	w := y.window(c)
	o := c.Look(y.now, w, y.Fleet)
	c.part = o.Part
	c.pass = w.Free >= 1 && (o.Part >= 1 || c.Pass(o.Part, 1))
	if !c.pass {
		c.Note(y.now, 1, 0)
		c.left, c.until = c.Denials(o.Part), y.now+4*ms
	} else if c.Note(y.now, 1, 1); o.Part >= 1 {
		var span int64
		c.left, span = c.Ease()
		c.left, c.until = min(c.left, int64(w.Free)-1), y.now+min(span, 1e9-y.now%1e9)
	}
	return c.pass
}

// settle notes what was decided without a look.
func (y *fleet) settle(c *checker) {
	n := c.taken
	c.taken, c.left = 0, 0
	switch {
	case n == 0:
	case c.pass:
		c.Note(y.now, n, n)
	default:
		c.Denied(c.part, n)
		c.Note(y.now, n, 0)
	}
}

func (c *checker) known(second int) float64 {
	return c.base[second] + c.own[second] - c.reported[second]
}

func (y *fleet) window(c *checker) Window {
	s := second(y.now)
	known := seconds{}
	known[s], known[s-1] = c.known(s), c.known(s-1)
	return Window{
		Limit: limit, Pace: limit / 1e9, Free: limit - known.count(y.now), Freed: c.known(s-1) / 1e9,
		Unreported: c.own[s] + c.own[s-1] - c.reported[s] - c.reported[s-1],
	}
}

func second(now int64) int { return int((now-noon)/1e9) + 1 }

// count is the window's count: the oldest bucket counts by the share of it that lies in the window.
func (s *seconds) count(now int64) float64 {
	i := second(now)
	return s[i] + s[i-1]*(1-float64(now%1e9)/1e9)
}

func (s *seconds) sum() (n float64) {
	for _, hits := range s {
		n += hits
	}
	return n
}
