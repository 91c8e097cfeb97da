package torture

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/offpath-io/offpath/internal/testing/servers"
)

// What a master had counted and its successor has not is lost, to the hit, however the master ends.
func TestFailovers(t *testing.T) {
	const old, next = "g 7 a", "g 9 b" // states
	one, two := &node{name: "redis-0"}, &node{name: "redis-1"}
	start := time.Now()
	type step struct {
		node *node
		read reading
	}
	master := func(n *node, ms int, sum int64, state string) step {
		at := start.Add(time.Duration(ms) * time.Millisecond)
		return step{n, reading{at: at, master: true, sum: sum, state: state}}
	}
	replica := func(n *node, ms int, sum int64, state string, synced bool) step {
		s := master(n, ms, sum, state)
		s.read.master, s.read.synced = false, synced
		return s
	}
	for _, tt := range []struct {
		what         string
		steps        []step
		ledger       int64
		exact, more  int64
		acknowledged int   // times at which something was lost
		planned      int64 // hits lost, if it was a planned failover
	}{
		{"nothing happens", []step{master(one, 1, 0, ""), master(one, 20, 7, old)}, 7, 0, 0, 0, 0},
		{"it steps down, and its replica had all", []step{
			master(one, 1, 0, ""), master(one, 20, 7, old), replica(two, 21, 7, old, true),
			master(two, 40, 7, old), replica(one, 41, 7, old, false), master(two, 60, 9, next),
		}, 9, 0, 0, 0, 0},
		{"it counts on for a while", []step{
			master(one, 1, 0, ""), master(one, 20, 7, old), replica(two, 21, 7, old, true),
			master(two, 40, 7, old), master(one, 41, 10, next), replica(one, 60, 11, next, false),
			master(two, 61, 9, old),
		}, 9, 4, 0, 1, 4},
		{"its replica counts before it is seen as master", []step{
			master(one, 1, 0, ""), master(one, 20, 7, old), replica(two, 21, 7, old, true),
			replica(one, 22, 7, old, false), master(two, 40, 9, next),
		}, 9, -2, 2, 0, 0},
		{"it goes on from its successor's data at once", []step{
			master(one, 1, 0, ""), master(one, 20, 7, old), replica(two, 21, 6, "", true),
			master(two, 40, 7, old), replica(one, 41, 7, old, true),
		}, 7, 0, 1, 0, 0},
		{"nobody sees for long what it counts", []step{
			master(one, 1, 0, ""), master(one, 20, 7, old), replica(two, 21, 7, old, true),
			master(two, 40, 7, old), replica(one, 3000, 7, old, true),
		}, 7, 0, 100, 1, 0},
		{"it was emptied", []step{
			master(one, 1, 0, ""), master(one, 20, 7, old), master(one, 40, 0, ""), master(one, 60, 2, next),
		}, 2, 7, 0, 0, 0},
	} {
		f := newFailovers()
		f.allowed = func(_, _ time.Time) int64 { return 100 }
		for _, s := range tt.steps {
			f.takeLocked(s.node, s.read)
		}
		exact, more := f.lost(tt.ledger)
		if n := len(f.losses()); exact != tt.exact || more != tt.more || n != tt.acknowledged {
			t.Errorf("%s: %d lost and perhaps %d more, at %d times; want %d, %d, %d",
				tt.what, exact, more, n, tt.exact, tt.more, tt.acknowledged)
		}
		if len(f.ends) > 0 {
			if n := f.lostAt(f.ends[0], f.promotions[0]); n != tt.planned {
				t.Errorf("%s: %d lost, want %d", tt.what, n, tt.planned)
			}
		}
	}
}

// A process that is killed takes with it what its replica has not; it comes back with nothing.
func TestFailoverOfKilledMaster(t *testing.T) {
	one, two := &node{name: "redis-0"}, &node{name: "redis-1"}
	f := newFailovers()
	now := time.Now()
	f.takeLocked(one, reading{at: now, master: true})
	f.takeLocked(two, reading{at: now, synced: true})
	f.takeLocked(one, reading{at: now, master: true, sum: 9, state: "9"})
	f.takeLocked(two, reading{at: now, synced: true, sum: 6, state: "6"})
	f.dies(one)
	f.takeLocked(two, reading{at: now, master: true, sum: 6, state: "6"})
	f.takeLocked(two, reading{at: now, master: true, sum: 10, state: "10"})
	f.begins(one)
	f.takeLocked(one, reading{at: now, master: true, sum: 2, state: "2"}) // until it is told
	f.takeLocked(one, reading{at: now, sum: 2, state: "2"})
	f.takeLocked(one, reading{at: now, synced: true, sum: 10, state: "10"})
	if exact, more := f.lost(10); exact != 5 || more != 0 {
		t.Errorf("%d lost, and perhaps %d more", exact, more)
	}
	if n := len(f.losses()); n != 2 {
		t.Errorf("%d losses", n)
	}
}

// Hits are in the ledger in whatever column of the equation; what was given back or charged
// afterwards is told beside it.
func TestReadNode(t *testing.T) {
	server, err := servers.StartRedis(t.Context(), servers.RedisOptions{})
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() {
		if err := errors.Join(client.Close(), server.Stop()); err != nil {
			t.Error(err)
		}
	})
	for i, outcome := range []string{"counted", "late", "refused", "overflow", "refunded", "settled"} {
		n := int64(math.Pow10(i))
		for shard, name := range []string{"offpath:{0}:ledger", "offpath:{3}:ledger"} {
			if err := client.HSet(t.Context(), name, "a rule\x00"+outcome, n*int64(1+shard)).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	s := &single{node: &node{admin: client}}
	if got, err := s.ledger(t.Context()); err != nil || got != 3333 {
		t.Errorf("%d hits, %v; want 3333", got, err)
	}
}
