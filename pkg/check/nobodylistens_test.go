package check

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/events"
)

// twoShards is a checker that an aggregator has answered a report of shard 0, and that has another
// one of it and one of shard 1 on their way.
func twoShards(t *testing.T) (f *fleet, now int64) {
	t.Helper()
	f = unwelcomed(t, Options{Tuning: tuning{ReportTimeout: 100 * time.Millisecond}}, rule("r", 100, time.Minute, 1))
	atTime(noon, f).Step()
	f.welcome(noon, 2)
	atTime(noon, f).Step()
	l := limiter(t, f.Checker, "r")
	keyIn := func(shard uint32) string {
		for i := 0; ; i++ {
			if key := fmt.Sprint("key ", i); events.Shard("r", key, 2) == shard {
				return key
			}
		}
	}
	now = noon + 50*ms
	atTime(now, l).Check(keyIn(0), 1)
	atTime(now, f).Step()
	m := f.refresh(1)
	m.Aggregator = 7
	f.receive(now, events.KindRefresh, m)
	atTime(now, l).Check(keyIn(0), 1)
	atTime(now, l).Check(keyIn(1), 1)
	now += 50 * ms
	f.tape.to = nil
	atTime(now, f).Step()
	f.wantSent(t, "the next reports", "0 to 7", "1 to 0")
	return f, now
}

// wantSent checks which reports were sent since the last time: the shard, and to whom.
func (f *fleet) wantSent(t *testing.T, why string, want ...string) {
	t.Helper()
	slices.Sort(f.tape.to)
	expect(t, slices.Equal(f.tape.to, want), "%s: sent %q, want %q", why, f.tape.to, want)
	f.tape.to = nil
}

// TestOneThatIsGone: what was sent to an aggregator that is not there goes to any, at once.
func TestOneThatIsGone(t *testing.T) {
	f, now := twoShards(t)
	m := f.refresh(1) // of shard 1, the last
	m.Aggregator = 8
	f.receive(now, events.KindRefresh, m)
	atTime(now, f).Receive(events.KindUnheard, nil)
	atTime(now+ms, f).Step()
	f.wantSent(t, "nobody was there", "0 to 0")
	atTime(now+ms, f).Receive(events.KindUnheard, nil)
	atTime(now+2*ms, f).Step()
	f.wantSent(t, "nobody at all is there")
}

// TestAShardThatNobodyAttends: that nobody takes its reports says nothing of those of other shards.
func TestAShardThatNobodyAttends(t *testing.T) {
	f, now := twoShards(t)
	atTime(now, f).Receive(events.KindUnheard, nil)
	atTime(now+ms, f).Step()
	f.wantSent(t, "nobody attends to shard 1")
	now += int64(time.Second)
	atTime(now, f).Step()
	f.wantSent(t, "no answer came either", "0 to 0", "1 to 0")
}
