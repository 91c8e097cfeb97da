package endtoend

import (
	"fmt"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

// Windows of a minute: no settlement of these schedules comes when its bucket is gone.
var (
	settledTokens = rules.Rule{Name: "tokens", Key: []string{"user"}, Limit: 30, Burst: 90, Algorithm: rules.TokenBucket, Window: window.Shape{Length: time.Minute}}
	settledQueue  = rules.Rule{Name: "queue", Key: []string{"user"}, Limit: 120, Burst: 90, Algorithm: rules.LeakyBucket, Window: window.Shape{Length: time.Minute}}
)

// TestSettlementsOfBuckets: on bad networks, with a bad store and killed aggregators, hits of token and leaky buckets are
// settled late, early, up, down, twice, and at several checkers at once. In the end the ledger knows of each once, and
// every checker knows the level that the true costs come to.
func TestSettlementsOfBuckets(t *testing.T) {
	schedules := uint64(600)
	if testing.Short() {
		schedules = 25
	}
	var bills, twice int
	var settled, refunded int64
	for seed := range schedules {
		rule := settledTokens
		if seed%2 == 1 {
			rule = settledQueue
		}
		w, list := runSettledBucket(t, seed, rule)
		for _, b := range list {
			bills++
			if len(b.settledAt) > 1 {
				twice++
			}
		}
		for _, l := range w.ledger() {
			settled, refunded = settled+l.Settled, refunded+l.Refunded
		}
	}
	t.Logf("%d schedules: %d bills, %d of them settled at several checkers; %d hits more and %d fewer than estimated",
		schedules, bills, twice, settled, refunded)
	if twice == 0 || settled == 0 || refunded == 0 {
		t.Error("the schedules were too tame")
	}
}

func runSettledBucket(t *testing.T, seed uint64, rule rules.Rule) (*world, []*bill) {
	t.Helper()
	w := newWorldOf(t, seed, 1+int(seed/2%4), 1+int(seed/8%3), 1+int(seed/24%3), randomFaults(seed), rule)
	var list []*bill
	for range 60 {
		w.accident()
		for range w.rand.IntN(3) {
			b := w.charge(w.rand.IntN(len(w.checkers)), fmt.Sprint("k", w.rand.IntN(2)), 1+w.rand.Int64N(20), w.rand.Int64N(24))
			if b != nil {
				list = append(list, b)
			}
		}
		if len(list) > 0 && w.rand.IntN(2) == 0 {
			w.pay(list[max(w.rand.IntN(len(list)), w.rand.IntN(len(list)))], w.rand.IntN(len(w.checkers)))
		}
		w.advance(time.Duration(w.rand.Int64N(int64(60 * time.Millisecond))))
		if w.rand.IntN(30) == 0 {
			w.advance(time.Duration(w.rand.Int64N(int64(4 * time.Second))))
		}
	}
	w.settle()
	w.conserved()
	w.billed(list)
	if rule.Algorithm == rules.LeakyBucket {
		list = w.trueTurns(list)
	} else {
		w.trueLevels(list)
	}
	w.outlast()
	w.conserved()
	w.billed(list)
	return w, list
}

// trueLevels has one checker after the other report a hit, and then know what the true costs of all hits come to: now,
// and when the buckets of all of them have gone into the level.
func (w *world) trueLevels(list []*bill) {
	w.t.Helper()
	for _, wait := range []time.Duration{5 * time.Second, 70 * time.Second} {
		w.advance(wait)
		for k := range 2 {
			key := fmt.Sprint("k", k)
			for _, c := range w.checkers {
				b := w.trueHit(c, key)
				if b == nil {
					continue
				}
				list = append(list, b)
				w.advance(time.Second + w.quietFor)
				w.knows(c, key, list)
			}
		}
	}
}

// trueTurns has one checker after the other charge a hit to an empty queue, and another one settle it. Then all of them
// know when the next one's turn is.
func (w *world) trueTurns(list []*bill) []*bill {
	w.t.Helper()
	for i := range w.checkers {
		w.advance(2 * time.Minute)
		b := w.charge(i, "k0", 80, w.rand.Int64N(80))
		if b == nil {
			w.fail("%s: the queue is not empty", w.checkers[i].name)
		}
		list = append(list, b)
		w.advance(time.Duration(w.rand.Int64N(int64(8 * time.Second))))
		w.pay(b, w.rand.IntN(len(w.checkers)))
		w.advance(time.Second + w.quietFor)
		for _, c := range w.checkers {
			w.knows(c, "k0", list)
		}
	}
	return list
}

// trueHit charges a hit that costs what it was charged.
func (w *world) trueHit(c *checker, key string) *bill {
	rule := w.rules.Rules()[0]
	l, _ := c.Limiter(rule.Name)
	if !l.CheckAt(w.now, key, 1).Allowed {
		return nil
	}
	w.admitted++
	return &bill{key: key, bucket: map[string]int64{rule.Name: rule.Window.Bucket(w.now)}, estimate: 1}
}

// knows holds what a checker says is left, or when the next one's turn is, against the bills.
func (w *world) knows(c *checker, key string, list []*bill) {
	w.t.Helper()
	rule := w.rules.Rules()[0]
	first := rule.Window.Bucket(start) - 1
	counts := make([]int64, rule.Window.Bucket(w.now)-first)
	for _, b := range list {
		switch age := rule.Window.Bucket(w.now) - b.bucket[rule.Name]; {
		case b.key != key:
		case b.settled():
			counts[age] += b.cost
		default:
			counts[age] += b.estimate
		}
	}
	drain, level := rule.Drain(), window.Level{Bucket: first}
	l, _ := c.Limiter(rule.Name)
	if rule.Algorithm == rules.TokenBucket {
		want := drain.Remaining(level, counts, w.now)
		if got := l.CheckAt(w.now, key, rule.Capacity()+1).Remaining; got != want {
			w.fail("%s knows of %d left of %s, the truth is %d", c.name, got, key, want)
		}
		return
	}
	least, most := drain.Turn(level, counts, w.now), drain.Reset(level, counts, w.now)
	d := l.PeekAt(w.now, key, 1)
	if wait := d.RetryAfter; wait < least || wait > most || d.Allowed != (wait == 0) {
		w.fail("%s says that %s has a turn in %v, want %v to %v: %+v", c.name, key, wait, least, most, d)
	}
}

// TestBucketsAreSettledOverRedis: with real servers, a hit that cost less at one checker makes room at all of them.
func TestBucketsAreSettledOverRedis(t *testing.T) {
	rule := rules.Rule{Name: "tokens", Key: []string{"user"}, Limit: 1, Burst: 100, Algorithm: rules.TokenBucket, Window: window.Shape{Length: time.Hour}}
	f := newLive(t, singleRedis(t), 3, 2, rule)
	f.welcomed()
	left := func(i int) int64 {
		l, _ := f.checkers[i].Limiter("tokens")
		return l.Peek("k", 1).Remaining
	}
	everywhere := func(what string, want int64) { // or one less, since checkers reckon with hits of others
		t.Helper()
		for i := range f.checkers {
			f.until(what, func() bool { return left(i) == want || left(i) == want-1 })
		}
	}
	l, _ := f.checkers[0].Limiter("tokens")
	d, token := l.CheckToken("k", 90)
	if !d.Allowed {
		t.Fatalf("%+v", d)
	}
	f.admitted.Add(90)
	everywhere("all know of the estimate", 10)
	if err := f.checkers[1].Settle(token, 20); err != nil {
		t.Fatal(err)
	}
	everywhere("all know of the true cost", 80)
	if err := f.checkers[2].Settle(token, 0); err != nil { // who does not know that it was
		t.Fatal(err)
	}
	l, _ = f.checkers[2].Limiter("tokens")
	if d := l.Check("k", 70); !d.Allowed {
		t.Fatalf("%+v", d)
	}
	f.admitted.Add(70)
	everywhere("all know of both hits, and of one settlement only", 10)
	f.conserved()
}
