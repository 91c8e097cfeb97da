package tap

import (
	"sync"

	"github.com/offpath-io/offpath/pkg/events"
)

// A Trace is what one checker reported and learnt of the keys that are traced: for each report when
// it left and which totals answered it, for each message when it came and which totals it told.
//
// A total only grows, and the answer to a report tells the total right after its hits were added. So
// a checker knows of a hit as soon as it was told of at least the total that answered the hit's report.
type Trace struct {
	keys func(rule, key string) (id int32, ok bool)

	mu      sync.Mutex
	open    map[sequence]*layout
	sends   map[int32][]*send
	told    map[int32][]told
	entries int
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

// NewTrace returns an empty trace. keys says which keys are traced, by what number; it may be called
// from any goroutine.
func NewTrace(keys func(rule, key string) (id int32, ok bool)) *Trace {
	return &Trace{
		keys: keys,
		open: make(map[sequence]*layout), sends: make(map[int32][]*send), told: make(map[int32][]told),
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
	if t.open[name] != nil || t.entries > mostEntries { // a repeat
		return
	}
	l := &layout{}
	t.walk(m.Hits, func(id int32, rule *events.Rule, cells []cell) {
		var list []*send
		for _, c := range cells {
			if id >= 0 {
				s := &send{at: now, bucket: c.bucket}
				list = append(list, s)
				t.sends[id] = append(t.sends[id], s)
				t.entries++
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
		if !ok {
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
	if t.entries > mostEntries {
		return
	}
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

func (t *Trace) learn(now int64, id int32, cells []cell) {
	if id < 0 {
		return
	}
	for _, c := range cells {
		t.told[id] = append(t.told[id], told{now, c.bucket, c.value})
		t.entries++
	}
}
