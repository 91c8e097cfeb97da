package member

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/events"
)

const (
	shards = 40
	ms     = int64(time.Millisecond)
	start  = 1_800_000_000_000 * ms
)

// group is some aggregators and what they have told each other, in a time of its own.
type group struct {
	t     *testing.T
	now   int64
	all   []*aggregator
	deaf  func(from, to int) bool // whose messages do not arrive
	delay func() int64            // of the next message
	queue []message               // under way
	check func()                  // whenever somebody has decided
}

type message struct {
	due  int64
	to   int
	said *events.Member
}

type aggregator struct {
	*Members
	serves  []bool
	owned   []bool
	stopped bool
	frozen  bool
}

func newGroup(t *testing.T, n int) *group {
	g := &group{
		t: t, now: start, deaf: func(int, int) bool { return false },
		delay: func() int64 { return 0 }, check: func() {},
	}
	for range n {
		g.add()
	}
	return g
}

func (g *group) add() {
	id := uint64(len(g.all)+1) * 0x1234567
	g.all = append(g.all, &aggregator{Members: New(id), serves: slices.Repeat([]bool{true}, shards)})
}

// run lets time pass: every 250 ms each tells the others, and whoever changes tells them at once.
func (g *group) run(d time.Duration) *group {
	for end := g.now + int64(d); g.now < end; {
		for i := range g.all {
			g.tell(i)
		}
		for next := g.now + int64(Every); g.now < next; g.now += 5 * ms {
			g.deliver()
		}
	}
	return g
}

// tell has an aggregator decide, and tell all.
func (g *group) tell(from int) {
	if a := g.all[from]; !a.stopped && !a.frozen {
		a.owned, _ = a.Own(slices.Clone(a.serves), g.now)
		g.check()
		g.send(from)
		g.deliver()
	}
}

func (g *group) send(from int) {
	said := g.all[from].Message(g.all[from].serves, g.now)
	for to := range g.all {
		if !g.deaf(from, to) {
			g.queue = append(g.queue, message{g.now + g.delay(), to, said})
		}
	}
}

// deliver delivers what is due; whoever then decides otherwise tells all.
func (g *group) deliver() {
	for range 10_000 {
		i := slices.IndexFunc(g.queue, func(m message) bool { return m.due <= g.now })
		if i < 0 {
			return
		}
		m := g.queue[i]
		g.queue = slices.Delete(g.queue, i, i+1)
		to := g.all[m.to]
		if to.stopped || to.frozen {
			continue
		}
		to.Observe(m.said, g.now)
		var news bool
		to.owned, news = to.Own(slices.Clone(to.serves), g.now)
		g.check()
		if news {
			g.send(m.to)
		}
	}
	g.t.Fatal("they do not come to an end")
}

func (g *group) stop(i int) {
	g.all[i].stopped = true
	for _, to := range g.all {
		to.Observe(g.all[i].Leave(g.now), g.now)
	}
}

// owners are those that believe that they own a shard.
func (g *group) owners(shard int) (owners []int) {
	for i, a := range g.all {
		if !a.stopped && !a.frozen && shard < len(a.owned) && a.owned[shard] {
			owners = append(owners, i)
		}
	}
	return owners
}

// owning are those of them that do not yield to a better one.
func (g *group) owning(shard int) []int {
	return slices.DeleteFunc(g.owners(shard), func(i int) bool { return g.all[i].roles[shard] != owns })
}

// wantOneOwner checks that each shard that somebody serves has one owner, the best that serves it.
func (g *group) wantOneOwner(why string) {
	g.t.Helper()
	for shard := range shards {
		var best []int
		for i, a := range g.all {
			if a.stopped || a.frozen || !a.serves[shard] {
				continue
			}
			if best == nil || rank(a.id, shard) > rank(g.all[best[0]].id, shard) {
				best = []int{i}
			}
		}
		if got := g.owners(shard); !slices.Equal(got, best) {
			g.t.Errorf("%s: shard %d is owned by %v, want %v", why, shard, got, best)
		}
	}
}

