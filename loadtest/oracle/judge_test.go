package oracle

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

const ms = int64(time.Millisecond)

// noon is the beginning of a window of any length.
var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC).UnixNano()

func rule(limit int64, length time.Duration, buckets int, fixed bool) rules.Rule {
	return rules.Rule{Name: "r", Key: []string{"k"}, Limit: limit, Window: window.Shape{Length: length, Buckets: buckets, Fixed: fixed}}
}

// step is some hits at one moment that were all decided alike, and what is known after them.
type step struct {
	at      time.Duration
	hits    int
	allowed bool
	count   float64 // the rule's own count of admitted hits
	why     string
}

// TestJudge: the judge goes by each algorithm's own arithmetic, on all hits. For fixed and sliding
// windows, TestJudgeAgainstDefinitions says so.
func TestJudge(t *testing.T) {
	of := func(kind window.Kind, limit, burst int64) rules.Rule {
		return rules.Rule{Name: "r", Key: []string{"k"}, Limit: limit, Burst: burst, Window: window.Shape{
			Length: time.Second, Buckets: 10, Kind: kind,
		}}
	}
	for _, test := range []struct {
		name  string
		rule  rules.Rule
		steps []step
		want  Verdict
	}{
		{
			"a log keeps all of a bucket that touches the window", of(window.Log, 10, 0),
			[]step{
				{50 * time.Millisecond, 10, true, 10, "these fit"},
				{1090 * time.Millisecond, 1, false, 10, "right, though all have left by their own times"},
				{1100 * time.Millisecond, 1, true, 1, "fits"},
			},
			Verdict{Hits: 12, Admitted: 11, OracleAdmitted: 11, Keys: 1},
		},
		{
			"a token bucket", of(window.Token, 10, 100),
			[]step{
				{0, 100, true, 100, "all its tokens"},
				{0, 1, true, 101, "wrong, but within the band of 2"},
				{0, 2, true, 103, "one within, one not"},
				{500 * time.Millisecond, 1, false, 98, "within the band: 5 have drained since they came"},
				{10 * time.Second, 1, false, 3, "wrong: almost empty"},
			},
			Verdict{
				Hits: 105, Admitted: 103, OracleAdmitted: 102, Keys: 1, Worst: 0.03, Worst999: 0.03, RollingWorst: 9.3, OracleRollingWorst: 9.1,
				WrongAllow: 1, WrongAllowExact: 3, FalseDenial: 1, FalseDenialExact: 2,
			},
		},
		{
			"a leaky bucket is exact", of(window.Leaky, 20, 5),
			[]step{
				{0, 1, true, 1, "the first"},
				{20 * time.Millisecond, 1, false, 0.6, "right: its turn is at 50 ms"},
				{50 * time.Millisecond, 1, true, 1, "right"},
				{60 * time.Millisecond, 3, true, 3.8, "wrong, each by 0.8 hits more; one is beyond a bucket's 2 and 1"},
				{900 * time.Millisecond, 1, false, 0, "wrong"},
			},
			Verdict{
				Hits: 7, Admitted: 5, OracleAdmitted: 3, Keys: 1, Worst: 3.8/3 - 1, Worst999: 3.8/3 - 1, OracleWorst: 1.0/3 - 1, RollingWorst: -0.75, OracleRollingWorst: -0.85,
				WrongAllow: 0, WrongAllowExact: 3, FalseDenialExact: 1, FalseDenial: 0,
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			j := New(Options{Rules: []rules.Rule{test.rule}, From: noon, To: noon + int64(time.Hour)})
			for _, s := range test.steps {
				var count float64
				for range s.hits {
					count = j.Hit(noon+int64(s.at), 0, 0, 1, s.allowed)
				}
				if math.Abs(count-s.count) > 1e-6 {
					t.Fatalf("after %v (%s) the count is %v, want %v", s.at, s.why, count, s.count)
				}
			}
			same(t, j.Verdict(noon+int64(time.Hour)), test.want)
		})
	}
}

