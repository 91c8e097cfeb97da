package oracle

import (
	"math"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

// Options make a Judge.
type Options struct {
	Rules []rules.Rule
	// From and To are the measured part, in Unix nanoseconds. Hits before and after it are counted,
	// since they are in the windows of others, but are in no figure.
	From, To int64
	// Steps is into how many the timeline is cut; 0 for none.
	Steps int
}

// Verdict is what a Judge found in the measured part.
type Verdict struct {
	Hits, Admitted, OracleAdmitted, Keys int64
	// Worst is the largest value of the rule's own count of all admitted hits ÷ limit − 1, at any
	// moment of the measured part and for any key; −1 if all were 0. RollingWorst is that of the
	// true rolling count, of any stretch of one window's length.
	Worst, RollingWorst             float64
	OracleWorst, OracleRollingWorst float64
	// Worst999 is like Worst, but leaves out the highest thousandth of the windows of all keys, of
	// those with an admitted hit; with fewer than 1,000 windows, none. They are aligned to the Unix
	// epoch, and rounded up to 0.01 % of the limit.
	Worst999 float64
	// Hits that were wrongly decided: by more than the band, and at all.
	WrongAllow, FalseDenial           int64
	WrongAllowExact, FalseDenialExact int64
	// Timeline holds, per step, the largest count of any key at any moment of it ÷ its limit.
	Timeline, OracleTimeline []float64
}

// Judge compares decisions with what would have been right. It is for one goroutine.
type Judge struct {
	o        Options
	limits   []limit
	keys     []*keyState
	timeline timeline
	peaks    *hdrhistogram.Histogram // of windows of all keys, in parts of the limit
	begun    bool                    // the measured part has
	v        Verdict
}

// Band is by how much a count may be off before a decision by it is called wrong: at saturation one
// count either way flips every decision, so a band of nothing measures noise.
func Band(limit int64) int64 {
	return max(1, int64(math.Round(0.02*float64(limit))))
}

// keyState is what is known of one key.
type keyState struct {
	rule                       int
	measured                   bool
	ours, oracle               counter
	oursRolling, oracleRolling rolling
	watched                    bool
	window                     int64   // the last one with an admitted hit
	peak                       float64 // the highest count in it ÷ limit; 0 if there was none
}

// partsOfLimit is the resolution of [Judge.peaks]: how many units a limit is. What is more than
// 1,000 limits counts as that.
const partsOfLimit = 10_000

// New returns a Judge.
func New(o Options) *Judge {
	j := &Judge{o: o, v: Verdict{Worst: -1, Worst999: -1, OracleWorst: -1, RollingWorst: -1, OracleRollingWorst: -1}}
	j.peaks = hdrhistogram.New(1, 1000*partsOfLimit, 4)
	for i := range o.Rules {
		j.limits = append(j.limits, limitOf(&o.Rules[i]))
	}
	j.timeline.init(o)
	return j
}

// Hit takes in one request, at a time in Unix nanoseconds not before that of the one before: for
// which key (a number, always under the same rule), its cost in hits, and what was decided. It
// returns the rule's own count of admitted hits of that key, these included if they were.
func (j *Judge) Hit(now int64, rule int, key int32, cost int64, allowed bool) float64 {
	k, l := j.key(rule, key), &j.limits[rule]
	measured := now >= j.o.From && now < j.o.To
	if measured {
		j.begin()
		j.timeline.moveTo(now, j)
		j.judge(k, l, cost, now, allowed)
	}
	oracleAllowed := k.oracle.admit(l, cost, now)
	if oracleAllowed {
		j.count(&k.oracle, &k.oracleRolling, l, cost, now, measured, &j.v.OracleWorst, &j.v.OracleRollingWorst)
	}
	if allowed {
		k.ours.add(l, cost, now)
		j.count(&k.ours, &k.oursRolling, l, cost, now, measured, &j.v.Worst, &j.v.RollingWorst)
		if measured {
			j.notePeak(k, l, now)
		}
	}
	ours := k.ours.count(l, now)
	if measured {
		j.tally(k, cost, allowed, oracleAllowed)
		j.timeline.note(key, k, ours/l.full, k.oracle.count(l, now)/l.full)
	}
	return ours
}

// Fits returns whether a request fits by what a checker knows that has not heard of so many
// admitted hits of the key. The time is not before that of the last hit.
func (j *Judge) Fits(now int64, rule int, key int32, cost, unknown int64) bool {
	return j.key(rule, key).ours.fits(&j.limits[rule], cost, -unknown, now)
}

// key returns what is known of a key.
func (j *Judge) key(rule int, key int32) *keyState {
	for int(key) >= len(j.keys) {
		j.keys = append(j.keys, nil)
	}
	if j.keys[key] == nil {
		j.keys[key] = &keyState{rule: rule}
	}
	return j.keys[key]
}

// notePeak notes how high a request that has just been admitted takes its window.
func (j *Judge) notePeak(k *keyState, l *limit, now int64) {
	if w := now / int64(l.shape.Length); w != k.window {
		j.keepPeak(k)
		k.window = w
	}
	k.peak = max(k.peak, k.ours.count(l, now)/l.full)
}

// keepPeak records the peak of a window that is over.
func (j *Judge) keepPeak(k *keyState) {
	if k.peak > 0 {
		_ = j.peaks.RecordValue(int64(math.Ceil(min(k.peak, 1000) * partsOfLimit))) // within the range
	}
	k.peak = 0
}

// begin takes in what the warm-up has left behind, once: counts may be highest at the very
// beginning.
func (j *Judge) begin() {
	if j.begun {
		return
	}
	j.begun = true
	j.timeline.moveTo(j.o.From, j)
	for key, k := range j.keys {
		if k == nil {
			continue
		}
		l := &j.limits[k.rule]
		share := func(c *counter, r *rolling, worst, rollingWorst *float64) float64 {
			count := c.count(l, j.o.From) / l.full
			*worst = max(*worst, count-1)
			*rollingWorst = max(*rollingWorst, float64(r.at(j.o.From, int64(l.shape.Length)))/float64(l.limit)-1)
			return count
		}
		ours := share(&k.ours, &k.oursRolling, &j.v.Worst, &j.v.RollingWorst)
		oracle := share(&k.oracle, &k.oracleRolling, &j.v.OracleWorst, &j.v.OracleRollingWorst)
		j.timeline.note(int32(key), k, ours, oracle)
	}
}

// judge holds a decision against the truth before it. If it is wrong, all hits of the request are.
func (j *Judge) judge(k *keyState, l *limit, cost, now int64, allowed bool) {
	if allowed {
		count, limit := k.ours.count(l, now)+float64(cost-1), l.full
		if l.shape.Kind == window.Leaky { // its turn had not come
			limit = 1e-9
		}
		if count >= limit {
			j.v.WrongAllowExact += cost
		}
		if count >= limit+float64(l.band) {
			j.v.WrongAllow += cost
		}
		return
	}
	if k.ours.fits(l, cost, 0, now) {
		j.v.FalseDenialExact += cost
	}
	if l.full > float64(l.band) && k.ours.fits(l, cost, l.band, now) {
		j.v.FalseDenial += cost
	}
}

// count notes a request that has just been admitted, and how high that takes its key.
func (j *Judge) count(
	c *counter, r *rolling, l *limit, cost, now int64, measured bool, worst, rollingWorst *float64,
) {
	rolled := r.add(now, int64(l.shape.Length), cost)
	if measured {
		*worst = max(*worst, c.count(l, now)/l.full-1)
		*rollingWorst = max(*rollingWorst, float64(rolled)/float64(l.limit)-1)
	}
}

func (j *Judge) tally(k *keyState, cost int64, allowed, oracleAllowed bool) {
	j.v.Hits += cost
	if allowed {
		j.v.Admitted += cost
	}
	if oracleAllowed {
		j.v.OracleAdmitted += cost
	}
	if !k.measured {
		k.measured = true
		j.v.Keys++
	}
}

// Limit returns the limit of a rule, by its index.
func (j *Judge) Limit(rule int) int64 { return j.limits[rule].limit }

// Verdict ends the measured part at a time, in Unix nanoseconds, and returns what was found.
func (j *Judge) Verdict(end int64) Verdict {
	if end > j.o.From {
		j.begin()
	}
	j.timeline.moveTo(min(end, j.o.To-1), j)
	for _, k := range j.keys {
		if k != nil {
			j.keepPeak(k)
		}
	}
	if windows := j.peaks.TotalCount(); windows > 0 {
		within := 100 * float64(windows-windows/1000) / float64(windows)
		j.v.Worst999 = float64(j.peaks.ValueAtQuantile(within))/partsOfLimit - 1
	}
	j.v.Timeline, j.v.OracleTimeline = j.timeline.ours, j.timeline.oracle
	return j.v
}
