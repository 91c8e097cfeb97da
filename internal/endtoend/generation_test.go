package endtoend

import (
	"context"
	"testing"
	"time"

	"github.com/offpath-io/offpath/internal/testing/membus"
	"github.com/offpath-io/offpath/pkg/aggregate"
)

// left returns how many hits a checker would still let pass.
func (w *world) left(c *checker, rule, key string) int64 {
	l, _ := c.Limiter(rule)
	return l.CheckAt(w.now, key, l.Rule().Limit+1).Remaining
}

// take sends n hits that must all pass, without holding them against what the checker can know.
func (w *world) take(c *checker, rule, key string, n int64) {
	w.t.Helper()
	l, _ := c.Limiter(rule)
	if d := l.CheckAt(w.now, key, n); !d.Allowed {
		w.fail("%s denies %d hits of %s: %+v", c.name, n, key, d)
	}
	w.admitted += n
}

func TestStoreLosesEverything(t *testing.T) {
	w := newWorld(t, 1, 3, 2, 1, membus.Faults{Delay: time.Millisecond})
	a, b, c := w.checkers[0], w.checkers[1], w.checkers[2]
	w.advance(time.Second)
	w.take(a, "minute", "k", 25)
	w.take(b, "minute", "k", 20)
	w.advance(time.Second)
	for _, x := range w.checkers { // c knows by the alarm alone
		if got := w.left(x, "minute", "k"); got != 15 {
			t.Fatalf("before: %s sees %d left, want 60-45", x.name, got)
		}
	}

	w.store.Lose()
	w.take(a, "minute", "k", 5)
	w.advance(time.Second)
	if got := w.left(a, "minute", "k"); got != 55 {
		t.Errorf("the reporter sees %d left, want 60-5: the new totals replace the old", got)
	}
	if got := w.left(c, "minute", "k"); got != 15 {
		t.Errorf("who has heard nothing new sees %d left, want still 15", got)
	}
	w.take(c, "minute", "k", 1)
	w.advance(time.Second)
	if got := w.left(c, "minute", "k"); got != 54 {
		t.Errorf("after its own report: %d left, want 60-6", got)
	}
	// From half of the limit on, an alarm brings the others into the new generation.
	w.take(a, "minute", "k", 30)
	w.advance(time.Second)
	for _, x := range w.checkers {
		if got := w.left(x, "minute", "k"); got != 24 {
			t.Errorf("after the alarm: %s sees %d left, want 60-36", x.name, got)
		}
	}
	if got := w.ledger()["minute"].Counted; got != 36 {
		t.Errorf("the new ledger has %d, want what came since: 36", got)
	}
}

func TestStoreComesBackWithAnOlderSnapshot(t *testing.T) {
	w := newWorld(t, 2, 2, 1, 1, membus.Faults{Delay: time.Millisecond})
	a, b := w.checkers[0], w.checkers[1]
	w.advance(time.Second)
	w.take(a, "minute", "k", 10)
	w.advance(time.Second)
	snapshot := w.store.Snapshot()
	w.take(a, "minute", "k", 10)
	w.take(b, "minute", "k", 10)
	w.advance(time.Second)
	w.store.Restore(snapshot)

	// Any report gives it away: its checker has seen a later version than the store now has.
	w.take(b, "minute", "other", 1)
	w.advance(time.Second)
	w.take(b, "minute", "k", 1)
	w.advance(time.Second)
	if got := w.left(b, "minute", "k"); got != 49 {
		t.Errorf("b sees %d left, want 60 less the snapshot's 10 and the new hit", got)
	}
	w.take(a, "minute", "k", 1)
	w.advance(time.Second)
	if got := w.left(a, "minute", "k"); got != 48 {
		t.Errorf("a sees %d left, want 60-12", got)
	}
	if got := w.ledger()["minute"].Counted; got != 13 {
		t.Errorf("the ledger has %d, want 10+1+1+1", got)
	}
}

