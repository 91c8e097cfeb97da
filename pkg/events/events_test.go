package events

import (
	_ "embed"
	"encoding/hex"
	"errors"
	"math"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

func sampleRule() *Rule {
	return &Rule{Name: "per-user", Revision: 7, WindowMs: 1000, Buckets: 1, Limit: 15, Newest: 1763610000}
}

func sampleTable() *Table {
	t := &Table{Rules: []*Rule{sampleRule(), {Name: "hour", WindowMs: 3_600_000, Buckets: 60, Limit: 500, Newest: 29393500}}}
	t.AddKey(0, "kristie")
	t.AddCell(0, 3)
	t.AddCell(1, 300)
	t.AddKey(1, "\xff\x00")
	t.AddCell(-1, 1)
	return t
}

// sampleLevels are a window, a token bucket with a settled level, and a leaky bucket that has none.
func sampleLevels() *Table {
	t := &Table{Rules: []*Rule{sampleRule(),
		{Name: "tokens", WindowMs: 60_000, Buckets: 60, Algorithm: Algorithm_TOKEN_BUCKET, Limit: 500, Burst: 20, Newest: 29393500},
		{Name: "queue", WindowMs: 1000, Buckets: 50, Algorithm: Algorithm_LEAKY_BUCKET, Limit: 10, Burst: 3, Newest: 29393500}}}
	t.AddKey(0, "kristie")
	t.AddCell(0, 3)
	t.AddKey(1, "kristie")
	t.AddCell(0, 3)
	t.SetLevel(61, 12_345)
	t.AddKey(2, "kristie")
	t.AddCell(1, 1)
	return t
}

func sampleLeaseRequest() *LeaseRequest {
	m := &LeaseRequest{
		Epoch: 0x0123456789abcdef, Shard: 2, Shards: 4, Sequence: 9,
		Keys: &Table{Rules: []*Rule{sampleRule()}},
	}
	m.AddKey(0, "kristie", 0, 3, 300)
	m.AddReturn(1, 2)
	m.AddKey(0, "\xff\x00", 1, 0, 0)
	m.AddReturn(1, 7)
	m.AddReturn(2, 5)
	return m
}

// samples are messages of each kind; their bytes are in testdata/golden.hex, one in each line. The
// bytes are a promise: a part of this version must be understood by parts of every other one of the
// same subject version.
var samples = []struct {
	kind Kind
	m    Message
}{
	{KindReport, &Report{
		Epoch: 0x0123456789abcdef, Shard: 2, Shards: 4, Sequence: 9,
		Hits: sampleTable(), Late: []uint64{0, 5},
	}},
	{KindRefresh, &Refresh{
		Epoch: 0x0123456789abcdef, Shard: 2, Sequence: 9, Generation: 1763610000000000, Version: 78, Repeated: true,
		KeyCells: []uint32{2, 1}, Age: []int64{0, 1, -1}, Total: []uint64{15, 300, 1},
	}},
	{KindRefresh, &Refresh{Epoch: 1, Sequence: 1, Error: "report for 4 shards; there are 8"}},
	{KindAlarm, &Alarm{Shard: 3, Generation: 1763610000000000, Version: 79, Totals: sampleTable()}},
	{KindHello, &Hello{Epoch: 0x0123456789abcdef, Sent: 1763610000123456789, Leaving: true}},
	{KindHello, &Hello{Epoch: 0x0123456789abcdef, Sent: 1, Asks: true}},
	{KindWelcome, &Welcome{Epoch: 0x0123456789abcdef, Sent: 1763610000123456789, Shards: 4, Time: 1763610000124000000, Checkers: 3}},
	{KindLease, sampleLeaseRequest()},
	{KindGrant, &Grant{
		Epoch: 0x0123456789abcdef, Shard: 2, Sequence: 9, Generation: 1763610000000000, Version: 78,
		Age: []int64{0, -1}, Granted: []uint64{303, 0}, Spoken: []uint64{303, 7}, WaitMs: []uint64{0, 1500},
	}},
	{KindRefresh, &Refresh{
		Epoch: 1, Sequence: 1, KeyCells: []uint32{1, 0}, Age: []int64{0}, Total: []uint64{15}, LevelAge: []int64{0, 61}, Level: []uint64{0, 12_345},
	}},
	{KindAlarm, &Alarm{Totals: sampleLevels()}},
	{KindGrant, &Grant{Epoch: 1, Sequence: 1, Error: "limit 0"}},
	{KindReport, &Report{Epoch: 1, Sequence: 1, Hits: new(Table), Trace: "00-a-b-01"}},
}

var decoders = map[Kind]func([]byte) (Message, error){
	KindReport:  func(data []byte) (Message, error) { return DecodeReport(data) },
	KindRefresh: func(data []byte) (Message, error) { return DecodeRefresh(data) },
	KindAlarm:   func(data []byte) (Message, error) { return DecodeAlarm(data) },
	KindHello:   func(data []byte) (Message, error) { return DecodeHello(data) },
	KindWelcome: func(data []byte) (Message, error) { return DecodeWelcome(data) },
	KindLease:   func(data []byte) (Message, error) { return DecodeLeaseRequest(data) },
	KindGrant:   func(data []byte) (Message, error) { return DecodeGrant(data) },
}

//go:embed testdata/golden.hex
var goldenBytes string

// encode returns a message's bytes.
func encode(t testing.TB, m Message) []byte {
	t.Helper()
	data, err := Append(nil, m)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestGoldenBytes(t *testing.T) {
	goldens := strings.Fields(goldenBytes)
	for i, s := range samples {
		got := encode(t, s.m)
		if hex.EncodeToString(got) != goldens[i] {
			t.Errorf("sample %d, %v: bytes are\n%x, want\n%s", i, s.kind, got, goldens[i])
		}
		golden, err := hex.DecodeString(goldens[i])
		if err != nil {
			t.Fatal(err)
		}
		m, err := decoders[s.kind](golden)
		if err != nil || !proto.Equal(m, s.m) {
			t.Errorf("sample %d, %v: the golden bytes give %v, %v", i, s.kind, m, err)
		}
		// A newer part may say more than this one understands.
		more := protowire.AppendString(protowire.AppendTag(got, 1000, protowire.BytesType), "from the future")
		if _, err := decoders[s.kind](more); err != nil {
			t.Errorf("%v with an unknown field: %v", s.kind, err)
		}
	}
}

// TestNoAnswerIsTakenForAnother: who asks names the subject of the answer, so a checker can have an
// aggregator's answer delivered where checkers of its own name hear alarms, or what they are
// answered. What it asks is chosen for the worst: numbers that come back are states and times.
func TestNoAnswerIsTakenForAnother(t *testing.T) {
	const now = 1_795_000_000_000_000_000 // 2026
	welcome := &Welcome{Epoch: 1, Sent: MaxState, Shards: 4, Time: now, Checkers: 5}
	refresh := &Refresh{Epoch: 1, Shard: 3, Sequence: 4, Generation: now / 1000, Version: 7}
	grant := &Grant{Epoch: 1, Shard: 3, Sequence: 4, Generation: now / 1000, Version: 7}
	for _, m := range []Message{welcome, refresh, grant} {
		for _, other := range []Kind{KindAlarm, KindWelcome, KindRefresh, KindGrant} {
			got, err := decoders[other](encode(t, m))
			alike := other != KindAlarm && (other == KindWelcome) == (m == welcome) // a refresh and a grant may be
			if err == nil && !alike {
				t.Errorf("%T is taken for %v", m, got)
			}
		}
	}
}

func TestMalformedMessagesAreRefused(t *testing.T) {
	reports := map[string]func(r *Report){
		"no epoch":             func(r *Report) { r.Epoch = 0 },
		"no sequence":          func(r *Report) { r.Sequence = 0 },
		"shard beyond shards":  func(r *Report) { r.Shard = 4 },
		"too many shards":      func(r *Report) { r.Shards = MaxShards + 1 },
		"more late than rules": func(r *Report) { r.Late = make([]uint64, 3) },
		"late too large":       func(r *Report) { r.Late[0] = MaxCount + 1 },
		"rule index":           func(r *Report) { r.Hits.KeyRule[1] = 2 },
		"too few rule indices": func(r *Report) { r.Hits.KeyRule = r.Hits.KeyRule[:1] },
		"too few cell counts":  func(r *Report) { r.Hits.KeyCells = r.Hits.KeyCells[:1] },
		"text too short":       func(r *Report) { r.Hits.KeyText = r.Hits.KeyText[1:] },
		"lengths overflow":     func(r *Report) { r.Hits.KeyLength[0] = math.MaxUint32 },
		"cells overflow":       func(r *Report) { r.Hits.KeyCells[0] = math.MaxUint32 },
		"ages and values":      func(r *Report) { r.Hits.Age = r.Hits.Age[1:] },
		"hits too large":       func(r *Report) { r.Hits.Value[0] = MaxCount + 1 },
		"age too large":        func(r *Report) { r.Hits.Age[0] = math.MaxInt64 },
		"age too small":        func(r *Report) { r.Hits.Age[0] = math.MinInt64 },
		"no name":              func(r *Report) { r.Hits.Rules[0].Name = "" },
		"long name":            func(r *Report) { r.Hits.Rules[0].Name = strings.Repeat("n", MaxRuleName+1) },
		"no window":            func(r *Report) { r.Hits.Rules[0].WindowMs = 0 },
		"long window":          func(r *Report) { r.Hits.Rules[0].WindowMs = math.MaxUint64 },
		"no buckets":           func(r *Report) { r.Hits.Rules[0].Buckets = 0 },
		"uneven buckets":       func(r *Report) { r.Hits.Rules[0].Buckets = 7 },
		"algorithm":            func(r *Report) { r.Hits.Rules[0].Algorithm = 99 },
		"fixed in buckets":     func(r *Report) { r.Hits.Rules[1].Algorithm = Algorithm_FIXED_WINDOW },
		"limit":                func(r *Report) { r.Hits.Rules[0].Limit = MaxCount + 1 },
		"newest":               func(r *Report) { r.Hits.Rules[0].Newest = math.MinInt64 },
	}
	leases := map[string]func(m *LeaseRequest){
		"no epoch":      func(m *LeaseRequest) { m.Epoch = 0 },
		"no sequence":   func(m *LeaseRequest) { m.Sequence = 0 },
		"state":         func(m *LeaseRequest) { m.Sequence = MaxState + 1 },
		"shard":         func(m *LeaseRequest) { m.Shard = 4 },
		"shards":        func(m *LeaseRequest) { m.Shards = MaxShards + 1 },
		"table":         func(m *LeaseRequest) { m.Keys.KeyRule[0] = 1 },
		"ages":          func(m *LeaseRequest) { m.Age = m.Age[1:] },
		"known":         func(m *LeaseRequest) { m.Known = m.Known[1:] },
		"want":          func(m *LeaseRequest) { m.Want = append(m.Want, 1) },
		"age too large": func(m *LeaseRequest) { m.Age[1] = math.MinInt64 },
		"known large":   func(m *LeaseRequest) { m.Known[0] = MaxCount + 1 },
		"want large":    func(m *LeaseRequest) { m.Want[0] = MaxCount + 1 },
		"return large":  func(m *LeaseRequest) { m.Keys.Value[0] = MaxCount + 1 },
		"many keys":     func(m *LeaseRequest) { times(MaxLeaseKeys-1, func() { m.AddKey(0, "", 0, 0, 0) }) },
		"many buckets": func(m *LeaseRequest) {
			m.Keys.Rules[0].Buckets = 1000
			times(15, func() { m.AddKey(0, "", 0, 0, 0) })
		},
		"many returns": func(m *LeaseRequest) { times(MaxReturns-2, func() { m.AddReturn(0, 0) }) },
	}
	alarms := map[string]func(m *Alarm){
		"generation":      func(a *Alarm) { a.Generation = math.MaxUint64 },
		"table":           func(a *Alarm) { a.Totals = &Table{KeyLength: []uint32{1}} },
		"no rate":         func(a *Alarm) { a.Totals.Rules[1].Limit = 0 },
		"no burst":        func(a *Alarm) { a.Totals.Rules[2].Burst = 0 },
		"burst":           func(a *Alarm) { a.Totals.Rules[1].Burst = MaxCount + 1 },
		"too few levels":  func(a *Alarm) { a.Totals.Level = a.Totals.Level[1:]; a.Totals.LevelAge = a.Totals.LevelAge[1:] },
		"ages of levels":  func(a *Alarm) { a.Totals.LevelAge = a.Totals.LevelAge[1:] },
		"level too large": func(a *Alarm) { a.Totals.Level[1] = MaxLevel + 1 },
		"level too old":   func(a *Alarm) { a.Totals.LevelAge[1] = math.MaxInt64 },
	}
	grants := map[string]func(m *Grant){
		"version":       func(m *Grant) { m.Version = math.MaxUint64 },
		"ages":          func(m *Grant) { m.Age = m.Age[1:] },
		"granted":       func(m *Grant) { m.Granted = m.Granted[1:] },
		"spoken":        func(m *Grant) { m.Spoken = nil },
		"waits":         func(m *Grant) { m.WaitMs = append(m.WaitMs, 1) },
		"granted large": func(m *Grant) { m.Granted[0] = MaxCount + 1 },
		"spoken large":  func(m *Grant) { m.Spoken[1] = MaxCount + 1 },
		"wait large":    func(m *Grant) { m.WaitMs[1] = MaxCount + 1 },
		"age large":     func(m *Grant) { m.Age[0] = math.MaxInt64 },
		"many keys": func(m *Grant) {
			n := MaxLeaseKeys + 1
			m.Age, m.Granted, m.Spoken, m.WaitMs = make([]int64, n), make([]uint64, n), make([]uint64, n), make([]uint64, n)
		},
	}
	refuse(t, KindReport, func() *Report { return proto.Clone(samples[0].m).(*Report) }, reports)
	refuse(t, KindLease, sampleLeaseRequest, leases)
	refuse(t, KindAlarm, func() *Alarm { return &Alarm{Totals: sampleLevels()} }, alarms)
	refuse(t, KindGrant, func() *Grant {
		return &Grant{Age: []int64{0, 1}, Granted: []uint64{1, 2}, Spoken: []uint64{3, 4}, WaitMs: []uint64{5, 6}}
	}, grants)
	refuse(t, KindRefresh, func() *Refresh { return new(Refresh) }, map[string]func(m *Refresh){
		"levels": func(m *Refresh) { m.LevelAge, m.Level = []int64{1}, []uint64{1} },
		"level too large": func(m *Refresh) {
			m.KeyCells, m.LevelAge, m.Level = []uint32{0}, []int64{1}, []uint64{MaxLevel + 1}
		},
		"version":  func(m *Refresh) { m.Version = math.MaxUint64 },
		"overflow": func(m *Refresh) { m.KeyCells, m.Overflow = []uint32{0}, []uint32{0, 1} },
		"cells":    func(m *Refresh) { m.KeyCells, m.Age, m.Total = []uint32{2}, []int64{0}, []uint64{1} },
		"totals":   func(m *Refresh) { m.KeyCells, m.Age, m.Total = []uint32{1}, []int64{0}, []uint64{MaxCount + 1} },
	})
	refuse(t, KindHello, func() *Hello { return &Hello{Epoch: 1} }, map[string]func(m *Hello){
		"no epoch": func(m *Hello) { m.Epoch = 0 },
	})
	refuse(t, KindWelcome, func() *Welcome { return &Welcome{Epoch: 1, Shards: 1, Time: maxTime} }, map[string]func(m *Welcome){
		"no shards":   func(m *Welcome) { m.Shards = 0 },
		"too many":    func(m *Welcome) { m.Shards = MaxShards + 1 },
		"before 1970": func(m *Welcome) { m.Time = -1 },
		"a state":     func(m *Welcome) { m.Time = MaxState },
		"after all":   func(m *Welcome) { m.Time = maxTime + 1 },
		"not off":     func(m *Welcome) { m.Error = -1 },
	})
}

func times(n int, do func()) {
	for range n {
		do()
	}
}

// refuse makes each change to a good message, which is then to be malformed.
func refuse[M Message](t *testing.T, kind Kind, good func() M, changes map[string]func(M)) {
	t.Helper()
	if _, err := decoders[kind](encode(t, good())); err != nil {
		t.Errorf("%v: the good one is refused: %v", kind, err)
	}
	for why, change := range changes {
		m := good()
		change(m)
		if _, err := decoders[kind](encode(t, m)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%v, %s: %v; want it malformed", kind, why, err)
		}
	}
	if _, err := decoders[kind]([]byte{0xff}); !errors.Is(err, ErrMalformed) {
		t.Errorf("%v of one bad byte: %v", kind, err)
	}
}

// FuzzDecode: no bytes make a decoder panic, and what it takes survives another round.
func FuzzDecode(f *testing.F) {
	for _, s := range samples {
		f.Add(uint8(s.kind), encode(f, s.m))
	}
	f.Fuzz(func(t *testing.T, kind uint8, data []byte) {
		k := Kind(kind%7 + 1)
		m, err := decoders[k](data)
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Fatalf("an error of another kind: %v", err)
			}
			return
		}
		if n, err := decoders[k](encode(t, m)); err != nil || !proto.Equal(m, n) {
			t.Fatalf("%v does not survive: %v, %v", k, n, err)
		}
		switch m := m.(type) {
		case *Report:
			walk(m.Hits)
		case *Alarm:
			walk(m.Totals)
		case *LeaseRequest:
			walk(m.Keys)
			for i := range m.Keys.Keys() {
				_ = m.Age[i] + int64(m.Known[i]+m.Want[i])
			}
		case *Grant:
			for i := range m.Age {
				_ = m.Age[i] + int64(m.Granted[i]+m.Spoken[i]+m.WaitMs[i])
			}
		}
	})
}

