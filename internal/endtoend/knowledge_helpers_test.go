package endtoend

import (
	"maps"

	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/window"
)

// place is one key under one rule.
type place struct{ rule, key string }

// history is how many hits of a key there were per bucket.
type history map[int64]int64

func (h history) counts(s window.Shape, now int64) []int64 {
	counts := make([]int64, s.Live())
	for i := range counts {
		counts[i] = h[s.Bucket(now)-int64(i)]
	}
	return counts
}

// knowledge is what a checker must know, worked out apart from it from the messages that it sends
// and gets: its own hits, and of others' the highest that a message implies, which is a total less
// those own hits that had been reported by then.
type knowledge struct {
	checker *checker
	frozen  map[place]history // own hits when the key was last put into a report
	others  map[place]history
	flights map[uint32]flight
}

type flight struct {
	sequence uint64
	answered bool
	places   []place
	newest   []int64
	own      []history
}

func newKnowledge(c *checker) knowledge {
	return knowledge{c, make(map[place]history), make(map[place]history), make(map[uint32]flight)}
}

func (k *knowledge) counts(p place, s window.Shape, now int64) []int64 {
	own, others := recall(k.checker.own, p).counts(s, now), k.others[p]
	for i := range own {
		own[i] += others[s.Bucket(now)-int64(i)]
	}
	return own
}

// observed is a link that notes the reports on their way to the bus.
type observed struct {
	check.Link
	by *knowledge
}

func (l observed) Report(shard uint32, toOwner bool, report []byte) error {
	m, err := events.DecodeReport(report)
	if err != nil {
		panic(err)
	}
	l.by.freeze(m)
	return l.Link.Report(shard, toOwner, report)
}

// freeze notes the own hits of a new report's keys: all that there are by now are in it, or in
// those before it.
func (k *knowledge) freeze(r *events.Report) {
	if k.flights[r.Shard].sequence == r.Sequence {
		return // a repeat
	}
	f := flight{sequence: r.Sequence}
	each(r.Hits, func(p place, newest int64, _ []int64, _ []uint64) {
		k.frozen[p] = maps.Clone(*recall(k.checker.own, p))
		f.places, f.newest, f.own = append(f.places, p), append(f.newest, newest), append(f.own, k.frozen[p])
	})
	k.flights[r.Shard] = f
}

// learn takes in what a message tells.
func (k *knowledge) learn(kind events.Kind, payload []byte) {
	switch kind {
	case events.KindRefresh:
		r, err := events.DecodeRefresh(payload)
		f := k.flights[r.GetShard()]
		if err != nil || r.Sequence != f.sequence || f.answered {
			return
		}
		f.answered = true
		k.flights[r.Shard] = f
		at := 0
		for i, n := range r.KeyCells {
			for ; n > 0; n, at = n-1, at+1 {
				k.raise(f.places[i], f.newest[i]-r.Age[at], int64(r.Total[at]), f.own[i])
			}
		}
	case events.KindAlarm:
		a, err := events.DecodeAlarm(payload)
		if err != nil || k.checker.Stats().Shards == 0 {
			return
		}
		each(a.Totals, func(p place, newest int64, age []int64, total []uint64) {
			for i := range age {
				k.raise(p, newest-age[i], int64(total[i]), k.frozen[p])
			}
		})
	}
}

func (k *knowledge) raise(p place, bucket, total int64, own history) {
	if k.others[p] == nil {
		k.others[p] = make(history)
	}
	k.others[p][bucket] = max(k.others[p][bucket], total-own[bucket])
}

// each walks the keys of a table; those of denied hits are places of their own.
func each(t *events.Table, f func(p place, newest int64, age []int64, value []uint64)) {
	text, cell := t.KeyText, 0
	for i, n := range t.KeyLength {
		rule, cells := t.Rules[t.KeyRule[i]], int(t.KeyCells[i])
		p := place{counterOf(rule.Name, shapeOf(rule)), string(text[:n])}
		if rule.Denied {
			p.rule += " denied"
		}
		f(p, rule.Newest, t.Age[cell:cell+cells], t.Value[cell:cell+cells])
		text, cell = text[n:], cell+cells
	}
}
