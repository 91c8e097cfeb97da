package peers

import (
	"context"
	"sync"
	"testing"
	"time"

	sethvargo "github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	ulule "github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"
)

// Each rival is set up as its authors show it, without the HTTP around it.

// newXTime is golang.org/x/time/rate, which has no keys of its own, in the map that is commonest
// around it. Nothing ever leaves that map.
func newXTime(_ testing.TB, q quota) *subject {
	var limiters sync.Map
	every := rate.Every(q.window / time.Duration(q.limit))
	return &subject{decide: func(key string) (bool, error) {
		l, ok := limiters.Load(key)
		if !ok {
			l, _ = limiters.LoadOrStore(key, rate.NewLimiter(every, int(q.limit)))
		}
		return l.(*rate.Limiter).Allow(), nil
	}}
}

// newSethvargo is go-limiter's memory store, with its defaults for sweeping (6 h, after 12 h of
// rest).
func newSethvargo(t testing.TB, q quota) *subject {
	t.Helper()
	store, err := sethvargo.New(&sethvargo.Config{Tokens: uint64(q.limit), Interval: q.window})
	must(t, err)
	ctx := context.Background()
	return &subject{
		decide: func(key string) (bool, error) {
			_, _, _, ok, err := store.Take(ctx, key)
			return ok, err
		},
		close: func(int64) error { return store.Close(ctx) },
	}
}

// newUlule is ulule/limiter with its memory store's defaults: a prefix, and a sweep every 30 s.
func newUlule(_ testing.TB, q quota) *subject {
	l := ulule.New(memory.NewStore(), ulule.Rate{Period: q.window, Limit: q.limit})
	ctx := context.Background()
	return &subject{decide: func(key string) (bool, error) {
		got, err := l.Get(ctx, key)
		return !got.Reached, err
	}}
}

// newThrottled is throttled's GCRA with a memory store that forgets nothing, its faster form: a
// map.
func newThrottled(t testing.TB, q quota) *subject { return throttledWith(t, 0, q) }

// newThrottledLRU is the form that throttled's documentation shows, with a bound. Theirs, 65,536
// keys, would forget most of a million; this one is offpath's, which forgets none.
func newThrottledLRU(t testing.TB, q quota) *subject { return throttledWith(t, 2*inProcess.keys, q) }

func throttledWith(t testing.TB, maxKeys int, q quota) *subject {
	t.Helper()
	store, err := memstore.NewCtx(maxKeys)
	must(t, err)
	l, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{
		MaxRate: throttled.PerDuration(int(q.limit), q.window), MaxBurst: int(q.limit) - 1,
	})
	must(t, err)
	// By default it gives up after 10 attempts, which on two cores 1 % of the hits of a hot key may
	// need.
	l.SetMaxCASAttemptsLimit(1000)
	ctx := context.Background()
	return &subject{decide: func(key string) (bool, error) {
		limited, _, err := l.RateLimitCtx(ctx, key, 1)
		return !limited && err == nil, err
	}}
}
