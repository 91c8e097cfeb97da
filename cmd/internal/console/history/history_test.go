package history

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func after(seconds float64) time.Time { return noon.Add(time.Duration(seconds * float64(time.Second))) }

// rates are the values of a list by their slot's number from the end; gaps are left out.
func rates(list []*float64) map[int]float64 {
	all := make(map[int]float64)
	for i, v := range list {
		if v != nil {
			all[len(list)-1-i] = *v
		}
	}
	return all
}

func read(t *testing.T, h *History, span, rule string, now time.Time) Series {
	t.Helper()
	s, ok := h.Read(span, rule, now)
	if !ok {
		t.Fatalf("there is no span %s", span)
	}
	return s
}

func same(t *testing.T, what string, got, want any) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// What comes is spread over the time in which it has come; where nobody has listened there is a
// gap, and where nothing has come a zero.
func TestSpread(t *testing.T) {
	h := New()
	h.Listen(noon, after(20))
	h.Add("a", after(2.5), after(12.5), Point{Allowed: 100, Denied: 20, Over: 10, False: 5})
	h.Add("b", after(16), after(16), Point{Allowed: 10})
	s := read(t, h, "15m", "", after(27))
	same(t, "all", rates(s.Allowed), map[int]float64{5: 5, 4: 10, 3: 5, 2: 2})
	same(t, "denied", rates(s.Denied), map[int]float64{5: 1, 4: 2, 3: 1, 2: 0})
	same(t, "over", rates(s.Over), map[int]float64{5: .5, 4: 1, 3: .5, 2: 0})
	same(t, "false", rates(s.False), map[int]float64{5: .25, 4: .5, 3: .25, 2: 0})
	same(t, "a", rates(read(t, h, "15m", "a", after(27)).Allowed), map[int]float64{5: 5, 4: 10, 3: 5, 2: 0})
	same(t, "unknown", rates(read(t, h, "15m", "c", after(27)).Allowed), map[int]float64{})
	same(t, "1h", rates(read(t, h, "1h", "", after(27)).Allowed), map[int]float64{1: 5.5})
	same(t, "24h", rates(read(t, h, "24h", "", after(27)).Allowed), map[int]float64{0: 5.5})
	if _, ok := h.Read("2h", "", noon); ok {
		t.Error("there is a span of 2h")
	}
	all, rules := h.Lately(time.Minute, after(27))
	same(t, "lately", []any{all.Allowed, all.Denied, rules["a"].Allowed, rules["b"].Allowed}, []any{110, 20, 100, 10})
}

// A slot is used again when its time has gone by, with nothing of what was in it; and what is too
// old for a track changes nothing.
func TestSlotsComeRound(t *testing.T) {
	h := New()
	h.Add("a", noon, after(1), Point{Allowed: 50})
	h.Listen(noon, after(5))
	later := noon.Add(15 * time.Minute) // the same place
	h.Listen(later, later.Add(5*time.Second))
	h.Add("a", noon, after(1), Point{Allowed: 1000})
	same(t, "15m", rates(read(t, h, "15m", "a", later.Add(5*time.Second)).Allowed), map[int]float64{1: 0})
	same(t, "15m", rates(read(t, h, "15m", "", later.Add(5*time.Second)).Allowed), map[int]float64{1: 0})
}

// Of two histories of one fleet each slot is of the one that has listened longer, whichever takes
// from the other, and however often.
func TestMerge(t *testing.T) {
	long, short := New(), New()
	for i := range 6 { // one has heard all but the last slot, the other the last two, the first of them in part
		from := after(float64(5 * i))
		if i < 5 {
			long.Listen(from, from.Add(5*time.Second))
			long.Add("a", from, from.Add(5*time.Second), Point{Allowed: 50})
		}
	}
	short.Listen(after(22), after(30))
	short.Add("a", after(22), after(30), Point{Allowed: 80})
	for range 2 {
		short.Merge(long, after(30))
		long.Merge(short, after(30))
	}
	for name, h := range map[string]*History{"long": long, "short": short} {
		want := map[int]float64{1: 10, 2: 10, 3: 10, 4: 10, 5: 10, 6: 10}
		same(t, name, rates(read(t, h, "15m", "", after(30)).Allowed), want)
		same(t, name, rates(read(t, h, "15m", "a", after(30)).Allowed), want)
	}
}

// What a clock that was ahead has written takes no place from the present: neither in a record, nor
// in a history whose own clock it was.
func TestFuture(t *testing.T) {
	ahead := New()
	far := noon.Add(15 * time.Minute) // the same places
	ahead.Listen(far, far.Add(30*time.Second))
	ahead.Add("a", far, far.Add(30*time.Second), Point{Allowed: 300})
	h := New()
	h.Listen(noon, after(30))
	h.Add("a", noon, after(30), Point{Allowed: 30})
	h.Merge(ahead, after(30))
	want := map[int]float64{1: 1, 2: 1, 3: 1, 4: 1, 5: 1, 6: 1}
	same(t, "merged", rates(read(t, h, "15m", "a", after(30)).Allowed), want)
	if last := h.last["a"]; last > after(30).UnixNano() {
		t.Errorf("rule a makes no room until %v", time.Unix(0, last))
	}
	for i := range 30 { // its clock has been set
		ahead.Listen(after(float64(i)), after(float64(i+1)))
		ahead.Add("a", after(float64(i)), after(float64(i+1)), Point{Allowed: 1})
	}
	same(t, "set back", rates(read(t, ahead, "15m", "a", after(30)).Allowed), want)
	if last := ahead.last["a"]; last > after(30).UnixNano() {
		t.Errorf("rule a makes no room until %v", time.Unix(0, last))
	}
	// A slot ahead is a difference of clocks.
	next := New()
	next.Listen(after(30), after(40))
	h.Merge(next, after(34))
	same(t, "a slot ahead", h.tracks[0].heard[int(after(35).UnixNano()/int64(5*time.Second)%180)], 5)
}

