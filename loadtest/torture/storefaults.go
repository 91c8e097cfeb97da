package torture

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/offpath-io/offpath/loadtest/torture/found"
	"github.com/offpath-io/offpath/loadtest/torture/link"
)

// takeRedis takes all nodes: what one fault does to Redis is known only without another one.
// Faults of links come at any time.
func (s *storm) takeRedis() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.redisBusy
	s.redisBusy = true
	return !was
}

func (s *storm) releaseRedis() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.redisBusy = false
}

// witnesses takes all aggregators, each of which knows the fleet's time: if Redis' clock is set, or
// the offset gone, and one starts that hears none of them, the fleet's time moves. release waits
// until Redis has the offset on record again, or the storm is over, for a minute at most. It is nil
// if one does not know.
func (s *storm) witnesses(ctx context.Context) (release func()) {
	var taken []*part
	let := func() {
		for _, p := range taken {
			p.release()
		}
	}
	for _, p := range s.fleet.aggregators {
		if !p.take() {
			let()
			return nil
		}
		taken = append(taken, p)
		if _, err := p.get(ctx, "/readyz"); err != nil {
			let()
			return nil
		}
	}
	return func() {
		defer let()
		ctx, cancel := context.WithTimeout(ctx, storePatience)
		defer cancel()
		for ctx.Err() == nil && s.onRecord(ctx) != nil {
			lasts(ctx, sampleEvery)
		}
	}
}

// onRecord returns what is wrong with the record that Redis, and whoever may take over, has of how
// far the fleet's time is ahead of its clock.
func (s *storm) onRecord(ctx context.Context) error {
	kept := 0
	for _, n := range s.fleet.store.nodes() {
		nanoseconds, err := n.admin.HGet(ctx, "offpath:config", "offset").Int64()
		offset := time.Duration(nanoseconds)
		switch {
		case redis.HasErrorPrefix(err, "MOVED"): // another group's
		case err != nil && !errors.Is(err, redis.Nil): // Nil: it was never set, or is gone
			return fmt.Errorf("%s: %w", n.name, err)
		case (offset + s.storeAhead).Abs() > mostOff:
			return fmt.Errorf("%s has %v on record, where its clock is %v ahead", n.name, offset, s.storeAhead)
		default:
			kept++
		}
	}
	if kept == 0 {
		return errors.New("no node has the offset")
	}
	return nil
}

// snapshot is the file to roll back to.
func (s *storm) snapshot() string { return filepath.Join(s.fleet.dir, "snapshot.rdb") }

// save makes a snapshot, unless Redis is in somebody's hands.
func (s *storm) save(ctx context.Context) error {
	if s.fleet.store.failovers() != nil || !s.takeRedis() {
		return nil
	}
	defer s.releaseRedis()
	return s.fleet.store.nodes()[0].redis.SaveTo(ctx, s.snapshot())
}

// What is under way to Redis may take so long to get there, on a machine of our own and on another.
const settle, settleSlowly = 200 * time.Millisecond, 3 * time.Second

// hurtStore does something to Redis. What it loses is known to the hit: nobody reaches it
// meanwhile.
func (s *storm) hurtStore(ctx context.Context, f fault, run *found.Fault) error {
	run.Target = "redis"
	if !s.takeRedis() {
		return errBusy
	}
	defer s.releaseRedis()
	begun, background, store := time.Now(), context.Background(), s.fleet.store
	if store.inSync(background) != nil { // a fault of links has it
		return errBusy
	}
	if f.kind == Lose || f.kind == Rollback {
		release := s.witnesses(ctx)
		if release == nil {
			return errBusy
		}
		defer release()
	}
	if f.kind == Full || f.kind == Disk || f.kind == ReadOnly {
		return s.refuse(ctx, f)
	}
	n := store.nodes()[f.target%len(store.nodes())]
	if f.kind == Restart && store.failovers() != nil {
		// With the links held, it would wait for its replica for 10 s before it ends.
		run.Target = n.name
		err := n.redis.RestartInOrder(background)
		return errors.Join(err, store.rejoin(background, n), until(background, store.inSync))
	}
	running := slices.DeleteFunc(slices.Clone(s.fleet.checkers), func(p *part) bool { return !p.program.Running() })
	end := s.put(func(w *wire) link.Faults {
		to := partKind(w.to) == "redis"
		return link.Faults{HoldTo: to, HoldFrom: to}
	})
	defer end()
	time.Sleep(s.settle)
	before, err := store.ledger(background)
	if err != nil {
		return err
	}
	held := s.held(running)
	switch f.kind {
	case Restart:
		err = n.redis.RestartInOrder(background)
	case Lose:
		err = onMasters(background, store, func(c *redis.Client) error {
			return c.FlushAll(background).Err()
		})
	case Rollback:
		err = n.redis.RestartFrom(background, s.snapshot())
	}
	if err != nil {
		return err
	}
	after, err := store.ledger(background)
	if err != nil {
		return err
	}
	run.Detail = fmt.Sprintf("%s of %d", hitsLost(before-after), before)
	run.For = seconds(time.Since(begun)) // the time until the offset is on record is no part of it
	s.mu.Lock()
	defer s.mu.Unlock()
	s.storeLost += before - after
	if f.kind != Restart {
		s.again += min(before, held) // all of before is gone: what came back, if anything, is older
		s.losses = append(s.losses, time.Now())
	}
	return nil
}

