// Package redisstore keeps counters, marks and ledger in Redis 7.0 or newer: a single server, one
// behind Sentinel, or a Cluster. A batch is one call of a script, whatever the number of hits.
//
// # Layout
//
// All names begin with the namespace. The number of shards, and by how many nanoseconds the fleet's
// time is ahead of this node's clock, are in the hash <ns>:config. Everything else belongs to a
// shard s, and is kept on one node by the hash tag {s}:
//
//	<ns>:{s}:meta                      hash: generation, version, how many of its steps are leases,
//	                                   a random id of the last batch, and when data was last found
//	                                   lost, and how much
//	<ns>:{s}:ledger                    hash: <rule> NUL <outcome> → hits; never expires
//	<ns>:{s}:mark:<epoch>              the highest sequence counted of a checker; lives a day
//	<ns>:{s}:by:<aggregator>           how many batches of an aggregator have changed this shard;
//	                                   lives a day
//	<ns>:{s}:s:<epoch>:<chunk>         bits: which of 8,192 settlements of a checker's hits were
//	                                   applied; lives a day after the last
//	<ns>:{s}:c:<credential>            how many of these texts checkers of one credential have had
//	                                   kept since this began; lives a day from then on
//	<ns>:{s}:o:<credential>:<rule>:<window>
//	                                   what checkers of one credential have reported in a window,
//	                                   and not given back by settlements (rules with settlements)
//	<ns>:{s}:1:<rule>:<bucket>:<group> hash: key → hits in that bucket (rules of one bucket)
//	<ns>:{s}:n:<rule>:<key>            hash: bucket → hits (rules of several buckets); for one that
//	                                   drains also r<bucket> → hits refunded, and the level: at (the
//	                                   end of which bucket), hits, parts (of a hit)
//	<ns>:{s}:new:<rule>:<slice>        hash: how many keys of it are new in a slice of time as long
//	                                   as its window
//	<ns>:{s}:new:h:<rule>:<slice>      the same of keys of which permits are held, a number
//	<ns>:{s}:r:<rule>                  hash that only aggregators from before owners make: the
//	                                   newest bucket that they have met, and how many batches added
//	                                   to earlier ones
//	<ns>:{s}:h:<rule>:<key>            list, packed: bucket, permits held by all checkers
//	<ns>:{s}:g:<epoch>:<rule>:<key>    list, packed: bucket, permits granted to a checker, returned
//	                                   by it
//
// where <rule> stands for a rule's name and shape. With one bucket, many keys share a hash that is
// small enough for Redis to keep it packed, and expire together; with several, a key's buckets are
// together, so that reading a window is one look-up. A rule's denied and refunded hits are like
// another rule's; but what is refunded of what drains is in the hash of its hits, as it goes into
// the level with them. A settlement takes GETBIT, PEXPIRETIME, SETBIT and PEXPIRE beside what its
// hits take, and GET and SET of held permits under strict enforcement. Permits of a key are two
// texts for a script to read and write whole, and to rid of what has expired on the way, so that
// nothing is left of a checker that is gone. An expiry is set by the script that makes the key, and
// never apart from it.
package redisstore

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/offpath-io/offpath/pkg/aggregate/storage"
)

// format is the number of the layout above, on record beside the number of shards.
const format = 1

// outcomes are the ledger's, as its fields name them, in the order of [storage.RuleLedger]; the
// last one is the script's own.
var outcomes = [...]string{"counted", "late", "refused", "refunded", "settled", "overflow"}

//go:embed apply.lua
var applySource string

//go:embed lease.lua
var leaseSource string

//go:embed join.lua
var joinSource string

//go:embed offset.lua
var offsetSource string

var (
	applyScript  = redis.NewScript(applySource)
	leaseScript  = redis.NewScript(leaseSource)
	joinScript   = redis.NewScript(joinSource)
	offsetScript = redis.NewScript(offsetSource)
)

// Store is the store. Its methods are safe for concurrent use.
type Store struct {
	where     *redis.UniversalOptions
	client    atomic.Pointer[redis.UniversalClient]
	sentinels sentinels
	namespace string
	name      string        // of this process in keys: a random number
	groups    atomic.Uint32 // of a shard, 0 before the first Join
	memory    *memory
	shards    sync.Map // of *shard, by number
	newKeys   newKeys
	calls     sync.Pool // of *call
	leases    sync.Pool // of *leaseCall
}

var _ storage.Store = (*Store)(nil)

// Client returns the store's own connections, for administration: to inspect the server, or to
// remove a namespace after a trial. A Join that a Sentinel has misled closes them.
func (s *Store) Client() redis.UniversalClient { return *s.client.Load() }

// Remembered is how many totals of buckets are remembered now: see [Options.Remember]. From that
// number on, the oldest are forgotten.
func (s *Store) Remembered() int { return s.memory.held() }

// Close ends all connections. Calls under way return errors.
func (s *Store) Close() error {
	s.sentinels.close()
	if err := s.Client().Close(); err != nil {
		return fmt.Errorf("close store: %w", err)
	}
	return nil
}