// Rules beyond the bound count for the fleet, and lately each by itself; one of which nothing has
// come for a day makes room.
func TestRulesAreBounded(t *testing.T) {
	h := New()
	for i := range MaxRules + 5 {
		h.Add(fmt.Sprint(i), noon, after(1), Point{Allowed: 1})
	}
	all, rules := h.Lately(time.Minute, after(1))
	same(t, "rules", []any{all.Allowed, len(rules), rules[fmt.Sprint(MaxRules+4)].Allowed}, []any{MaxRules + 5, MaxRules + 5, 1})
	if s := read(t, h, "15m", fmt.Sprint(MaxRules+4), after(10)); len(rates(s.Allowed)) != 0 {
		t.Errorf("a series beyond the bound: %v", s.Allowed)
	}
	for i := range 3 * maxOthers {
		h.Add(fmt.Sprint(i), noon, after(1), Point{Allowed: 1})
	}
	_, rules = h.Lately(time.Minute, after(1))
	same(t, "all there is room for", len(rules), MaxRules+maxOthers)
	_, rules = h.Lately(time.Minute, after(70))
	same(t, "a minute later", len(rules), 0)
	later := noon.Add(25 * time.Hour)
	h.Add("new", later, later.Add(time.Second), Point{Allowed: 1})
	if _, rules := h.Lately(time.Minute, later.Add(time.Second)); rules["new"].Allowed != 1 {
		t.Errorf("no room for a new rule: %v", rules)
	}
	for _, tr := range h.tracks {
		if len(tr.rules) != 1 {
			t.Errorf("%s: %d rules", tr.Name, len(tr.rules))
		}
	}
}

// full has all its series and slots filled.
func full() *History {
	h := New()
	random := rand.New(rand.NewPCG(1, 2))
	for minute := range 24 * 60 {
		from := noon.Add(time.Duration(minute) * time.Minute)
		h.Listen(from, from.Add(time.Minute))
		for rule := range MaxRules {
			h.Add(fmt.Sprint("rule-", rule), from, from.Add(time.Minute), Point{
				random.Float64() * 1e6, random.Float64() * 1e6, random.Float64() * 1e3, random.Float64() * 1e3, 1,
			})
		}
	}
	return h
}

// A history is bounded in memory, as its package says, and in what is kept of it.
func TestSize(t *testing.T) {
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	h := full()
	if grown := int(heap()) - int(before); grown > 3_000_000 {
		t.Errorf("a full history takes %d bytes", grown)
	}
	const most = 512 << 10
	data, err := h.Encode(most)
	if err != nil || len(data) > most {
		t.Fatalf("%d bytes, %v", len(data), err)
	}
	if _, err := h.Encode(1000); err == nil {
		t.Error("a history in 1,000 bytes")
	}
	runtime.KeepAlive(h)
}

// What was kept is what it was.
func TestEncode(t *testing.T) {
	h := New()
	h.Listen(noon, after(60))
	h.Add("a", noon, after(60), Point{600, 120, 6, 12, 3})
	h.Add("b", after(30), after(60), Point{Allowed: 1})
	data, err := h.Encode(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	for _, span := range Spans {
		for _, rule := range []string{"", "a", "b"} {
			want, got := read(t, h, span.Name, rule, after(60)), read(t, got, span.Name, rule, after(60))
			same(t, span.Name+rule, rates(got.Allowed), rates(want.Allowed))
			same(t, span.Name+rule, rates(got.False), rates(want.False))
		}
	}
	all, _ := got.Lately(5*time.Minute, after(60))
	same(t, "lost", all.Lost, 3)
}

// What is no history is refused: there is no telling who has written it.
func TestDecodeRefuses(t *testing.T) {
	pack := func(text string) []byte {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, _ = w.Write([]byte(text))
		_ = w.Close()
		return b.Bytes()
	}
	data, err := New().encode()
	if err != nil {
		t.Fatal(err)
	}
	for why, bad := range map[string][]byte{
		"nothing": nil, "no gzip": []byte("{}"), "cut": data[:len(data)/2], "no JSON": pack("{"),
		"another version": pack(`{"version":2}`), "no spans": pack(`{"version":1}`),
		"short":       pack(`{"version":1,"tracks":[{"name":"15m","number":[1]},{},{}]}`),
		"a huge file": pack(`{"version":1,"x":"` + strings.Repeat("x", maxFile) + `"}`),
	} {
		if _, err := Decode(bad); !errors.Is(err, ErrRecord) {
			t.Errorf("%s: %v", why, err)
		}
	}
}