// hitsLost is how a fault says what it has lost; see sights.
func hitsLost(n int64) string { return fmt.Sprintf("%d hits lost", n) }

// refuse has masters take no more data for a while. Whoever becomes master meanwhile takes it.
func (s *storm) refuse(ctx context.Context, f fault) error {
	background, begin, end := context.Background(), noMemory, enoughMemory
	switch _, alone := s.fleet.store.(*single); {
	case f.kind == Disk:
		begin, end = noDisk, enoughDisk
	case f.kind == ReadOnly && alone:
		begin, end = copyNobody, copyNone
	case f.kind == ReadOnly:
		begin, end = wantReplicas, wantNone
	}
	err := onMasters(background, s.fleet.store, func(c *redis.Client) error { return begin(background, c) })
	if err == nil {
		lasts(ctx, f.length)
	}
	for _, n := range s.fleet.store.nodes() {
		err = errors.Join(err, end(background, n.admin))
	}
	return errors.Join(err, until(background, s.fleet.store.inSync))
}

// set returns what sets parameters, given as pairs.
func set(pairs ...string) func(context.Context, *redis.Client) error {
	return func(ctx context.Context, c *redis.Client) (err error) {
		for pair := range slices.Chunk(pairs, 2) {
			err = errors.Join(err, c.ConfigSet(ctx, pair[0], pair[1]).Err())
		}
		return err
	}
}

// What makes Redis refuse, and what ends that.
var (
	noMemory, enoughMemory = set("maxmemory", "1"), set("maxmemory", "0")
	wantReplicas, wantNone = set("min-replicas-to-write", "100"), set("min-replicas-to-write", "0")
	saving, savingNot      = set("save", "3600 1"), set("save", "")
)

// copyNobody makes it the replica of a server that is not there.
func copyNobody(ctx context.Context, c *redis.Client) error {
	return c.ReplicaOf(ctx, "127.0.0.1", "1").Err()
}

func copyNone(ctx context.Context, c *redis.Client) error { return c.ReplicaOf(ctx, "NO", "ONE").Err() }

// noDisk has it fail to save, so that it takes no more, as when its disk is full: a directory is
// where its snapshot is to be.
func noDisk(ctx context.Context, c *redis.Client) error {
	file, err := snapshotOf(ctx, c)
	if err != nil {
		return err
	}
	if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.Mkdir(file, 0o700); err != nil {
		return err
	}
	return errors.Join(saving(ctx, c), saved(ctx, c, "err"))
}

func enoughDisk(ctx context.Context, c *redis.Client) error {
	file, err := snapshotOf(ctx, c)
	if err != nil {
		return err
	}
	if is, err := os.Stat(file); err != nil || !is.IsDir() { // it was no master
		return nil
	}
	return errors.Join(os.Remove(file), savingNot(ctx, c), saved(ctx, c, "ok"))
}

func snapshotOf(ctx context.Context, c *redis.Client) (string, error) {
	settings, err := c.ConfigGet(ctx, "d*").Result() // dir and dbfilename
	return filepath.Join(settings["dir"], settings["dbfilename"]), err
}

// saved has it save until it says how that went.
func saved(ctx context.Context, c *redis.Client, status string) error {
	return until(ctx, func(ctx context.Context) error {
		_ = c.BgSave(ctx).Err() // one may be under way
		info, err := c.Info(ctx, "persistence").Result()
		if err == nil && !strings.Contains(info, "rdb_last_bgsave_status:"+status) {
			err = fmt.Errorf("it does not say %s of its last save", status)
		}
		return err
	})
}

// askPatience is how long a checker may take to say what it holds; a frozen one does not. Nobody
// reaches Redis meanwhile, so it is less than what makes Sentinels miss a master.
const askPatience = 300 * time.Millisecond

// longestHeld is how old hits may be that a checker holds: as old as the longest fault, and as
// those that wait in any case.
const longestHeld = longest + 15*time.Second

// held is what checkers have not been told that it was counted, at most. If Redis loses it, they
// report it again.
func (s *storm) held(checkers []*part) int64 {
	ctx, cancel := context.WithTimeout(context.Background(), askPatience)
	defer cancel()
	var sum atomic.Int64
	var asking sync.WaitGroup
	for _, p := range checkers { // one that is about to end repeats, too
		asking.Go(func() {
			if m, err := p.metrics(ctx); err == nil {
				sum.Add(int64(m["offpath_hits_in_flight"]))
			} else {
				number := slices.Index(s.fleet.checkers, p)
				sum.Add(s.traffic.allowedSince(number, time.Now().Add(-longestHeld)))
			}
		})
	}
	asking.Wait()
	return sum.Load()
}

