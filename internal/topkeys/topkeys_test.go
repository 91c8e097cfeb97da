package topkeys

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
	"unsafe"
)

// at is a clock that a test sets.
type at struct{ time.Time }

func (c *at) now() time.Time { return c.Time }

func (c *at) pass(d time.Duration) { c.Time = c.Add(d) }

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// Few keys are counted exactly.
func TestFewKeys(t *testing.T) {
	clock := &at{noon}
	top := New(clock.now)
	for i := range 20 {
		for range i {
			top.Add("r", fmt.Sprint("key", i), 2)
		}
		top.Add("s", fmt.Sprint("key", i), 1)
	}
	clock.pass(10 * time.Second)
	list, span := top.Top(3)
	want := []Count{{Key{"r", "key19"}, 38}, {Key{"r", "key18"}, 36}, {Key{"r", "key17"}, 34}}
	if fmt.Sprint(list) != fmt.Sprint(want) || span != 10*time.Second {
		t.Errorf("%v in %v", list, span)
	}
	if list, _ := top.Top(100); len(list) != 39 {
		t.Errorf("%d keys", len(list))
	}
}

// Of very many keys those that come most are found, and their counts are right to 0.1 % of
// everything.
func TestManyKeys(t *testing.T) {
	clock := &at{noon}
	top := New(clock.now)
	// With a random seed two of the frequent keys share all their places in one of 6,000 runs.
	top.half.sketch.SetHash(fnv.New64a())
	random := rand.New(rand.NewPCG(1, 2))
	total := int64(0)
	for range 100_000 { // each of these comes once
		top.Add("r", fmt.Sprint("single", random.Uint64()), 1)
		total++
	}
	for i := range 50 {
		for range 20 {
			top.Add("r", fmt.Sprint("top", i), int64(10*(i+1)))
			total += int64(10 * (i + 1))
		}
	}
	list, _ := top.Top(20)
	if len(list) != 20 {
		t.Fatalf("%d keys", len(list))
	}
	for i, c := range list {
		true := int64(200 * (50 - i))
		if c.Text != fmt.Sprint("top", 49-i) || c.Count < true || c.Count > true+total/1000 {
			t.Errorf("place %d: %v, want top%d with %d", i+1, c, 49-i, true)
		}
	}
	if n := len(top.half.counts); n > 2*kept {
		t.Errorf("%d keys are kept", n)
	}
}

// What came more than a span ago is forgotten, and nothing of the last half.
func TestForgets(t *testing.T) {
	clock := &at{noon}
	top := New(clock.now)
	top.Add("r", "old", 100)
	clock.pass(Span / 2)
	top.Add("r", "newer", 10)
	if list, span := top.Top(10); len(list) != 2 || span != Span/2 {
		t.Errorf("both halves: %v in %v", list, span)
	}
	clock.pass(Span / 2)
	if list, span := top.Top(10); len(list) != 1 || list[0].Text != "newer" || span != Span/2 {
		t.Errorf("the later half: %v in %v", list, span)
	}
	clock.pass(2 * Span)
	if list, _ := top.Top(10); len(list) != 0 {
		t.Errorf("long after: %v", list)
	}
}

// However many come at once, few are counted one by one, and their weights add up to about all of
// them.
func TestGate(t *testing.T) {
	for _, perSlotCame := range []int{100, perSlot, 10 * perSlot, 200 * perSlot} {
		var g gate
		var through, sum int64
		const slots = 10
		for slot := range int64(slots) {
			for range perSlotCame {
				if w := g.weigh(slot * slotLength); w > 0 {
					through, sum = through+1, sum+w
				}
			}
		}
		all := int64(slots * perSlotCame)
		if sum < all*9/10 || sum > all*11/10 {
			t.Errorf("%d at a time: counted %d of %d", perSlotCame, sum, all)
		}
		if most := int64(slots * perSlot * 12); through > most || perSlotCame <= perSlot && through != all {
			t.Errorf("%d at a time: %d of %d went through", perSlotCame, through, all)
		}
	}
}

func TestAddsAtOnce(t *testing.T) {
	top := New(time.Now)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for i := range 1000 {
				top.AddSome("r", fmt.Sprint(i%10), 1)
			}
		})
	}
	all.Wait()
	if list, _ := top.Top(100); len(list) != 10 {
		t.Errorf("%v", list)
	}
}

func BenchmarkAddSome(b *testing.B) {
	top := New(time.Now)
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			top.AddSome("create-per-user", "kristie|createURL", 1)
		}
	})
}

// Checkers hand texts in memory that they use again for the next key.
func TestTextsAreNotKept(t *testing.T) {
	top := New(time.Now)
	memory := []byte("/innocent")
	for range 3 {
		top.Add("r", unsafe.String(&memory[0], len(memory)), 1)
	}
	copy(memory, "somebody.")
	if list, _ := top.Top(10); len(list) != 1 || list[0].Text != "/innocent" || list[0].Count != 3 {
		t.Errorf("%+v", list)
	}
}
