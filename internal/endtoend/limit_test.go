package endtoend

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

// How well a fleet keeps to a limit, in exact time.

// TestUsedUpKeyIsDeniedEverywhere offers one key ten times its limit on four checkers, 2 ms from
// the aggregators: once the limit is used up no hit passes on any of them later than a round trip
// after that (5 ms are measured, in steps of 5), for as long as it stays used up.
func TestUsedUpKeyIsDeniedEverywhere(t *testing.T) {
	for seed := range seeds(2, 6) { // with forecasts, and by what they know alone
		w := newWorld(t, wellConnected(seed, 4))
		w.meet()
		p, shape, limit := place{"second", "k"}, testRules[0].Window, testRules[0].Limit
		var since, latest int64 // since when it has been used up; 0 while it is not
		for i := range 4000 {   // 20 s at 200 hits per second
			used := shape.Remaining(recall(w.truth, p).counts(shape, w.now), limit, w.now) == 0
			switch {
			case !used:
				since = 0
			case since == 0:
				since = w.now
			}
			before := w.admitted
			w.hit(w.checkers[i%4], p.rule, p.key, 1)
			if used && w.admitted > before {
				latest = max(latest, w.now-since)
			}
			w.advance(5 * time.Millisecond)
		}
		t.Logf("%d of 4000 hits passed, the last %v after the limit was used up", w.admitted, time.Duration(latest))
		w.require(latest <= int64(10*time.Millisecond), "a hit passed %v after the limit was used up", time.Duration(latest))
		w.mend()
		w.conserved()
	}
}

// TestNobodyIsDeniedBelowTheLimit offers 0.8 of a limit to four checkers, one of which hears
// nothing for five windows. It forecasts others' hits by its own that it could not report, and
// these must leave the window meanwhile: nobody is denied.
func TestNobodyIsDeniedBelowTheLimit(t *testing.T) {
	for _, buckets := range []int{1, 4} {
		for seed := range seeds(1, 8) {
			w := newWorld(t, wellConnected(3*seed, 4, counting("r", 1000, window.Shape{Length: time.Second, Buckets: buckets})))
			w.meet()
			for hit := range 8000 { // in ten seconds
				if hit == 2000 || hit == 6000 {
					w.bus.Cut("c0", hit == 2000)
				}
				w.require(w.request(w.anyone(), "r", "k", 1), "%d buckets: hit %d is denied", buckets, hit)
				w.advance(1250 * time.Microsecond)
			}
		}
	}
}

// TestShareOfTheLimitWithoutTheStore: while the store is away aggregators are there but cannot
// count. So checkers must not take what they know for fresh: each keeps to its share of the limit
// until it is back.
func TestShareOfTheLimitWithoutTheStore(t *testing.T) {
	rule := counting("r", 40, window.Shape{Length: time.Second, Buckets: 1, Fixed: true})
	w := newWorld(t, wellConnected(6, 4, rule))
	fresh := func(want check.Freshness) {
		t.Helper()
		for _, c := range w.checkers {
			got := c.Stats().Freshness
			w.require(got == want, "%s is %v, want %v", c.name, got, want)
		}
	}
	w.advance(10 * time.Second)
	fresh(check.Fresh)
	w.store.mode = storeDown
	w.advance(time.Minute)
	fresh(check.LocalShare)
	for range 3 {
		w.advance(time.Duration(rule.Window.End(rule.Window.Bucket(w.now)) - w.now))
		for _, c := range w.checkers {
			passed := 0
			for range 40 {
				if w.request(c, "r", "k", 1) {
					passed++
				}
			}
			w.require(passed == 10, "%s lets %d hits pass, want a quarter of 40", c.name, passed)
		}
	}
	w.mend()
	fresh(check.Fresh)
	w.conserved()
}