// TestReportInFlightWhenDataIsLost: the report was counted, its answer lost, and then its count.
func TestReportInFlightWhenDataIsLost(t *testing.T) {
	w := newWorld(t, 3, 2, 1, 1, membus.Faults{})
	a, b := w.checkers[0], w.checkers[1]
	w.advance(time.Second)
	w.take(b, "minute", "k", 3)
	w.advance(time.Second)
	w.store.mode = storeCutOff
	w.take(a, "minute", "k", 7)
	w.advance(time.Second)
	w.store.Lose()
	w.store.mode = storeWorks
	w.advance(3 * time.Second)
	if got := w.left(a, "minute", "k"); got != 53 {
		t.Errorf("a sees %d left, want 60-7: its report was counted again where it had been lost", got)
	}
	if got := w.ledger()["minute"].Counted; got != 7 {
		t.Errorf("the ledger has %d, want 7", got)
	}
}

// TestLossesAtRandom: whatever is lost and when, no checker ends up believing that less was counted
// than the store has; and as long as one worker lives through it all, which then knows the latest
// version, all checkers that still report end up with exactly the store's totals. (A blocked key
// reports nothing, and stays blocked by the hits that there really were. And with no such worker, an
// older snapshot can get past the version that an absent checker has seen before that one is back; it
// then keeps the higher totals of before, until they leave the window.)
func TestLossesAtRandom(t *testing.T) {
	schedules := uint64(1500)
	if testing.Short() {
		schedules = 40
	}
	exact, looks := 0, 0
	for seed := range schedules {
		workers := 1 + int(seed/4%2)
		w := newWorld(t, seed, 1+int(seed%4), workers, 1, randomFaults(seed))
		w.immortal = workers == 1
		w.loseAtRandom()
		w.settle()
		for range 2 { // the second time, everybody has seen the latest generation
			for _, c := range w.checkers {
				l, _ := c.Limiter("minute")
				l.CheckAt(w.now, "k", 1)
				w.advance(time.Second + w.quietFor)
				want := max(testRules[3].Limit-w.stored("minute", "k"), 0)
				got := w.left(c, "minute", "k")
				if got > want {
					w.fail("%s sees %d left, by the store it is %d", c.name, got, want)
				}
				if got == want {
					exact++
				}
				looks++
			}
		}
		for _, c := range w.checkers {
			want := max(testRules[3].Limit-w.stored("minute", "k"), 0)
			if got := w.left(c, "minute", "k"); w.immortal && got < want && got > 0 {
				w.fail("%s sees %d left, by the store it is %d", c.name, got, want)
			}
		}
	}
	t.Logf("%d schedules; %d of %d looks were exact", schedules, exact, looks)
}

func (w *world) loseAtRandom() {
	snapshot := w.store.Snapshot()
	for range 80 {
		w.accident()
		switch w.rand.IntN(15) {
		case 0:
			snapshot = w.store.Snapshot()
		case 1:
			w.store.Restore(snapshot)
		case 2:
			w.store.Lose()
		}
		l, _ := w.checkers[w.rand.IntN(len(w.checkers))].Limiter("minute")
		l.CheckAt(w.now, "k", 1)
		w.advance(time.Duration(w.rand.Int64N(int64(40 * time.Millisecond))))
	}
}

// stored asks the store itself for a key's count over its live window; there is one shard.
func (w *world) stored(rule, key string) int64 {
	w.t.Helper()
	r, _ := w.rules.Lookup(rule)
	applied, err := w.store.Apply(context.Background(), &aggregate.Fold{
		Now:    w.now,
		Rules:  []aggregate.Rule{{Name: rule, Shape: r.Window, Limit: r.Limit}},
		Ledger: make([]aggregate.Tally, 1),
		Keys:   []aggregate.Key{{Text: key}},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	var sum int64
	for _, c := range applied.Totals[0] {
		sum += c.Count
	}
	return sum
}
