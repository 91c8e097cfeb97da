package scenario

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"time"
)

// Hit is one request.
type Hit struct {
	At      int64 // nanoseconds since the start of the warm-up
	Key     int32 // its number among all keys of the traffic
	Checker int32
	Cost    int32 // in hits
}

// Traffic is a sequence of hits. It is for one goroutine.
type Traffic struct {
	end     int64
	streams []*stream
	fixed   *fixedStream
	owners  []int32 // stream of each key that was new with its hit
	texts   []string
	known   int // keys that are known from the beginning
}

// New returns the scenario's traffic. The same seed gives the same. The scenario must be valid.
func New(s *Scenario, seed uint64) *Traffic {
	t := &Traffic{end: int64(s.Warmup + s.Duration)}
	if s.Fixed != nil {
		t.fixed = &fixedStream{plan: s.Fixed, route: router{
			Route: s.Fixed.Route, checkers: s.Checkers, rand: rand.New(rand.NewPCG(seed, 0)),
		}}
		t.known = len(s.Fixed.Keys)
		t.texts = s.Fixed.Keys
		return t
	}
	for i := range s.Streams {
		st := newStream(&s.Streams[i], i, t.known, s.Checkers, seed)
		st.last = t.end
		t.known += st.Keys
		t.streams = append(t.streams, st)
	}
	t.texts = make([]string, t.known)
	for _, st := range t.streams {
		st.advance()
	}
	return t
}

// Next returns the next hit; ok is false if there is none any more.
func (t *Traffic) Next() (h Hit, ok bool) {
	if t.fixed != nil {
		return t.fixed.next()
	}
	first := t.streams[0]
	for _, s := range t.streams[1:] {
		if s.at < first.at {
			first = s
		}
	}
	if first.at >= t.end {
		return Hit{}, false
	}
	h.At, h.Key = first.at, t.pick(first)
	h.Checker, h.Cost = first.route.choose(h.At, h.Key), first.cost()
	first.advance()
	return h, true
}

func (t *Traffic) pick(s *stream) int32 {
	switch {
	case s.Keys == 0:
		t.owners = append(t.owners, int32(s.number))
		t.texts = append(t.texts, "")
		return int32(len(t.texts) - 1)
	case s.zipf != nil:
		return int32(s.base + int(s.zipf.Uint64()))
	}
	return int32(s.base + s.rand.IntN(s.Keys))
}

// cost draws what the next hit costs.
func (s *stream) cost() int32 {
	if s.Cost.Most <= s.Cost.Least {
		return max(s.Cost.Least, 1)
	}
	return s.Cost.Least + s.rand.Int32N(s.Cost.Most-s.Cost.Least+1)
}

// Rule returns the index of the rule that a key of this traffic is under.
func (t *Traffic) Rule(key int32) int {
	if t.fixed != nil {
		return 0
	}
	return t.owner(key).Rule
}

// Text returns a key's text; the same string each time.
func (t *Traffic) Text(key int32) string {
	if t.texts[key] == "" && t.fixed == nil {
		s := t.owner(key)
		b := append(make([]byte, 0, 16), 'a'+byte(s.number), ':')
		b = strconv.AppendInt(b, int64(key)-int64(s.base), 10)
		t.texts[key] = string(b)
	}
	return t.texts[key]
}

// Busiest returns, of each stream, the n keys that are hit most, or any n if all are as popular;
// none of those that are new with each hit.
func (t *Traffic) Busiest(n int) []int32 {
	var keys []int32
	if t.fixed != nil {
		return t.fixed.busiest(n)
	}
	for _, s := range t.streams {
		for i := range min(n, s.Keys) {
			keys = append(keys, int32(s.base+i))
		}
	}
	return keys
}

func (t *Traffic) owner(key int32) *stream {
	if int(key) >= t.known {
		return t.streams[t.owners[int(key)-t.known]]
	}
	i := 0
	for int(key) >= t.streams[i].base+t.streams[i].Keys {
		i++
	}
	return t.streams[i]
}

// stream draws the hits of one Stream.
type stream struct {
	*Stream
	number int
	base   int // number of its first key
	rand   *rand.Rand
	zipf   *zipf
	route  router

	last       int64 // the end of all hits
	at         int64 // of the next hit; what is later than last does not come
	phase      int
	begin, end int64 // of the phase
}

func newStream(s *Stream, number, base, checkers int, seed uint64) *stream {
	r := rand.New(rand.NewPCG(seed, uint64(number)))
	st := &stream{Stream: s, number: number, base: base, rand: r, phase: -1}
	st.route = router{Route: s.Route, checkers: checkers, rand: r}
	if s.Keys == 0 {
		st.base = 0
	}
	if s.Zipf > 0 && s.Keys > 1 {
		st.zipf = rand.NewZipf(r, s.Zipf, 1, uint64(s.Keys-1))
	}
	return st
}

type zipf = rand.Zipf

// forever is the time of a hit that never comes.
const forever = int64(1<<63 - 1)

// advance draws the time of the next hit: a Poisson process at the phase's highest rate, thinned to
// the rate of the moment.
func (s *stream) advance() {
	if !s.everHits() {
		s.at = forever
		return
	}
	for s.at < s.last {
		if s.at >= s.end || s.phase < 0 {
			s.enterPhase()
			continue
		}
		p := s.Phases[s.phase]
		highest := max(p.From, p.To)
		gap := s.rand.ExpFloat64() * s.Cost.mean() / highest * float64(time.Second)
		if highest == 0 || !(gap < float64(s.end-s.at)) {
			s.at = s.end // the process has no memory: it may begin anew here
			continue
		}
		s.at += int64(gap)
		if p.From == p.To || s.rand.Float64()*highest < s.rate(p) {
			return
		}
	}
}

func (s *stream) rate(p Phase) float64 {
	part := float64(s.at-s.begin) / float64(s.end-s.begin)
	return p.From + part*(p.To-p.From)
}

func (s *stream) enterPhase() {
	s.phase = (s.phase + 1) % len(s.Phases)
	p := s.Phases[s.phase]
	length := int64(p.Least)
	if more := int64(p.Most - p.Least); more > 0 {
		length += s.rand.Int64N(more)
	}
	s.begin, s.end = s.end, s.end+length
	s.at = s.begin
}

func (s *stream) everHits() bool {
	for _, p := range s.Phases {
		if p.From > 0 || p.To > 0 {
			return true
		}
	}
	return false
}

// fixedStream hands out a plan.
type fixedStream struct {
	plan  *Fixed
	given int
	route router
}

func (f *fixedStream) next() (Hit, bool) {
	if f.given == len(f.plan.Hits) {
		return Hit{}, false
	}
	h := f.plan.Hits[f.given]
	f.given++
	hit := Hit{At: int64(h.At), Key: int32(h.Key), Cost: 1}
	hit.Checker = f.route.choose(hit.At, hit.Key)
	return hit, true
}

func (f *fixedStream) busiest(n int) []int32 {
	hits := make([]int, len(f.plan.Keys))
	keys := make([]int32, len(f.plan.Keys))
	for i := range keys {
		keys[i] = int32(i)
	}
	for _, h := range f.plan.Hits {
		hits[h.Key]++
	}
	slices.SortStableFunc(keys, func(a, b int32) int { return hits[b] - hits[a] })
	return keys[:min(n, len(keys))]
}
