package forecast

import "math/rand/v2"

// toy is a fleet as small as can be, of one key whose window is a second of one bucket: its checkers
// decide by what they know and by their forecasts, all report in every round, and words come a while after.
type toy struct {
	limit    float64
	f        Fleet
	round    int64
	delay    int64 // of words
	halves   bool  // two words of a round: the first of half of the reports
	checkers []*toyChecker
	words    []toyWord
	admitted seconds // what everybody has admitted
	denied   seconds
	random   *rand.Rand

	now         int64
	from, until int64   // when counts are looked at
	most, least float64 // count in that time
	wrong, hits float64 // hits denied that would have fitted with 2 % to spare, of all
}

// seconds are hits by the second.
type seconds map[int64]float64

type toyChecker struct {
	*Key
	base     seconds // as of the last word
	own      seconds
	reported seconds // of own, in base

	// What may be decided without a look, as a checker does: so many hits, all to pass or all to be denied, until
	// then. They are noted together.
	left, taken, until int64
	pass               bool
	part               float64
}

// toyWord is what a word will tell.
type toyWord struct {
	at, made      int64
	total, denied seconds
	own           []seconds // per checker
}

func newToy(checkers int, round int64) *toy {
	y := &toy{
		limit: 1000, f: of(float64(checkers)), round: round, delay: 3 * ms, now: noon,
		admitted: seconds{}, denied: seconds{}, random: rand.New(rand.NewPCG(11, 12)),
	}
	for i := range checkers {
		y.checkers = append(y.checkers, &toyChecker{
			Key:  New(noon, y.f, float64(i)/float64(checkers)),
			base: seconds{}, own: seconds{}, reported: seconds{},
		})
	}
	return y
}

// run lets traffic come for so long: perMs hits each ms, and where says at which checker a hit is.
func (y *toy) run(span int64, perMs float64, where func() int) {
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

// step does what is due half a ms after the last one: a round, or words.
func (y *toy) step(now int64) {
	y.now = now
	if now%y.round == 0 {
		y.report()
	}
	for len(y.words) > 0 && y.words[0].at <= now {
		for i, c := range y.checkers {
			y.tell(c, y.words[0], y.words[0].own[i])
		}
		y.words = y.words[1:]
	}
	if y.from <= now && now < y.until {
		y.least = min(y.least, y.admitted.count(now))
	}
}

// report sends words of this round on their way.
func (y *toy) report() {
	whole := toyWord{at: y.now + y.delay, made: y.now, total: y.admitted.copy(), denied: y.denied.copy()}
	half := toyWord{at: y.now + y.delay - 2*ms, made: y.now, total: y.admitted.copy(), denied: y.denied.copy()}
	for i, c := range y.checkers {
		y.settle(c)
		c.Reported(y.now, y.f)
		whole.own = append(whole.own, c.own.copy())
		if i%2 == 0 {
			half.own = append(half.own, c.own.copy())
			continue
		}
		half.own = append(half.own, c.reported.copy())
		for s, n := range c.own {
			half.total[s] -= n - c.reported[s]
		}
	}
	if y.halves {
		y.words = append(y.words, half)
	}
	y.words = append(y.words, whole)
}

// tell hands a word to a checker, whose own hits in it are given.
func (y *toy) tell(c *toyChecker, w toyWord, own seconds) {
	y.settle(c)
	s := w.made / 1e9
	before := c.known(s) + c.known(s-1)
	c.base, c.reported = w.total.copy(), own.copy()
	c.Look(y.now, y.window(c), y.f)
	c.Told(Word{
		Now: y.now, Made: w.made, Round: y.round, Bucket: s, Admitted: Totals{int64(w.total[s]), int64(w.total[s-1])},
		Denied: Totals{int64(w.denied[s]), int64(w.denied[s-1])}, DeniedToo: true, Since: (s - 1) * 1e9,
		News: max(c.known(s)+c.known(s-1)-before, 0),
	}, y.f)
	c.Look(y.now, y.window(c), y.f)
}

// hit decides for one hit at a checker.
func (y *toy) hit(c *toyChecker) {
	passes := c.pass
	if c.left > 0 && y.now < c.until {
		c.left--
		c.taken++
	} else {
		passes = y.look(c)
	}
	s := y.now / 1e9
	if passes {
		c.own[s]++
		y.admitted[s]++
	} else {
		y.denied[s]++
	}
	if y.from > y.now || y.now >= y.until {
		return
	}
	y.hits++
	if count := y.admitted.count(y.now); passes {
		y.most = max(y.most, count)
	} else if count+1 <= 0.98*y.limit {
		y.wrong++
	}
}

// look decides for one hit by the forecast, and for how many more that is decided.
func (y *toy) look(c *toyChecker) bool {
	y.settle(c)
	w := y.window(c)
	o := c.Look(y.now, w, y.f)
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
func (y *toy) settle(c *toyChecker) {
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

// watch lets counts be looked at from now on, for so long.
func (y *toy) watch(span int64) {
	y.from, y.until = y.now, y.now+span
	y.most, y.least, y.wrong, y.hits = 0, y.limit, 0, 0
}

func (c *toyChecker) known(s int64) float64 { return c.base[s] + c.own[s] - c.reported[s] }

func (y *toy) window(c *toyChecker) Window {
	s := y.now / 1e9
	known := seconds{s: c.known(s), s - 1: c.known(s - 1)}
	return Window{
		Limit: y.limit, Pace: y.limit / 1e9, Free: y.limit - known.count(y.now), Freed: c.known(s-1) / 1e9,
		Unreported: c.own[s] + c.own[s-1] - c.reported[s] - c.reported[s-1],
	}
}

// count is the window's count: the oldest bucket counts by the share of it that lies in the window.
func (s seconds) count(now int64) float64 {
	return s[now/1e9] + s[now/1e9-1]*(1-float64(now%1e9)/1e9)
}

func (s seconds) copy() seconds {
	c := seconds{}
	for k, v := range s {
		c[k] = v
	}
	return c
}