func TestEachShardHasOneOwner(t *testing.T) {
	g := newGroup(t, 1)
	g.run(500 * time.Millisecond)
	if got := g.owners(0); got != nil {
		t.Error("it has not listened yet")
	}
	g.run(time.Second)
	g.wantOneOwner("alone")
	g.add()
	g.add()
	g.run(2 * time.Second)
	g.wantOneOwner("two have come")
	for i, a := range g.all {
		if n := len(slices.DeleteFunc(slices.Clone(a.owned), func(is bool) bool { return !is })); n < shards/6 {
			t.Errorf("aggregator %d owns %d of %d shards", i, n, shards)
		}
	}
	g.all[1].serves[3], g.all[2].serves[4] = false, false
	g.run(time.Second)
	g.wantOneOwner("some cannot write to some shards")
	g.all[1].serves[3], g.all[2].serves[4] = true, true
	g.run(time.Second)
	g.wantOneOwner("they can again")
	g.stop(2)
	g.run(Every)
	g.wantOneOwner("one has left and said so: no time is lost")
	g.all[0].frozen = true
	g.run(Silent + 2*Every)
	g.wantOneOwner("one is silent")
	g.all[0].frozen = false
	g.run(2 * time.Second)
	g.wantOneOwner("it is back")
	g.all[0].frozen = true
	doubt := func() {
		for shard := range uint32(shards) {
			if g.all[0].owned[shard] {
				g.all[1].Doubt(shard, g.now)
				return
			}
		}
	}
	doubt()
	doubt()
	if len(g.all[1].others) == 0 {
		t.Error("an owner was not reached, and has been heard since")
	}
	for range 2 { // a message is lost, and one request does not reach it
		g.all[0].frozen = true
		g.run(2 * Every)
		g.now += 5 * ms
		doubt()
		if len(g.all[1].others) == 0 {
			t.Error("a message of an owner was lost, and it counts as gone")
		}
		g.all[0].frozen = false
		g.run(Every)
	}
	g.all[0].frozen = true
	g.run(2 * Every)
	doubt()
	doubt()
	g.run(Every)
	g.wantOneOwner("one is not reached, and not heard either")
	g.all[0].frozen = false
	g.run(2 * time.Second)
	for _, a := range g.all {
		a.serves = make([]bool, shards)
	}
	g.run(time.Second)
	g.wantOneOwner("nobody can write")
}

// An aggregator that stands still for a moment, and then reads requests before messages, takes no
// shard from an owner that lives.
func TestStandingStill(t *testing.T) {
	for _, stood := range []time.Duration{2*Every + 1, Silent - 1, Silent + 1} {
		g := newGroup(t, 2).run(2 * time.Second)
		shard := slices.Index(g.all[0].owned, true)
		g.now += int64(stood)
		for range 10 {
			if g.all[1].Doubt(uint32(shard), g.now) {
				t.Errorf("after %v an owner counts as gone", stood)
			}
		}
		g.run(Every)
		g.wantOneOwner(stood.String())
	}
}

// While this aggregator, or NATS, stands still, it does not listen: what others have said is still
// under way when it hears what it has said itself before.
func TestStandingStillWhileItListens(t *testing.T) {
	for _, tt := range []struct {
		why      string
		called   []int64 // ms at which it decides
		sent, at []int64 // ms at which it has sent what it hears at some ms
		listened int64   // from when on
	}{
		{"it hears itself", nil, []int64{0, 250, 500, 750, 1000}, []int64{2, 252, 502, 752, 1002}, 752},
		{"it stands still", nil, []int64{0, 250, 500, 750, 1290, 1540}, []int64{2, 252, 502, 1290, 1292, 1542}, 1292},
		{"NATS stands still", []int64{250, 500, 750},
			[]int64{0, 250, 500, 750, 1000, 1250, 1500}, []int64{2, 801, 801, 801, 1002, 1252, 1502}, 1252},
		{"a message is lost", []int64{500}, []int64{0, 250, 750, 1000, 1250}, []int64{2, 252, 752, 1002, 1252}, 1002},
		{"its ticks come late", nil, []int64{0, 500, 1000, 1500}, []int64{2, 502, 1002, 1502}, 1502},
		{"nothing is heard for more than a second", []int64{250, 500, 750, 1000, 1250, 1500},
			[]int64{0, 250, 500, 1500, 1750, 2000, 2250}, []int64{2, 252, 502, 1504, 1752, 2002, 2252}, 2252},
	} {
		m, next := New(1), 0
		for now := int64(0); now <= tt.at[len(tt.at)-1]; now++ {
			if slices.Contains(tt.called, now) {
				m.Own(nil, start+now*ms)
			}
			for ; next < len(tt.at) && tt.at[next] == now; next++ {
				m.Observe(&events.Member{Id: 1, Sent: start + tt.sent[next]*ms}, start+now*ms)
				if got, want := m.Listened(start+now*ms), now >= tt.listened; got != want {
					t.Errorf("%s: at %d ms it has listened: %v", tt.why, now, got)
				}
			}
		}
	}
}

