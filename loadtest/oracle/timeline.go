package oracle

// timeline is the largest count of any key, step by step.
type timeline struct {
	from, to     int64
	steps        int
	ours, oracle []float64 // one per step that has begun
	watched      []int32   // keys that may be the largest of a step in which they have no hit
}

// Keys whose counts are above watchFrom of their limit are looked at anew at the beginning of each
// step, until they are below watchUntil: between two hits a count only falls.
const (
	watchFrom   = 0.5
	watchUntil  = 0.1
	mostWatched = 1000
)

func (t *timeline) init(o Options) { t.from, t.to, t.steps = o.From, o.To, o.Steps }

// begin returns the time at which a step begins.
func (t *timeline) begin(step int) int64 {
	return t.from + int64(float64(t.to-t.from)/float64(t.steps)*float64(step))
}

// moveTo begins all steps until now.
func (t *timeline) moveTo(now int64, j *Judge) {
	for len(t.ours) < t.steps && t.begin(len(t.ours)) <= now {
		begin := t.begin(len(t.ours))
		t.ours, t.oracle = append(t.ours, 0), append(t.oracle, 0)
		t.look(begin, j)
	}
}

// look takes the watched keys' counts into the step that begins.
func (t *timeline) look(now int64, j *Judge) {
	kept := t.watched[:0]
	for _, key := range t.watched {
		k := j.keys[key]
		l := &j.limits[k.rule]
		ours := k.ours.count(l, now) / l.full
		oracle := k.oracle.count(l, now) / l.full
		t.raise(ours, oracle)
		if k.watched = max(ours, oracle) >= watchUntil; k.watched {
			kept = append(kept, key)
		}
	}
	t.watched = kept
}

func (t *timeline) raise(ours, oracle float64) {
	if last := len(t.ours) - 1; last >= 0 {
		t.ours[last], t.oracle[last] = max(t.ours[last], ours), max(t.oracle[last], oracle)
	}
}

// note takes in a key's counts after a hit.
func (t *timeline) note(key int32, k *keyState, ours, oracle float64) {
	t.raise(ours, oracle)
	if !k.watched && len(t.watched) < mostWatched && max(ours, oracle) >= watchFrom {
		k.watched = true
		t.watched = append(t.watched, key)
	}
}