// walk touches everything in a table, as its readers do without looking at lengths.
func walk(t *Table) (sum uint64) {
	text, cell := t.KeyText, 0
	for i, n := range t.KeyLength {
		sum += uint64(len(text[:n])) + t.Rules[t.KeyRule[i]].GetLimit()
		for range t.KeyCells[i] {
			sum += t.Value[cell] + uint64(t.Age[cell])
			cell++
		}
		if len(t.Level) > 0 {
			sum += t.Level[i] + uint64(t.LevelAge[i])
		}
		text = text[n:]
	}
	return sum
}

func TestTableClear(t *testing.T) {
	table := sampleLevels()
	if len(table.Level) != 3 || table.Level[1] != 12_345 || table.LevelAge[1] != 61 {
		t.Errorf("levels %v of ages %v", table.Level, table.LevelAge)
	}
	table.Clear()
	if table.Keys() != 0 || table.check() != nil {
		t.Errorf("after Clear: %v", table)
	}
	table.Rules = append(table.Rules, sampleRule())
	table.AddKey(0, "again")
	table.AddCell(0, 1)
	if err := table.check(); err != nil {
		t.Error(err)
	}
}

// TestShard pins the hash: checkers of all versions must agree on it.
func TestShard(t *testing.T) {
	for _, c := range []struct {
		rule, key string
		hash      uint64
	}{
		{"per-user", "kristie", 0xfaa823deeffe3814},
		{"per-user", "", 0x2994d0c8a213a0fa},
		{"", "per-user", 0x30d0c87b344457e0},
	} {
		if got := KeyHash(c.rule, c.key); got != c.hash {
			t.Errorf("KeyHash(%q, %q) = %#x, want %#x", c.rule, c.key, got, c.hash)
		}
	}
	if KeyHash("a", "bc") == KeyHash("ab", "c") {
		t.Error("rule and key run into each other")
	}
	var per [8]int
	for i := range 80_000 {
		per[Shard("per-user", strings.Repeat("u", i%9)+hex.EncodeToString([]byte{byte(i), byte(i >> 8), byte(i >> 16)}), 8)]++
	}
	for s, n := range per {
		if n < 9_500 || n > 10_500 {
			t.Errorf("shard %d has %d of 80,000 keys", s, n)
		}
	}
}