// An aggregator that stood still decides, and reads its own messages and requests, before it reads
// those of others: nobody counts as gone by that.
func TestNobodyIsSilentWhileThisOneStandsStill(t *testing.T) {
	for _, stood := range []int64{270, 370, 700, 990, 1500, 50_000} {
		m, serves := New(1), []bool{true}
		for now := start; now <= start+5000*ms; now += 250 * ms {
			m.Observe(&events.Member{Id: 2, Sent: now - 240*ms, Shards: 1, Serves: []byte{1}, Owns: []byte{1}}, now-240*ms)
			m.Observe(&events.Member{Id: 1, Sent: now}, now)
			m.Own(serves, now)
		}
		now := start + 5000*ms + stood*ms
		owned, _ := m.Own(serves, now)
		knows := len(m.others) == 1
		m.Observe(&events.Member{Id: 1, Sent: start + 5001*ms}, now)
		first, second := m.Doubt(0, now), m.Doubt(0, now)
		if owned[0] || !knows || first || second {
			t.Errorf("after %d ms: it owns the shard: %v; it knows the owner: %v; that counts as gone: %v",
				stood, owned[0], knows, first || second)
		}
	}
}

// However badly this aggregator hears itself, it notices that another one is gone, after five of its
// own messages that count; and it takes nobody for gone before a second is over.
func TestSilenceOnABadLink(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for _, tt := range []struct {
		why         string
		tick        func() int64 // ms to the next message
		trip        func(i int) int64
		from, until int64 // ms in which it notices
	}{
		{"a good link", func() int64 { return 250 }, func(int) int64 { return 2 }, 1000, 1250},
		{"a far one", func() int64 { return 250 }, func(int) int64 { return 900 }, 1000, 1250},
		{"random trips", func() int64 { return 250 }, func(int) int64 { return random.Int64N(240) }, 1000, 3000},
		{"every second one is 200 ms late", func() int64 { return 250 }, func(i int) int64 { return int64(i % 2 * 200) }, 1000, 2750},
		{"every second one is 245 ms late", func() int64 { return 250 }, func(i int) int64 { return int64(i % 2 * 245) }, 1000, 2750},
		{"each is 130 ms later than the one before", func() int64 { return 250 }, func(i int) int64 { return int64(max(i-30, 0) * 130) }, 1000, 5000},
		{"its ticks come late", func() int64 { return 760 }, func(int) int64 { return 2 }, 2000, 4600},
		{"they come more than a second late", func() int64 { return 1010 }, func(int) int64 { return 2 }, 3000, 6100},
		{"it has much to say", func() int64 { return 190 }, func(int) int64 { return 2 }, 1000, 1200},
		{"messages are lost", func() int64 { return 250 + 250*random.Int64N(2) }, func(int) int64 { return 2 }, 1000, 2500},
	} {
		for phase := range int64(5) {
			m := New(1)
			type heard struct{ sent, at int64 }
			var own []heard
			for i, sent, at := 0, int64(0), int64(0); sent < 20_000; i, sent = i+1, sent+tt.tick() {
				at = max(at, sent+tt.trip(i)) // none overtakes another
				own = append(own, heard{sent, at})
			}
			gone := int64(-1)
			const dies = 10_000
			for now := int64(0); now < 20_000; now++ {
				for ; len(own) > 0 && own[0].at == now; own = own[1:] {
					m.Observe(&events.Member{Id: 1, Sent: start + own[0].sent*ms}, start+now*ms)
				}
				if now%250 == 50*phase && now < dies {
					m.Observe(&events.Member{Id: 2, Sent: start + now*ms}, start+now*ms)
				}
				if now > 250 && len(m.others) == 0 && gone < 0 {
					gone = now
				}
			}
			last := int64(dies - 250 + 50*phase)
			if gone-last < tt.from || gone-last > tt.until {
				t.Errorf("%s: the other one is taken for gone %d ms after its last message", tt.why, gone-last)
			}
		}
	}
}