// killNode kills a node, as a crash does; if it is a master its replica takes over. Then it is
// started again, with no data.
func (s *storm) killNode(ctx context.Context, f fault, n *node, run *found.Fault) error {
	run.Target = n.name
	if !s.takeRedis() {
		return errBusy
	}
	defer s.releaseRedis()
	background, store := context.Background(), s.fleet.store
	books := store.failovers()
	if store.inSync(background) != nil {
		return errBusy
	}
	is, err := books.look(background, n)
	if err != nil {
		return err
	}
	// A Cluster whose clock was set back misses nobody until that has caught up, and then its
	// replicas take their data for too old.
	if _, clustered := store.(*cluster); clustered && is.master && s.storeRepeats(time.Now()) {
		return errBusy
	}
	resume := func() error { return nil }
	if is.master && f.ways == 1 {
		run.Detail = "before its replica has all; "
		if resume, err = s.fallBehind(n, f); err != nil {
			return err
		}
	}
	// Nobody writes any more, so what it has now is what it had.
	err = n.admin.Do(background, "CLIENT", "PAUSE", storePatience.Milliseconds(), "WRITE").Err()
	if had, readErr := books.look(background, n); readErr == nil {
		is = had
	} else {
		err = errors.Join(err, readErr)
	}
	err = errors.Join(err, n.redis.Kill())
	books.dies(n)
	s.fleet.cut(n.name) // what was on its way is gone, too
	if err = errors.Join(err, resume()); err != nil {
		return err
	}
	killed := time.Now()
	if is.master {
		_, err = s.promoted(background, n.group, killed, is, run)
	}
	lasts(ctx, time.Until(killed.Add(f.length)))
	books.begins(n)
	if failed := n.redis.Restart(background); failed != nil {
		return errors.Join(err, failed)
	}
	return errors.Join(err, store.rejoin(background, n), until(background, store.inSync))
}

// fallBehind keeps a master's replica from hearing of the last it counts. Call resume after the
// master's death.
func (s *storm) fallBehind(master *node, f fault) (resume func() error, err error) {
	for _, n := range s.fleet.store.nodes() {
		if n != master && n.group == master.group {
			if err := n.redis.Pause(); err != nil {
				return nil, err
			}
			// What is on the connection already would still be read.
			err := master.admin.Do(context.Background(), "CLIENT", "KILL", "TYPE", "replica").Err()
			time.Sleep(time.Duration(f.degree / nodeShare * float64(mostBehind)))
			return n.redis.Resume, err
		}
	}
	return nil, fmt.Errorf("%s has no replica", master.name)
}

// mostBehind is less than what makes anybody miss the replica.
const mostBehind = 500 * time.Millisecond

// promoted waits until another node has taken over.
func (s *storm) promoted(
	ctx context.Context, group int, since time.Time, from reading, run *found.Fault,
) (p promotion, err error) {
	err = until(ctx, func(context.Context) error {
		var ok bool
		if p, ok = s.fleet.store.failovers().promotedSince(group, since); !ok {
			return fmt.Errorf("nobody takes over from %s", run.Target)
		}
		run.Detail += fmt.Sprintf("%d hits in its ledger, %d in that of its replica, promoted after "+
			"%.1f s", from.sum, p.sum, seconds(p.at.Sub(since)))
		return nil
	})
	return p, err
}

// failoverPatience is after how long Redis and Sentinel have given up a planned failover: after 5 s
// if the replica cannot catch up, as when its link is slow.
const failoverPatience = 10 * time.Second

// failover plays a planned one.
func (s *storm) failover(_ context.Context, f fault, run *found.Fault) error {
	if !s.takeRedis() {
		return errBusy
	}
	defer s.releaseRedis()
	background, store := context.Background(), s.fleet.store
	books := store.failovers()
	if store.whole(background) != nil { // or it would be refused
		return errBusy
	}
	begun := time.Now()
	n, err := store.failover(background, f.target)
	if err != nil {
		return err
	}
	run.Target = n.name
	is, err := books.look(background, n)
	if err != nil {
		return err
	}
	given, cancel := context.WithTimeout(background, failoverPatience)
	defer cancel()
	next, err := s.promoted(given, n.group, begun, is, run)
	if err != nil {
		run.Detail = "given up"
		return nil
	}
	run.For = seconds(time.Since(begun)) // until the old one has all is no part of it
	if err := until(background, store.inSync); err != nil {
		return err
	}
	if e, ok := books.endSince(n, begun); ok {
		run.For = max(run.For, seconds(e.at.Sub(begun)))
		run.Detail += fmt.Sprintf("; %d in the old one's when it stepped down after %.1f s: %s",
			e.sum, seconds(e.at.Sub(begun)), hitsLost(books.lostAt(e, next)))
		if !e.known {
			run.Detail += ", or more"
		}
	}
	return nil
}