func TestCountAndKind(t *testing.T) {
	if Count(-5) != 0 || Count(5) != 5 || Count(math.MaxInt64) != math.MaxInt64 {
		t.Error("Count is off")
	}
	for k, want := range map[Kind]string{KindReport: "report", KindRefresh: "refresh", KindAlarm: "alarm", KindHello: "hello", KindWelcome: "welcome", KindLease: "lease", KindGrant: "grant", KindMember: "member", 10: "kind(10)"} {
		if k.String() != want {
			t.Errorf("%d is %q", k, k)
		}
	}
}

func TestAddress(t *testing.T) {
	for text, want := range map[string]Address{
		"report.v1.0":       {KindReport, FormatPlain, 0, false},
		"report.v2.7-owner": {KindReport, FormatRefunds, 7, true},
		"lease.v1.12-owner": {KindLease, FormatPlain, 12, true},
	} {
		if got, ok := ParseAddress(text); !ok || got != want || got.String() != text {
			t.Errorf("%s: %+v, %v, again %v", text, got, ok, got)
		}
	}
	for _, text := range []string{"", "report", "report.v1", "report.v1.", "hello.v1.0", "report.v1.0.abc", "report.v1.-1", "x.v1.0", ".v1.0"} {
		if got, ok := ParseAddress(text); ok {
			t.Errorf("%q is taken for %+v", text, got)
		}
	}
}

