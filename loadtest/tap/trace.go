package tap

import (
	"math"
	"sync"

	"github.com/offpath-io/offpath/pkg/events"
)

// A Trace is what one checker reported and learnt of the keys that are traced: for each report when
// it left and which totals answered it, for each message when it came and which totals it told.
//
// A total only grows, and the answer to a report tells the total after its hits were added. So a
// checker knows of a hit as soon as it was told of at least the total that answered the hit's
// report. If that report had to be repeated, the answer may tell a later total, and the time found
// is an upper bound.
type Trace struct {
	keys func(rule, key string) (id int32, ok bool)

	mu      sync.Mutex
	from    int64 // what is told before is not kept
	open    map[sequence]*layout
	sends   map[int32][]*send
	told    map[int32][]told
	highest map[place]int64
	entries int
	full    int64 // when there was no more room; 0 if there is
}

// place is a traced key's bucket.
type place struct {
	id     int32
	bucket int64
}

// From lets the trace begin at a time, in Unix nanoseconds.
func (t *Trace) From(at int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.from = at
}

// fullAt returns when there was no more room.
func (t *Trace) fullAt() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.full == 0 {
		return math.MaxInt64
	}
	return t.full
}

// keep counts an entry; false if there is no room for it.
func (t *Trace) keep(now int64) bool {
	if t.entries >= mostEntries {
		if t.full == 0 {
			t.full = now
		}
		return false
	}
	t.entries++
	return true
}

// sequence names a report of one checker.
type sequence struct {
	shard  uint32
	number uint64
}

// send is one traced key and bucket in a report.
type send struct {
	at     int64 // when the report left, for the first time
	bucket int64
	total  int64 // that answered it; 0 while nothing did
}

// layout is what is needed to read a report's answer.
type layout struct {
	newest []int64 // per key of the report
	id     []int32 // −1 if the key is not traced
	sends  [][]*send
}

// told is one total that the checker was told.
type told struct{ at, bucket, total int64 }

// mostEntries bounds a trace; what comes later is not in it.
const mostEntries = 2_000_000

// NewTrace returns an empty trace. keys says which keys are traced, by what number; it may be
// called from any goroutine.
func NewTrace(keys func(rule, key string) (id int32, ok bool)) *Trace {
	return &Trace{
		keys: keys,
		open: make(map[sequence]*layout), sends: make(map[int32][]*send), told: make(map[int32][]told),
		highest: make(map[place]int64),
	}
}

// sent takes in a report that is about to leave.
func (t *Trace) sent(now int64, payload []byte) {
	m, err := events.DecodeReport(payload)
	if err != nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	name := sequence{m.Shard, m.Sequence}
	if t.open[name] != nil { // a repeat
		return
	}
	l := &layout{}
	t.walk(m.Hits, func(id int32, rule *events.Rule, cells []cell) {
		var list []*send
		for _, c := range cells {
			if id >= 0 && now >= t.from && t.keep(now) {
				s := &send{at: now, bucket: c.bucket}
				list = append(list, s)
				t.sends[id] = append(t.sends[id], s)
			}
		}
		l.newest, l.id, l.sends = append(l.newest, rule.Newest), append(l.id, id), append(l.sends, list)
	})
	t.open[name] = l
}

// cell is a bucket's value in a message.
type cell struct{ bucket, value int64 }

// walk calls f for each key of a table, in order.
func (t *Trace) walk(table *events.Table, f func(id int32, rule *events.Rule, cells []cell)) {
	text, at := table.KeyText, 0
	var cells []cell
	for i, n := range table.KeyLength {
		rule := table.Rules[table.KeyRule[i]]
		id, ok := t.keys(rule.Name, string(text[:n]))
		if !ok || rule.Denied || rule.Refunded { // what was denied is in no total that a hit could be found in
			id = -1
		}
		text = text[n:]
		cells = cells[:0]
		for range table.KeyCells[i] {
			cells = append(cells, cell{rule.Newest - table.Age[at], int64(table.Value[at])})
			at++
		}
		f(id, rule, cells)
	}
}

// heard takes in a message that the checker has just merged.
func (t *Trace) heard(now int64, kind events.Kind, payload []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if kind == events.KindAlarm {
		if m, err := events.DecodeAlarm(payload); err == nil {
			t.walk(m.Totals, func(id int32, _ *events.Rule, cells []cell) { t.learn(now, id, cells) })
		}
		return
	}
	m, err := events.DecodeRefresh(payload)
	if err != nil {
		return
	}
	name := sequence{m.Shard, m.Sequence}
	l := t.open[name]
	if l == nil || len(m.KeyCells) != len(l.id) {
		return
	}
	delete(t.open, name)
	t.answer(now, l, m)
}

func (t *Trace) answer(now int64, l *layout, m *events.Refresh) {
	at := 0
	var cells []cell
	for i, n := range m.KeyCells {
		cells = cells[:0]
		for range n {
			c := cell{l.newest[i] - m.Age[at], int64(m.Total[at])}
			cells = append(cells, c)
			for _, s := range l.sends[i] {
				if s.bucket == c.bucket {
					s.total = c.value
				}
			}
			at++
		}
		t.learn(now, l.id[i], cells)
	}
}

// learn keeps what is news of a key: totals that are higher than those told before.
func (t *Trace) learn(now int64, id int32, cells []cell) {
	if id < 0 || now < t.from {
		return
	}
	for _, c := range cells {
		at := place{id, c.bucket}
		if c.value > t.highest[at] && t.keep(now) {
			t.highest[at] = c.value
			t.told[id] = append(t.told[id], told{now, c.bucket, c.value})
		}
	}
}