// Join looks up or records the number of shards; the store's own choice is 1, or 4 for each master
// of a Cluster. The time is that of the node which holds the record. If a Sentinel has named a node
// as the master that is none, one of the next calls finds the master by the others.
func (s *Store) Join(ctx context.Context, shards int) (storage.Fleet, error) {
	if shards < 0 || shards > storage.MaxShards {
		return storage.Fleet{}, fmt.Errorf("join: %d shards: want 1 to %d, or 0", shards, storage.MaxShards)
	}
	client := s.Client()
	fleet, err := s.record(ctx, shards)
	if err == nil && fleet.Shards == 0 {
		if shards, err = s.choose(ctx); err == nil {
			fleet, err = s.record(ctx, shards)
			shards = 0 // if another worker chose otherwise at the same time, so be it
		}
	}
	if ctx.Err() == nil && s.sentinels.mislead(err) {
		s.askOthers(client)
	}
	if err != nil {
		return storage.Fleet{}, fmt.Errorf("join: %w", err)
	}
	if shards != 0 && shards != fleet.Shards {
		return storage.Fleet{}, fmt.Errorf("join: %w: %d asked for, %d recorded", storage.ErrShards, shards, fleet.Shards)
	}
	s.groups.Store(groupsOf(fleet.Shards))
	s.readMemory(ctx)
	return fleet, nil
}

// record records the number of shards, unless it is 0 or there is one, and returns what is on
// record.
func (s *Store) record(ctx context.Context, shards int) (storage.Fleet, error) {
	got, err := joinScript.Run(ctx, s.Client(), []string{s.namespace + ":config"}, shards, format).Int64Slice()
	if err != nil {
		return storage.Fleet{}, err
	}
	if len(got) != 5 || got[0] < 0 || got[0] > storage.MaxShards {
		return storage.Fleet{}, fmt.Errorf("%w: %v", errReply, got)
	}
	if got[0] > 0 && got[1] != format {
		return storage.Fleet{}, fmt.Errorf("the data is of format %d; this is for format %d", got[1], format)
	}
	return storage.Fleet{
		Shards: int(got[0]), Time: time.Unix(got[2], got[3]*1000), Offset: time.Duration(got[4]),
	}, nil
}

// KeepOffset puts another offset on record, beside the number of shards.
func (s *Store) KeepOffset(ctx context.Context, was, offset time.Duration) error {
	keys := []string{s.namespace + ":config"}
	if err := offsetScript.Run(ctx, s.Client(), keys, int64(was), int64(offset)).Err(); err != nil {
		return fmt.Errorf("keep the offset of the fleet's time: %w", err)
	}
	return nil
}

// choose is the number of shards for a store that has none on record.
func (s *Store) choose(ctx context.Context) (int, error) {
	cluster, ok := s.Client().(*redis.ClusterClient)
	if !ok {
		return 1, nil
	}
	var masters atomic.Int64
	err := cluster.ForEachMaster(ctx, func(context.Context, *redis.Client) error {
		masters.Add(1)
		return nil
	})
	return int(min(4*masters.Load(), storage.MaxShards)), err
}

// checkInfo judges a server by its INFO, whenever a connection is made: after a restart or a
// failover it is another one.
func checkInfo(info string, cluster bool) error {
	version := infoField(info, "redis_version")
	major, _, _ := strings.Cut(version, ".")
	if n, err := strconv.Atoi(major); err != nil || n < 7 {
		return fmt.Errorf("the server is Redis %s; offpath needs 7.0 or newer", version)
	}
	memory, policy := infoField(info, "maxmemory"), infoField(info, "maxmemory_policy")
	if memory != "" && memory != "0" && policy != "noeviction" {
		return fmt.Errorf("the server may evict what has been counted: set maxmemory-policy to noeviction, it is %s", policy)
	}
	if infoField(info, "cluster_enabled") == "1" && !cluster {
		return errors.New("the server is part of a Redis Cluster; give several of its addresses, separated by commas")
	}
	return nil
}