// All agree on who keeps the fleet's time: an owner, or if no shard has one, one of those that know
// the time.
func TestKeeper(t *testing.T) {
	g := newGroup(t, 3)
	keeper := func(why string, want ...uint64) {
		t.Helper()
		for i, a := range g.all {
			if got := a.Keeper(); !slices.Contains(want, got) || got != g.all[0].Keeper() {
				t.Errorf("%s: aggregator %d takes %x for the keeper", why, i, got)
			}
		}
	}
	g.run(2 * time.Second)
	first := g.all[g.owners(0)[0]].id
	keeper("the owner of the first shard", first)
	for i := range g.all {
		g.all[i].serves[0] = false
	}
	g.run(time.Second)
	keeper("of the next one", g.all[g.owners(1)[0]].id)
	for i := range g.all {
		g.all[i].serves = make([]bool, shards)
	}
	g.run(time.Second)
	if got := g.owners(1); got != nil {
		t.Fatalf("%v own what they cannot write to", got)
	}
	for i := range g.all[1:] {
		said := g.all[i+1].Message(nil, g.now)
		said.Time = 1
		for _, to := range g.all {
			to.Observe(said, g.now)
		}
	}
	if a, b := g.all[1].Keeper(), g.all[2].Keeper(); a != g.all[1].id || b != a {
		t.Errorf("nobody can write: %x and %x are keepers", a, b)
	}
	if got := New(7).Keeper(); got != 7 {
		t.Errorf("it hears nobody: %x is the keeper", got)
	}
}

// Nobody takes a shard from an owner that is heard: at no time do two own a shard, whoever comes,
// as long as all hear each other.
func TestNobodyTakesAShardFromItsOwner(t *testing.T) {
	g := newGroup(t, 1)
	random := rand.New(rand.NewPCG(1, 2))
	g.delay = func() int64 { return random.Int64N(100 * ms) }
	g.run(2 * time.Second)
	g.check = func() {
		for shard := range shards {
			if owners := g.owning(shard); len(owners) > 1 {
				t.Fatalf("%v own shard %d", owners, shard)
			}
		}
	}
	for range 200 {
		switch {
		case len(g.all) < 6:
			g.add()
		case random.IntN(3) == 0:
			g.all[random.IntN(len(g.all))].serves[random.IntN(shards)] = random.IntN(2) == 0
		}
		g.run(time.Duration(random.IntN(6)) * Every)
	}
	g.run(2 * time.Second)
	g.wantOneOwner("in the end")
}

// While a shard goes to a better one, somebody hears its requests all the time.
func TestHandOver(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		g := newGroup(t, 1)
		g.delay = func() int64 { return random.Int64N(100 * ms) }
		g.run(2 * time.Second)
		g.check = func() {
			for shard := range shards {
				if len(g.owners(shard)) == 0 {
					t.Errorf("nobody owns shard %d", shard)
				}
			}
		}
		for range 4 {
			g.add()
			g.run(time.Duration(random.IntN(8)) * Every)
		}
		g.run(3 * time.Second)
		g.wantOneOwner("in the end")
	}
}

// Two that do not hear each other may both own a shard; when they do again, one gives way.
func TestTwoOwners(t *testing.T) {
	for _, tt := range []struct {
		why  string
		deaf func(from, to int) bool
	}{
		{"neither hears the other", func(from, to int) bool { return from != to }},
		{"one does not hear the other", func(from, to int) bool { return from == 0 && to == 1 }},
	} {
		g := newGroup(t, 2).run(2 * time.Second)
		g.deaf = tt.deaf
		g.run(5 * time.Second)
		two := 0
		for shard := range shards {
			switch len(g.owners(shard)) {
			case 0:
				t.Errorf("%s: shard %d has no owner", tt.why, shard)
			case 2:
				two++
			}
		}
		if two == 0 {
			t.Errorf("%s: no shard has two owners", tt.why)
		}
		g.deaf = func(int, int) bool { return false }
		g.run(2 * time.Second)
		g.wantOneOwner(tt.why)
	}
}

