package check

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/offpath-io/offpath/pkg/events"
)

// TestStopGivesPermitsBack: when Run returns, every permit that was not spent has been given back, those too that
// were still on their way when it was told to stop.
func TestStopGivesPermitsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys = 2500
		f := &fleet{t: t, tape: new(tape)}
		f.Checker = newChecker(t, Options{Link: f.tape, MaxIdleKeys: -1, ReportKeys: 700}, strictRule("r", 1000, time.Hour, 1))
		l := limiter(t, f.Checker, "r")
		ctx, stop := context.WithCancel(context.Background())
		defer stop()
		done := make(chan error, 1)
		go func() { done <- f.Run(ctx) }()
		synctest.Wait()
		f.welcome(ownTime(), 1)

		granted, returned, answered := map[string]uint64{}, map[string]uint64{}, 0
		answer := func() { // what has been asked for, 2 ms later
			time.Sleep(2 * time.Millisecond)
			synctest.Wait()
			f.behind.mu.Lock() // which Run sends under
			requests := f.tape.leases[answered:]
			f.behind.mu.Unlock()
			for _, m := range requests {
				f.receive(ownTime(), events.KindGrant, grantWanted(m, granted, returned))
			}
			answered += len(requests)
		}
		for i := range keys {
			l.Check(fmt.Sprint("key", i), 1) // refused, and asked for
		}
		for len(granted) < keys-500 {
			answer()
		}
		stop()
		for i := 0; len(done) == 0; i++ {
			if i == 100 {
				t.Fatal("Run does not end")
			}
			answer()
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		if left := sum(granted) - sum(returned); len(granted) != keys || left != 0 {
			t.Errorf("%d permits of %d keys are neither spent nor given back; %d keys asked for some", left, len(granted), keys)
		}
		if d := l.Check("key0", 1); d.Allowed {
			t.Error("a permit is left after Run")
		}
	})
}

// grantWanted grants what a request asks for, and notes all that has been granted and given back, by key.
func grantWanted(m *events.LeaseRequest, granted, returned map[string]uint64) *events.Grant {
	g := &events.Grant{Epoch: m.Epoch, Shard: m.Shard, Sequence: m.Sequence, Generation: 1, Version: m.Sequence}
	text, values := m.Keys.KeyText, m.Keys.Value
	for i, length := range m.Keys.KeyLength {
		key := string(text[:length])
		text = text[length:]
		cells := m.Keys.KeyCells[i]
		for _, n := range values[:cells] {
			returned[key] = n // there is but one bucket
		}
		values = values[cells:]
		granted[key] = max(granted[key], m.Known[i]+m.Want[i])
		g.Age, g.WaitMs = append(g.Age, m.Age[i]), append(g.WaitMs, 0)
		g.Granted, g.Spoken = append(g.Granted, granted[key]), append(g.Spoken, granted[key])
	}
	return g
}

func sum(counts map[string]uint64) (n uint64) {
	for _, c := range counts {
		n += c
	}
	return n
}