func infoField(info, name string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// Apply adds a batch in one call of the script. If it turns out that another process has changed
// the shard meanwhile, a second call reads what this one had remembered of the batch's keys.
func (s *Store) Apply(ctx context.Context, batch *storage.Batch) (storage.Applied, error) {
	applied, complete, err := s.apply(ctx, batch, false)
	if err == nil && !complete {
		own := applied
		applied, _, err = s.apply(ctx, onlyReading(batch), true)
		applied.Overflow = own.Overflow
		if applied.State.Generation == own.State.Generation {
			applied.State = own.State // no other batch's, though the totals may be later
		}
	}
	if err != nil {
		return storage.Applied{}, fmt.Errorf("apply: %w", asBatchError(err))
	}
	return applied, nil
}

// apply adds a batch, blind if it takes nothing from the memory; complete says that all totals are
// right.
func (s *Store) apply(ctx context.Context, batch *storage.Batch, blind bool) (applied storage.Applied, complete bool, err error) {
	groups := s.groups.Load()
	if groups == 0 {
		return storage.Applied{}, false, errors.New("the store has not been joined")
	}
	c := s.calls.Get().(*call)
	defer s.calls.Put(c)
	c.shard, c.groups, c.blind = s.shard(batch.Shard), groups, blind
	c.build(s.namespace, s.name, batch)
	return s.run(ctx, c)
}

// run makes a call in its shard's turn, and reads the reply in the order of the turns, while the
// next call may already be under way.
func (s *Store) run(ctx context.Context, c *call) (applied storage.Applied, complete bool, err error) {
	sh, id := c.shard, ""
	if c.writes() {
		id = newID()
	}
	if err := sh.take(ctx); err != nil {
		return storage.Applied{}, false, err
	}
	known := sh.known.Load()
	current := c.era == known.era && c.groupEra == known.groups
	c.expect(sh.chain, id, current, sh.own.expected(c.batch.Seen))
	reply, err := s.eval(ctx, &c.frame, applyScript, applySource)
	u := unpacker{rest: reply}
	var h header
	refused := 0
	if err == nil {
		h, refused = readHeader(&u)
		err = u.err
	}
	if err != nil || h.generation == 0 {
		<-sh.turn
		if err != nil {
			return storage.Applied{}, false, err
		}
		return c.readRefusal(&u, refused), true, u.err
	}
	sh.leave(&h, id, c.batch.Now/int64(time.Millisecond))
	sh.own.note(uint64(h.generation), h.own)
	c.known = h.holds || id != ""
	if era := sh.known.Load().era; era != c.era {
		c.restart(era)
	}
	sh.order.Lock()
	<-sh.turn
	defer sh.order.Unlock()
	applied, complete = c.readTotals(&u, &h)
	if u.err != nil {
		sh.forget()
	}
	return applied, complete, u.err
}

// shard returns what is known of a shard.
func (s *Store) shard(number uint32) *shard {
	if sh, ok := s.shards.Load(number); ok {
		return sh.(*shard)
	}
	sh, _ := s.shards.LoadOrStore(number, newShard())
	return sh.(*shard)
}

// asBatchError makes an error wrap [storage.ErrBatch] if the batch's content is the cause: the
// script itself failed, or its reply makes no sense. All other refusals of a server (it is full,
// loading, read-only, ...) have names of their own.
func asBatchError(err error) error {
	if errors.Is(err, errReply) || isOfScript(err) {
		return fmt.Errorf("%w: %w", storage.ErrBatch, err)
	}
	return err
}

// isOfScript reads the reply itself: [redis.HasErrorPrefix] takes an ERR off before it compares.
func isOfScript(err error) bool {
	var reply redis.Error
	if !errors.As(err, &reply) || !strings.Contains(reply.Error(), "user_script") {
		return false
	}
	name, reason, _ := strings.Cut(reply.Error(), " ")
	is := func(server string) bool { return strings.HasPrefix(reason, server) }
	return name == "WRONGTYPE" || name == "ERR" && !slices.ContainsFunc(ofServer, is)
}

// ofServer are the errors of a script that are not its own, and that Redis 7.0 gives no name: a
// user without a right, a cluster that has changed, SCRIPT KILL, a renamed command.
var ofServer = []string{
	"The user executing the script", "Script attempted", "Script killed", "Unknown Redis command",
}

// eval calls a script by its digest, or with its text if the server does not know it yet.
func (s *Store) eval(ctx context.Context, f *frame, script *redis.Script, source string) (string, error) {
	f.args[0], f.args[1] = "evalsha", script.Hash()
	reply, err := s.do(ctx, f)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		f.args[0], f.args[1] = "eval", source
		reply, err = s.do(ctx, f)
	}
	return reply, err
}

func (s *Store) do(ctx context.Context, f *frame) (string, error) {
	cmd := redis.NewCmd(ctx, f.args...)
	if err := s.Client().Process(ctx, cmd); err != nil {
		return "", err
	}
	return cmd.Text()
}

// Ledger returns the sum of all shards' ledgers; it is empty before the first use of the store.
func (s *Store) Ledger(ctx context.Context) (storage.Ledger, error) {
	fleet, err := s.record(ctx, 0)
	if err != nil {
		return nil, fmt.Errorf("read ledger: %w", err)
	}
	sum := make(storage.Ledger)
	for shard := range fleet.Shards {
		fields, err := s.Client().HGetAll(ctx, prefix(s.namespace, uint32(shard))+"ledger").Result()
		if err != nil {
			return nil, fmt.Errorf("read ledger of shard %d: %w", shard, err)
		}
		for field, value := range fields {
			if err := addOutcome(sum, field, value); err != nil {
				return nil, fmt.Errorf("read ledger of shard %d: %w", shard, err)
			}
		}
	}
	return sum, nil
}

func addOutcome(sum storage.Ledger, field, value string) error {
	rule, outcome, _ := strings.Cut(field, "\x00")
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return fmt.Errorf("%s hits of rule %q: %w", outcome, rule, err)
	}
	l := sum[rule]
	counts := [...]*int64{&l.Counted, &l.Late, &l.Refused, &l.Refunded, &l.Settled, &l.Overflow}
	if i := slices.Index(outcomes[:], outcome); i >= 0 {
		*counts[i] = storage.Sum(*counts[i], n)
	}
	sum[rule] = l
	return nil
}
