package aggregate_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/memstore"
)

// A store that has lost data is told of once by each worker, whoever remembered it and however
// often it is heard of, with what is known of its size.
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
		var log bytes.Buffer
		memory := new(memstore.Memory)
		logged := func(o *aggregate.Options) { o.Log, o.Memory = slog.New(slog.NewTextHandler(&log, nil)), memory }
		store := memstore.New()
		copied := store.Snapshot()
		d := newFixture(t, store, logged)
		other := newFixture(t, store) // told by the first answer that it gets
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
			d = newFixture(t, store, logged)
		}
		for range 3 {
			m.Sequence++
			d.exchange(start, m)
		}
		other.exchange(start, report(2, 2, perSecond(start), own{"a", 0, 1}))
		if n := strings.Count(log.String(), "lost data"); n != 1 || !strings.Contains(log.String(), c.want) {
			t.Errorf("%s: the log says %d times, want %q:\n%s", c.name, n, c.want, log.String())
		}
		for _, w := range []*fixture{d, other} {
			got := w.worker.Stats()
			if lost := int64(c.batches - c.kept); got.Losses != 1 || got.LostBatches != lost || got.LastLoss.String() != c.want || got.LastLoss.At == 0 {
				t.Errorf("%s: %d losses, %d batches, %+v", c.name, got.Losses, got.LostBatches, got.LastLoss)
			}
		}
	}
}
