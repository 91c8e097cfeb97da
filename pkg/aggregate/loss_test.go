package aggregate_test

import (
	"strings"
	"testing"

	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/memstore"
)

// Each worker reports a loss of the store's data once, whichever worker remembered the state, with
// its size as far as that is known.
func TestALossIsReportedOnce(t *testing.T) {
	for _, c := range []struct {
		name      string
		batches   uint64 // counted before
		kept      uint64 // of these, in the copy that the store comes back with; 0: it comes back empty
		restarted bool   // the worker, so that only the memory remembers
		want      string
	}{
		{"flushed", 20, 0, false, "all of 20 batches"},
		{"failed over", 100, 71, false, "the last 29 of 100 batches"},
		{"with all workers away", 20, 0, true, "all of 20 batches"},
	} {
		memory := new(memstore.Memory)
		kept := func(o *aggregate.Options) { o.Memory = memory }
		store := memstore.New()
		copied := store.Snapshot()
		d := newFixture(t, store, kept)
		other := newFixture(t, store) // learns of the state by its first answer
		other.exchange(start, report(2, 1, perSecond(start), own{"a", 0, 1}))
		m := report(1, 0, perSecond(start), own{"a", 0, 1})
		for n := uint64(2); n <= c.batches; n++ {
			m.Sequence++
			if d.exchange(start, m); n == c.kept {
				copied = store.Snapshot()
			}
		}
		store.Restore(copied)
		if c.restarted {
			d.step(start + 2*second) // when it tells the memory
			if strings.Contains(d.log.String(), "lost data") {
				t.Errorf("%s: the one before has lost data:\n%s", c.name, d.log)
			}
			d = newFixture(t, store, kept)
		}
		for range 3 {
			m.Sequence++
			d.exchange(start, m)
		}
		other.exchange(start, report(2, 2, perSecond(start), own{"a", 0, 1}))
		for _, w := range []*fixture{d, other} {
			got, lost, last := w.worker.Stats(), int64(c.batches-c.kept), w.worker.Stats().LastLoss
			if got.Losses != 1 || got.LostBatches != lost || last.String() != c.want || last.At == 0 {
				t.Errorf("%s: %d losses, %d batches, %+v", c.name, got.Losses, got.LostBatches, last)
			}
			if n := strings.Count(w.log.String(), "lost data"); n != 1 || !strings.Contains(w.log.String(), c.want) {
				t.Errorf("%s: the log says %d times, want %q:\n%s", c.name, n, c.want, w.log)
			}
		}
	}
}