// same holds that two verdicts are the same, but for rounding and the timelines.
func same(t *testing.T, got, want Verdict) {
	t.Helper()
	got.Timeline, got.OracleTimeline = nil, nil
	for _, pair := range [][2]*float64{
		{&got.Worst, &want.Worst}, {&got.OracleWorst, &want.OracleWorst},
		{&got.Worst999, &want.Worst999}, {&got.RollingWorst, &want.RollingWorst}, {&got.OracleRollingWorst, &want.OracleRollingWorst},
	} {
		slack := 1e-9
		if pair[0] == &got.Worst999 {
			slack = 1e-3 * (1 + want.Worst999)
		}
		if math.Abs(*pair[0]-*pair[1]) <= slack {
			*pair[0] = *pair[1]
		}
	}
	if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
		t.Fatalf("got  %+v\nwant %+v", got, want)
	}
}

// TestJudgeAgainstDefinitions: random hits and decisions, and every figure once more as it is
// defined, from the list of all hits, without keeping counts.
func TestJudgeAgainstDefinitions(t *testing.T) {
	shapes := []rules.Rule{
		rule(5, time.Second, 1, false), rule(5, time.Second, 1, true), rule(30, 2*time.Second, 4, false),
		rule(200, time.Second, 10, false), rule(1, 100*time.Millisecond, 1, false),
	}
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		one := shapes[seed%uint64(len(shapes))]
		from := noon + 300*ms
		j := New(Options{Rules: []rules.Rule{one}, From: from, To: noon + int64(time.Minute)})
		d := definitions{rule: one}
		want := Verdict{Worst: -1, Worst999: -1, OracleWorst: -1, RollingWorst: -1, OracleRollingWorst: -1}
		keys := make(map[int32]bool)
		now := noon + r.Int64N(int64(time.Second))
		begun := false
		for range 600 {
			now += int64(r.ExpFloat64() * float64(one.Window.Length) / float64(one.Limit) / 3)
			key, allowed := int32(r.IntN(2)), r.IntN(3) > 0
			if !begun && now >= from {
				begun = true
				d.begin(from, &want)
			}
			cost := int64(1)
			if seed%2 > 0 {
				cost += r.Int64N(one.Limit)
			}
			d.hit(now, key, cost, allowed, now >= from, &want)
			if now >= from {
				keys[key] = true
			}
			if got, count := j.Hit(now, 0, key, cost, allowed), d.count(d.ours, now, key); math.Abs(got-count) > 1e-6 {
				t.Fatalf("seed %d: the count is %v, want %v", seed, got, count)
			}
		}
		want.Keys = int64(len(keys))
		t.Run(fmt.Sprint(seed, one.Window), func(t *testing.T) { same(t, j.Verdict(now), want) })
	}
}

// definitions keeps every hit and counts anew each time.
type definitions struct {
	rule   rules.Rule
	ours   []pastHit
	oracle []pastHit
}

type pastHit struct {
	at   int64
	key  int32
	cost int64
}

// count is the rule's own count at a time, by definition: each hit weighs 1 while its bucket is
// whole in the window, and as its bucket's share of the window after that.
func (d *definitions) count(list []pastHit, now int64, key int32) float64 {
	s := d.rule.Window
	size := int64(s.Length) / int64(s.Buckets)
	if s.Fixed {
		size = int64(s.Length)
	}
	sum := 0.0
	for _, h := range list {
		if h.key != key {
			continue
		}
		age := now/size - h.at/size
		switch {
		case age < int64(s.Buckets):
			sum += float64(h.cost)
		case age == int64(s.Buckets) && !s.Fixed:
			sum += float64(h.cost) * float64(size-now%size) / float64(size)
		}
	}
	return sum
}

// begin takes the counts at the beginning of the measured part, for the two keys that there are.
func (d *definitions) begin(from int64, v *Verdict) {
	limit := float64(d.rule.Limit)
	for key := range int32(2) {
		v.Worst = max(v.Worst, d.count(d.ours, from, key)/limit-1)
		v.RollingWorst = max(v.RollingWorst, d.rolling(d.ours, from, key)/limit-1)
		v.OracleWorst = max(v.OracleWorst, d.count(d.oracle, from, key)/limit-1)
		v.OracleRollingWorst = max(v.OracleRollingWorst, d.rolling(d.oracle, from, key)/limit-1)
	}
}

func (d *definitions) rolling(list []pastHit, now int64, key int32) float64 {
	n := 0.0
	for _, h := range list {
		if h.key == key && h.at > now-int64(d.rule.Window.Length) {
			n += float64(h.cost)
		}
	}
	return n
}

