package accesslog

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// PlanOptions say how a log is replayed.
type PlanOptions struct {
	// Seed decides where in its second each hit falls. One seed makes one plan.
	Seed uint64
	// MaxGap is the longest silence, in the log's time: a longer one is cut to it. 0 keeps all.
	MaxGap time.Duration
	// Whole, if not 0, is the unit in which silences are shortened, so that later hits keep their
	// phase against the edges of a window of this length.
	Whole time.Duration
	// Group, if not nil, names the client that a logged client belongs to. It gets Entry.Client,
	// and is called once for each.
	Group func(client string) string
	// Speed is how many times faster than the log; 1 is as it was. It must be above 0.
	Speed float64
}

// Plan says which client hits when.
type Plan struct {
	Clients []string // in the order of the file
	Hits    []Hit    // in the order of time; those of one moment in that of the file

	// Start is the moment of the first hit, in the log's time.
	Start time.Time
	// Span is from the first hit to the last in the log's time; Kept is what is left of it when
	// silences are cut.
	Span, Kept time.Duration
}

// Hit is one request of a plan.
type Hit struct {
	At     time.Duration // since the first hit: silences are cut, and the speed is in it
	Client int           // index into Clients
}

// Length is how long the replay takes: the moment of its last hit.
func (p Plan) Length() time.Duration {
	if len(p.Hits) == 0 {
		return 0
	}
	return p.Hits[len(p.Hits)-1].At
}

// Plan orders the entries in time. A log knows only seconds, so each hit is put at a random moment
// of its second. Then silences are cut, and then the speed applies. The result depends on nothing
// but the log and the options.
func (l Log) Plan(o PlanOptions) (Plan, error) {
	first, err := l.firstSecond()
	if err != nil {
		return Plan{}, fmt.Errorf("plan replay: %w", err)
	}
	var p Plan
	p.Clients, p.Hits = l.spread(first, o.Seed, o.Group)
	p.Start = time.Unix(first, 0).UTC().Add(p.Hits[0].At)
	p.Span = p.Length() - p.Hits[0].At
	p.cut(o.MaxGap, o.Whole)
	p.Kept = p.Length()
	if err := p.accelerate(o.Speed); err != nil {
		return Plan{}, fmt.Errorf("plan replay: %w", err)
	}
	return p, nil
}

// firstSecond returns the earliest entry's, since 1970.
func (l Log) firstSecond() (int64, error) {
	if len(l.Entries) == 0 {
		return 0, errors.New("the log has no entries")
	}
	byTime := func(a, b Entry) int { return a.Time.Compare(b.Time) }
	first, last := slices.MinFunc(l.Entries, byTime), slices.MaxFunc(l.Entries, byTime)
	if last.Time.Unix()-first.Time.Unix() >= int64(math.MaxInt64/time.Second) {
		return 0, fmt.Errorf("line %d and line %d are more than 292 years apart", first.Line, last.Line)
	}
	return first.Time.Unix(), nil
}

// spread returns the hits in order, At being the time since the second that the log begins with.
func (l Log) spread(first int64, seed uint64, group func(string) string) (clients []string, hits []Hit) {
	random := rand.New(rand.NewPCG(seed, 0))
	logged, grouped := make(map[string]int), make(map[string]int) // numbers, by name
	hits = make([]Hit, len(l.Entries))
	for i, entry := range l.Entries {
		number, known := logged[entry.Client]
		if !known {
			name := entry.Client
			if group != nil {
				name = group(name)
			}
			if number, known = grouped[name]; !known {
				number = len(clients)
				grouped[name], clients = number, append(clients, name)
			}
			logged[entry.Client] = number
		}
		second := time.Duration(entry.Time.Unix()-first) * time.Second
		hits[i] = Hit{second + time.Duration(random.Int64N(int64(time.Second))), number}
	}
	slices.SortStableFunc(hits, func(a, b Hit) int { return cmp.Compare(a.At, b.At) })
	return clients, hits
}

// cut moves the first hit to 0, and every other one closer to the one before, by a multiple of
// whole, if they are too far apart.
func (p *Plan) cut(longest, whole time.Duration) {
	before, at := p.Hits[0].At, time.Duration(0)
	for i := range p.Hits {
		gap := p.Hits[i].At - before
		before = p.Hits[i].At
		if longest > 0 && gap > longest {
			gap -= (gap - longest).Truncate(max(whole, 1))
		}
		at += gap
		p.Hits[i].At = at
	}
}

// accelerate divides all times by speed.
func (p *Plan) accelerate(speed float64) error {
	if speed == 1 { // exact, also where a float64 is not
		return nil
	}
	if float64(p.Length())/speed >= math.MaxInt64 {
		return fmt.Errorf("speed %v: the replay would take more than 292 years", speed)
	}
	for i := range p.Hits {
		p.Hits[i].At = time.Duration(float64(p.Hits[i].At) / speed)
	}
	return nil
}
