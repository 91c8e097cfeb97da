package aggregate_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/memstore"
)

func (b *silent) wantAttended(t *testing.T, why string, want ...bool) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.Equal(b.attended, want) {
		t.Errorf("%s: attends to %v, want %v", why, b.attended, want)
	}
}

// A shard that the store takes no batch of is left at once to whoever can write to it, and taken up
// again when the store does, also without any traffic.
func TestAShardInTroubleIsLeft(t *testing.T) {
	store := &faulty{Store: memstore.New()}
	d := newFixture(t, store, func(o *aggregate.Options) { o.Shards = 2 })
	d.bus.wantAttended(t, "at first", true, true)
	m := report(1, 1, perSecond(start), own{"a", 0, 1})
	m.Shards, m.Shard = 2, 1

	store.have(faults{before: errors.New("read-only")})
	d.send(start, m)
	d.step(start + 2*ms)
	d.bus.wantAttended(t, "after a batch that failed", true, false)
	if next := d.step(start + 10*ms); next > start+260*ms {
		t.Errorf("looks again in %d ms", (next-start)/ms)
	}
	d.step(start + 500*ms)
	d.bus.wantAttended(t, "it still fails", true, false)
	store.have(faults{})
	d.step(start + second)
	d.bus.wantAttended(t, "it works again", true, true)

	store.hook = failingWithKeys(errPoison)
	m.Sequence++
	d.send(start+2*second, m)
	d.step(start + 2*second + 2*ms)
	d.bus.wantAttended(t, "what fails for its content", true, true)
}

// A store that does not answer is no better than one that refuses.
func TestAShardThatHangsIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, &slow{Store: memstore.New(), takes: time.Second})
		r.send(report(1, 1, perSecond(time.Now().UnixNano()), own{"a", 0, 1}))
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		r.line.wantAttended(t, "while it hangs", false)
		time.Sleep(time.Second)
		synctest.Wait()
		r.line.wantAttended(t, "once it has answered", true)
	})
}

// A call may end just when it has taken too long: the shard is not left after it has ended.
func TestAShardIsNotLeftAfterAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, &slow{Store: memstore.New(), takes: 250 * time.Millisecond})
		for i := range uint64(200) {
			r.send(report(1, i+1, perSecond(time.Now().UnixNano()), own{"a", 0, 1}))
			time.Sleep(260 * time.Millisecond)
			synctest.Wait()
			r.line.wantAttended(t, "once it has answered", true)
		}
	})
}