// An aggregator that hears nothing, not even itself, takes no shard, and others do not wait for it.
func TestOneThatHearsNothing(t *testing.T) {
	g := newGroup(t, 2)
	g.deaf = func(_, to int) bool { return to == 1 }
	g.run(5 * time.Second)
	for shard := range shards {
		if got := g.owners(shard); !slices.Equal(got, []int{0}) {
			t.Errorf("shard %d is owned by %v", shard, got)
		}
	}
}

// One that stops hearing anything, itself included, is no owner in the eyes of others.
func TestOneThatBecomesDeaf(t *testing.T) {
	g := newGroup(t, 2).run(2 * time.Second)
	g.wantOneOwner("both hear")
	g.deaf = func(_, to int) bool { return to == 1 }
	g.run(Silent + 2*Every)
	for shard := range shards {
		if got := g.owners(shard); !slices.Contains(got, 0) {
			t.Errorf("one is deaf: shard %d is owned by %v", shard, got)
		}
	}
	g.deaf = func(int, int) bool { return false }
	g.run(2 * time.Second)
	g.wantOneOwner("it hears again")
}

// Live counts those that are heard, the listener included: also one that owns nothing sees by it
// that it is cut off, or that another one is.
func TestLive(t *testing.T) {
	type count [3]int
	for _, tt := range []struct {
		why     string
		deaf    func(from, to int) bool
		stopped bool // the last one
		want    count
	}{
		{"all hear", func(int, int) bool { return false }, false, count{3, 3, 3}},
		{"nothing gets to the last", func(_, to int) bool { return to == 2 }, false, count{3, 3, 0}},
		{"nothing comes from the last", func(from, _ int) bool { return from == 2 }, false, count{2, 2, 2}},
		{"the last is cut off", func(from, to int) bool { return from == 2 || to == 2 }, false, count{2, 2, 0}},
		{"NATS is away", func(int, int) bool { return true }, false, count{}},
		{"the last has left", func(int, int) bool { return false }, true, count{2, 2, 0}},
	} {
		g := newGroup(t, 3)
		g.all[2].serves = make([]bool, shards)
		g.run(2 * time.Second)
		if g.deaf = tt.deaf; tt.stopped {
			g.stop(2)
		}
		g.run(Silent + 2*Every)
		var got count
		for i, a := range g.all {
			if !a.stopped {
				got[i] = a.Live(g.now)
			}
		}
		if got != tt.want {
			t.Errorf("%s: %v are heard, not %v", tt.why, got, tt.want)
		}
		g.deaf = func(int, int) bool { return false }
		g.run(Every)
		if n := g.all[0].Live(g.now); !tt.stopped && n != 3 {
			t.Errorf("%s, and no more: %d are heard", tt.why, n)
		}
	}
}

// While nobody hears anything, as while NATS is away, no shard moves, nor when all hear again.
func TestWhenAllAreDeafNothingMoves(t *testing.T) {
	g := newGroup(t, 3).run(2 * time.Second)
	g.wantOneOwner("all hear")
	same := func(why string) {
		t.Helper()
		for range 20 {
			g.run(Every)
			g.wantOneOwner(why)
		}
	}
	g.deaf = func(int, int) bool { return true }
	same("nobody hears")
	g.deaf = func(int, int) bool { return false }
	same("all hear again")
}

// A message in the name of an owner that claims to be of the future does not make it count as gone.
func TestMessageOfTheFuture(t *testing.T) {
	g := newGroup(t, 2).run(2 * time.Second)
	forged := g.all[1].Message(g.all[1].serves, g.now)
	forged.Sent = math.MaxInt64
	g.all[0].Observe(forged, g.now)
	for range 20 {
		g.tell(0)
		if len(g.owners(0)) != 1 || len(g.owners(1)) != 1 {
			t.Error("it counts as gone")
		}
		g.tell(1)
		g.now += int64(Every)
	}
	g.wantOneOwner("somebody has spoken for one of them")
}