// TestShareOfTheLimitOfADeadShard: one node of a Cluster dies, for a minute. From the level of
// local shares on, 8 checkers keep to the limit of its keys, while the keys of the other shards are
// decided as before, and what nobody asks for is not taken for dead.
func TestShareOfTheLimitOfADeadShard(t *testing.T) {
	const shards, limit = 4, 40
	rule := counting("r", limit, window.Shape{Length: time.Second, Buckets: 1, Fixed: true})
	o := wellConnected(6, 8, rule)
	o.shards = shards
	w := newWorld(t, o)
	keys, dead := make([]string, shards), uint32(2)
	for i := range 100 {
		key := fmt.Sprint("k", i)
		keys[events.Shard("r", key, shards)] = key
	}
	quiet := uint32(3) // nobody asks for a key of this shard during the outage
	offer := func(windows int) (most [shards]int) {
		for range windows {
			w.advance(time.Duration(rule.Window.End(rule.Window.Bucket(w.now)) - w.now))
			var passed [shards]int
			for range 8 * limit {
				c := w.anyone()
				for s, key := range keys[:quiet] {
					if w.request(c, "r", key, 1) {
						passed[s]++
					}
				}
				w.advance(time.Second / (8*limit + 1))
			}
			for s := range most {
				most[s] = max(most[s], passed[s])
			}
		}
		return most
	}
	levels := func(why string, want check.Freshness) {
		t.Helper()
		for _, c := range w.checkers {
			l, _ := c.Limiter("r")
			for s, key := range keys {
				all, got := check.Fresh, c.Do(check.Request{Limiter: l, Key: key, Mode: check.Peek}).Freshness
				if uint32(s) == dead {
					all = want
				}
				w.require(got == all, "%s: %s has shard %d as %v, want %v", why, c.name, s, got, all)
			}
			got := c.Stats().Freshness
			w.require(got == want, "%s: the worst of %s is %v, want %v", why, c.name, got, want)
		}
	}
	w.advance(5 * time.Second)
	offer(1)
	levels("before", check.Fresh)
	w.store.dead = map[uint32]bool{dead: true}
	offer(10)
	levels("after ten seconds", check.Stale)
	offer(15)
	levels("after twenty-five", check.LocalShare)
	most := offer(35)
	levels("after a minute", check.LocalShare)
	t.Logf("most in a window, of a limit of %d: %v; the dead shard is %d", limit, most, dead)
	for s, n := range most[:quiet] {
		w.require(n >= limit && n <= limit*9/8, "%d hits pass in a window of shard %d, of a limit of %d", n, s, limit)
	}
	w.require(most[dead] == limit, "%d hits pass in a window of the dead shard, of shares of %d", most[dead], limit)
	w.store.dead = nil
	w.advance(5 * time.Second)
	levels("mended", check.Fresh)
	w.mend()
	w.conserved()
}

// TestOutflowOfAFleetIsEven: what a leaky bucket lets pass is one stream over all checkers, about
// as even as that of one. Each of them knows its own hits to the nanosecond and others' by their
// messages, so hits of two may come together, and after such there is a gap. -v prints the figures
// of docs/rules.md.
//
// While reports went to any aggregator, 8 checkers passed 999.4/s in the mean of seeds 0 to 4, most
// in 20 ms 34, with gaps of 23 ms. Since they go to one first, its owner, they hear of each
// other together and part their turns more evenly: 995.4/s, 28 and 11 ms. The bound for the rate is
// of the mean.
func TestOutflowOfAFleetIsEven(t *testing.T) {
	const limit, second = 1000, int64(time.Second)
	for _, fleet := range []struct {
		checkers, most int           // hits in 20 ms; an even stream has 20
		gap            time.Duration // of an even stream: 1 ms
	}{{1, 20, time.Millisecond}, {8, 32, 16 * time.Millisecond}} {
		sum, n := 0.0, 0.0
		for seed := range seeds(1, 5) {
			o := wellConnected(seed, fleet.checkers, bucket("queue", rules.LeakyBucket, limit, 100, time.Second))
			o.prompt = false // the least even, by timers alone
			w := newWorld(t, o)
			w.meet()
			begin := w.now
			var passed []int64
			for w.now < begin+6*second {
				if w.request(w.anyone(), "queue", "k", 1) && w.now >= begin+second { // they have heard of each other
					passed = append(passed, w.now)
				}
				w.advance(time.Second / (5 * limit))
			}
			most, gap := unevenness(passed, 20*time.Millisecond)
			rate := float64(len(passed)) / 5
			t.Logf("%d checkers: %.0f hits/s of %d, most in 20 ms %d, longest gap %v", fleet.checkers, rate, limit, most, gap)
			sum, n = sum+rate, n+1
			expect(t, most <= fleet.most && gap <= fleet.gap, "%d checkers: want at most %d in 20 ms, and no gap above %v",
				fleet.checkers, fleet.most, fleet.gap)
		}
		expect(t, sum/n >= 0.995*limit && sum/n <= 1.005*limit, "%d checkers: %.0f hits/s of %d", fleet.checkers, sum/n, limit)
	}
}

// unevenness returns the most of these times that lie within a span, and the longest time between
// two.
func unevenness(times []int64, span time.Duration) (most int, gap time.Duration) {
	from := 0
	for i, at := range times {
		for times[from] <= at-int64(span) {
			from++
		}
		most = max(most, i-from+1)
		if i > 0 {
			gap = max(gap, time.Duration(at-times[i-1]))
		}
	}
	return most, gap
}