func (d *definitions) hit(now int64, key int32, cost int64, allowed, measured bool, v *Verdict) {
	const tiny = 1e-9
	limit := float64(d.rule.Limit)
	band := math.Max(1, math.Round(limit*0.02))
	count := d.count(d.ours, now, key)
	last := count + float64(cost)
	oracleAllowed := d.count(d.oracle, now, key)+float64(cost) <= limit+tiny
	tell := func(list []pastHit, worst, rolling *float64) {
		if measured {
			*worst = max(*worst, d.count(list, now, key)/limit-1)
			*rolling = max(*rolling, d.rolling(list, now, key)/limit-1)
		}
	}
	one := func(is bool, n *int64) {
		if is && measured {
			*n += cost
		}
	}
	one(true, &v.Hits)
	one(allowed, &v.Admitted)
	one(oracleAllowed, &v.OracleAdmitted)
	one(allowed && last-1 >= limit-tiny, &v.WrongAllowExact)
	one(allowed && last-1 >= limit+band-tiny, &v.WrongAllow)
	one(!allowed && last <= limit+tiny, &v.FalseDenialExact)
	one(!allowed && last <= limit-band+tiny, &v.FalseDenial)
	if allowed {
		d.ours = append(d.ours, pastHit{now, key, cost})
		tell(d.ours, &v.Worst, &v.RollingWorst)
		if measured { // there are fewer than 1,000 windows
			v.Worst999 = max(v.Worst999, d.count(d.ours, now, key)/limit-1)
		}
	}
	if oracleAllowed {
		d.oracle = append(d.oracle, pastHit{now, key, cost})
		tell(d.oracle, &v.OracleWorst, &v.OracleRollingWorst)
	}
}

// TestWorst999: one window of each 1,000 may be worse, and no more.
func TestWorst999(t *testing.T) {
	for _, test := range []struct {
		windows, worse int
		want           float64
	}{
		{1000, 0, -0.9}, {1000, 1, -0.9}, {1000, 2, 0.5}, {1, 1, 0.5}, {999, 1, 0.5}, {999, 0, -0.9},
		{1999, 1, -0.9}, {1999, 2, 0.5}, {2000, 2, -0.9}, {2000, 3, 0.5},
	} {
		j := New(Options{Rules: []rules.Rule{rule(10, time.Second, 1, true)}, From: noon, To: noon + int64(time.Hour)})
		for n := range test.windows {
			now, key, cost := noon+int64(n/2)*int64(time.Second), int32(n%2), int64(1)
			if n < test.worse {
				cost = 15
			}
			j.Hit(now, 0, key, cost, true)
			j.Hit(now, 0, key, 100, false) // takes no window higher
		}
		if got := j.Verdict(noon + int64(time.Hour)).Worst999; math.Abs(got-test.want) > 1e-3 {
			t.Errorf("%d of %d are worse: %v, want %v", test.worse, test.windows, got, test.want)
		}
	}
}

func TestTimeline(t *testing.T) {
	// A fixed window of 1 s, limit 10, and steps of half a second: a count stays until its window
	// ends, whether or not there are hits.
	j := New(Options{Rules: []rules.Rule{rule(10, time.Second, 1, true)}, From: noon, To: noon + 3*int64(time.Second), Steps: 6})
	for range 12 {
		j.Hit(noon+600*ms, 0, 0, 1, true)
	}
	j.Hit(noon+2600*ms, 0, 1, 1, true)
	v := j.Verdict(noon + 3*int64(time.Second))
	if got := fmt.Sprint(v.Timeline, v.OracleTimeline); got != "[0 1.2 0 0 0 0.1] [0 1 0 0 0 0.1]" {
		t.Errorf("got %s", got)
	}

	// A sliding one: what was admitted fades, and the step in which nothing comes still shows it.
	j = New(Options{Rules: []rules.Rule{rule(10, time.Second, 1, false)}, From: noon, To: noon + 3*int64(time.Second), Steps: 6})
	for range 10 {
		j.Hit(noon+100*ms, 0, 0, 1, true)
	}
	v = j.Verdict(noon + 3*int64(time.Second))
	if want := "[1 1 1 0.5 0 0]"; fmt.Sprint(v.Timeline) != want {
		t.Errorf("got %v, want %v", v.Timeline, want)
	}
}

func TestBand(t *testing.T) {
	for limit, want := range map[int64]int64{1: 1, 10: 1, 74: 1, 75: 2, 100: 2, 1000: 20} {
		if got := Band(limit); got != want {
			t.Errorf("band of %d is %d, want %d", limit, got, want)
		}
	}
}