func TestMembers(t *testing.T) {
	const now = 1_800_000_000_000_000_000
	for _, tt := range []struct {
		why string
		m   *Member
		ok  bool
	}{
		{"one that knows nothing yet", &Member{Id: 1}, true},
		{"one that serves shards", &Member{Id: 1, Shards: 9, Serves: []byte{255, 1}, Owns: []byte{1}, Time: now, Error: 5}, true},
		{"no id", &Member{Shards: 1}, false},
		{"too many shards", &Member{Id: 1, Shards: MaxShards + 1}, false},
		{"more bits than shards", &Member{Id: 1, Shards: 8, Wants: []byte{1, 1}}, false},
		{"a time that is none", &Member{Id: 1, Time: 7}, false},
		{"a negative error", &Member{Id: 1, Time: now, Error: -1}, false},
		{"all checkers", &Member{Id: 1, Checkers: MaxCheckers}, true},
		{"too many checkers", &Member{Id: 1, Checkers: MaxCheckers + 1}, false},
		{"too many echoes", &Member{Id: 1, Echoes: make([]*Echo, MaxMembers+1)}, false},
	} {
		for i := range tt.m.Echoes {
			tt.m.Echoes[i] = &Echo{Id: 1}
		}
		if _, err := DecodeMember(encode(t, tt.m)); (err == nil) != tt.ok {
			t.Errorf("%s: %v", tt.why, err)
		}
	}
}