// TestNoExcessWhereTokensAreSpentInTime: aggregators find no hits beyond the limit of a token
// bucket whose tokens a checker spends as they come, many in each bucket of time; but they do where
// they know of half that limit.
func TestNoExcessWhereTokensAreSpentInTime(t *testing.T) {
	for _, burst := range []int64{10, 1, 1000}[:seeds(1, 3)] {
		for _, times := range []int64{1, 2} {
			excess, most := 0.0, 0.0
			o := wellConnected(1, 1, bucket("tokens", rules.TokenBucket, 1000, burst, time.Minute))
			o.onApply = func(info aggregate.ApplyInfo) {
				for _, e := range info.Excess {
					excess, most = excess+e.Hits, max(most, e.Most)
				}
			}
			w := newWorld(t, o)
			for _, k := range w.workers {
				k.SetRules([]storage.Rule{{
					Name: "tokens", Shape: w.rules.Rules()[0].Window, Limit: 1000 / times, Burst: burst, Revision: 1,
				}})
			}
			c := w.checkers[0]
			l, _ := c.Limiter("tokens")
			passed := int64(0)
			for end := w.now + int64(2*time.Minute); w.now < end; w.advance(5 * time.Millisecond) {
				for l.Check("k", 1).Allowed {
					passed++
				}
				w.wake(c)
			}
			w.require(passed >= 1950/times, "burst %d: %d pass in two minutes", burst, passed)
			w.require((excess > 0) == (times == 2), "burst %d, %d times the limit: %.0f of %d hits are called excess, at most %+.0f %%",
				burst, times, excess, passed, 100*most)
		}
	}
}

// TestKeysWithoutRoomAreDecidedByOnOutage: a caller whose key is new, when the store takes no new
// keys of its rule, is decided by the rule's on_outage from the first answer on, until the slice of
// time ends in which new keys are counted: at each checker by its share, or not at all, or as often
// as he comes. Then there is room again. Known keys are counted all the while.
func TestKeysWithoutRoomAreDecidedByOnOutage(t *testing.T) {
	const limit, checkers, minute = 60, 3, int64(time.Minute)
	for _, tt := range []struct {
		onOutage    rules.OnOutage
		least, most int64 // of 100 hits at each checker
	}{{rules.Share, limit, limit}, {rules.Closed, 0, 0}, {rules.Open, 100 * checkers, 100 * checkers}} {
		for _, r := range []rules.Rule{
			{Name: "one", Window: testRules[3].Window, Limit: limit},
			{Name: "token", Window: testRules[3].Window, Limit: limit, Burst: limit, Algorithm: rules.TokenBucket},
		} {
			r.Key, r.OnOutage, r.Window.Buckets = []string{"user"}, tt.onOutage, 0
			w := newWorld(t, wellConnected(1, checkers, r))
			w.advance(time.Duration(minute - w.now%minute)) // to the beginning of a window
			w.advance(time.Second)
			full := true
			w.store.full = func(key string) bool { return full && key == "new" }
			pass := func(key string, n int) (passed int64) {
				for range n {
					for _, c := range w.checkers {
						l, _ := c.Limiter(r.Name)
						d := l.Check(key, 1)
						if d.Allowed {
							passed++
						}
						end := time.Duration(minute - (w.now+int64(c.Stats().ClockOffset))%minute)
						expect(t, !full || key != "new" || d.Allowed || tt.onOutage != rules.Closed || d.RetryAfter == end,
							"%s: turned away for %v, with %v to the end of the slice", r.Name, d.RetryAfter, end)
						w.wake(c)
					}
					w.advance(10 * time.Millisecond)
				}
				return passed
			}
			before := pass("new", 1)
			w.advance(time.Second)
			passed := pass("new", 100)
			w.require(before == checkers, "%v: of the first hits %d pass", tt.onOutage, before)
			if tt.onOutage == rules.Share {
				passed += before
			}
			w.require(passed >= tt.least && passed <= tt.most, "%s, %v: %d pass", r.Name, tt.onOutage, passed)
			known := pass("known", 30)
			w.require(known == limit, "%s, %v: %d of a known key pass, want %d", r.Name, tt.onOutage, known, limit)
			full = false
			w.advance(2 * time.Minute)
			passed = pass("new", 30)
			w.require(passed >= limit-2 && passed <= limit+2, "%s, %v: when there is room again %d pass, want about %d",
				r.Name, tt.onOutage, passed, limit)
		}
	}
}

// applyFull applies a fold, without what it adds to keys that the store has no room for.
func (s *flakyStore) applyFull(ctx context.Context, f *storage.Batch) (storage.Applied, error) {
	if s.full != nil {
		room := *f
		room.Keys = slices.Clone(f.Keys)
		f = &room
		for i := range f.Keys {
			if s.full(f.Keys[i].Text) {
				f.Keys[i].Cells = nil
			}
		}
	}
	return s.Store.Apply(ctx, f)
}