// A message that says nothing new costs no review, nor does a review without one change anything.
func TestNothingNew(t *testing.T) {
	g := newGroup(t, 3).run(2 * time.Second)
	m, said := g.all[0], g.all[1].Message(g.all[1].serves, g.now)
	before := m.Members.owned
	for i := range shards / 8 {
		if m.Observe(said, g.now) {
			t.Error("the same again is news")
		}
		if owned, news := m.Own(m.serves, g.now); news || &owned[0] != &before[0] {
			t.Error("it is decided again")
		}
		changed := &events.Member{Id: said.Id, Sent: said.Sent, Shards: said.Shards, Serves: said.Serves, Owns: slices.Clone(said.Owns)}
		changed.Owns[i]++
		if !m.Observe(changed, g.now) || !m.Observe(said, g.now) {
			t.Errorf("a change of shard %d, and back, is no news", 8*i)
		}
		if _, news := m.Own(m.serves, g.now); news {
			t.Error("what has changed back is told")
		}
		before = m.Members.owned
	}
}

// Messages in this aggregator's own name that it cannot have sent, and repeats, do not count as
// heard, nor do they let it take others for gone, or keep it from noticing that one is.
func TestForgedInItsOwnName(t *testing.T) {
	for _, forged := range []int64{1, start, math.MaxInt64} {
		m := New(1)
		for now := start; now <= start+8000*ms; now += 250 * ms {
			m.Observe(&events.Member{Id: 1, Sent: forged}, now)
			m.Observe(&events.Member{Id: 1, Sent: now - 2*ms}, now)
			m.Observe(&events.Member{Id: 1, Sent: forged}, now)
			if now < start+5000*ms {
				m.Observe(&events.Member{Id: 2, Sent: now}, now)
			}
			if got, want := m.Listened(now), now >= start+750*ms; got != want {
				t.Errorf("after %d ms, with %d: it has listened: %v", (now-start)/ms, forged, got)
			}
			if got, want := len(m.others) == 1, now < start+5750*ms+int64(Every); got != want {
				t.Errorf("after %d ms, with %d: it knows the other one: %v", (now-start)/ms, forged, got)
			}
		}
	}
}

// One that hears others, and not itself, cannot tell who is gone. It takes nobody's word for longer
// than a second, and forgets them after a minute.
func TestWhoDoesNotHearItselfForgets(t *testing.T) {
	m := New(1)
	m.Observe(&events.Member{Id: 2, Sent: start, Shards: 1, Serves: []byte{1}}, start)
	for _, tt := range []struct {
		after         time.Duration
		lately, known bool
	}{{Silent, true, true}, {Silent + 1, false, true}, {forgotten, false, true}, {forgotten + 1, false, false}} {
		now := start + int64(tt.after)
		m.Own(make([]bool, 1), now)
		lately, echoes, known := m.ServedByOther(0, now), len(m.Message(nil, now).Echoes) == 1, len(m.others) == 1
		if lately != tt.lately || echoes != tt.lately || known != tt.known {
			t.Errorf("after %v: served: %v, an echo: %v, known: %v", tt.after, lately, echoes, known)
		}
	}
}

// Messages that come late, or again, change nothing.
func TestLateMessages(t *testing.T) {
	m := New(1)
	say := func(sent int64, serves byte) *events.Member {
		return &events.Member{Id: 2, Sent: sent, Shards: 8, Serves: []byte{serves}, Owns: []byte{serves}}
	}
	m.Observe(say(200, 0), start)
	m.Observe(say(100, 255), start)
	if o := m.others[2]; isSet(o.said.GetOwns(), 0) {
		t.Error("an earlier message took the place of a later one")
	}
	for i := range uint64(2 * events.MaxMembers) {
		m.Observe(&events.Member{Id: i + 10}, start)
	}
	if n := len(m.others); n > events.MaxMembers {
		t.Errorf("%d members are told apart", n)
	}
}

func TestBits(t *testing.T) {
	list := []bool{true, false, false, false, false, false, false, true, false, true}
	set := setOf(list, true)
	if fmt.Sprint(set) != "[129 2]" || len(setOf(make([]bool, 100), true)) != 0 {
		t.Errorf("%v", set)
	}
	for i := range 100 {
		if isSet(set, i) != (i < len(list) && list[i]) {
			t.Errorf("bit %d", i)
		}
	}
}
