package torture

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/offpath-io/offpath/loadtest/torture/found"
	"github.com/redis/go-redis/v9"
)

// reading is a node at one moment.
type reading struct {
	at     time.Time
	master bool
	synced bool   // a replica has all that its master had sent
	of     string // a replica's master
	sum    int64  // of its ledgers, as in fleet.ledger
	state  string // of its shards: each batch and each lease makes another one
}

// readNode reads a node at once: the ledgers of its shards, of which there are 16 at most, beside its
// role. The store's own Ledger asks masters only, and through links; and it finds no shards until an
// aggregator has joined again, if Redis has lost everything. KEYS would hold Redis up.
var readNode = redis.NewScript(`
local sum, state = 0, {}
for shard = 0, 15 do
  local begin = 'offpath:{' .. shard .. '}:'
  if redis.pcall('EXISTS', begin .. 'ledger') == 1 then -- and it is not another node's
    local fields = redis.call('HGETALL', begin .. 'ledger')
    for i = 1, #fields, 2 do
      local outcome = string.match(fields[i], '%z(%a+)$')
      if outcome == 'counted' or outcome == 'late' or outcome == 'refused' or outcome == 'overflow' then
        sum = sum + tonumber(fields[i + 1])
      end
    end
  end
  if redis.pcall('EXISTS', begin .. 'meta') == 1 then
    for _, field in ipairs({'generation', 'version', 'last'}) do
      state[#state + 1] = redis.call('HGET', begin .. 'meta', field) or ''
    end
  end
end
return {redis.call('INFO', 'replication'), sum, table.concat(state, ' ')}`)

func (n *node) read(ctx context.Context) (r reading, err error) {
	list, err := readNode.EvalRO(ctx, n.admin, nil).Slice()
	r.at = time.Now() // it may have been frozen before
	if err != nil {
		return r, fmt.Errorf("read %s: %w", n.name, err)
	}
	info := map[string]string{}
	for line := range strings.Lines(list[0].(string)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		info[name] = value
	}
	r.master = info["role"] == "master"
	r.synced = info["master_link_status"] == "up" && info["master_sync_in_progress"] == "0"
	r.of = info["master_host"] + ":" + info["master_port"]
	r.sum, r.state = list[1].(int64), list[2].(string)
	return r, nil
}

// failovers watches nodes, and knows what became of the hits that masters had counted: all those
// that are in no ledger any more were lost. It sees each node every few milliseconds. So it knows
// what a master had when it was made a replica: it takes a second to copy another one's data, and
// answers meanwhile.
type failovers struct {
	allowed func(from, until time.Time) int64 // hits

	mu         sync.Mutex
	last       map[*node]reading
	changes    map[*node][]reading // readings that differ from the one before
	gained     int64               // what nodes have counted while they were masters
	perhaps    int64               // what came between two readings of a node that became master: gained or copied
	promotions []promotion
	ends       []masterEnd
}

// promotion is when a replica became a master: with a state between two.
type promotion struct {
	node          *node
	at            time.Time
	before, after string
	sum           int64 // as far as it is known to be a copy
}

// masterEnd is when a node was no longer master, and with what.
type masterEnd struct {
	node  *node
	at    time.Time
	state string
	sum   int64
	known bool // that this was all
}

func newFailovers() *failovers {
	return &failovers{last: map[*node]reading{}, changes: map[*node][]reading{}}
}

// readEvery is how often each node is read.
const readEvery = 15 * time.Millisecond

// watch watches all nodes until ctx is done.
func (f *failovers) watch(ctx context.Context, nodes []*node) {
	for _, n := range nodes {
		go func() {
			for ctx.Err() == nil {
				lasts(ctx, readEvery)
				// A node that is away is one that a fault has, or is missed at rest.
				_, _ = f.look(ctx, n)
			}
		}()
	}
}

// look reads a node, and takes what is new.
func (f *failovers) look(ctx context.Context, n *node) (reading, error) {
	n.reading.Lock()
	defer n.reading.Unlock()
	r, err := n.read(ctx)
	if err != nil {
		return r, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.takeLocked(n, r)
	return r, nil
}

// mostUnseen is how long a node may be without a reading, and still be known to have been seen
// before it took another one's data.
const mostUnseen = time.Second

func (f *failovers) takeLocked(n *node, r reading) {
	p, known := f.last[n]
	f.last[n] = r
	if !known || p.master != r.master || p.synced != r.synced || p.sum != r.sum {
		f.changes[n] = append(f.changes[n], r)
	}
	switch {
	case !known:
		// Nobody has counted anything yet.
	case p.master && r.master:
		f.gained += max(r.sum-p.sum, 0) // less: it was emptied, which is in other books
	case p.master: // it is a replica now
		end := masterEnd{n, r.at, p.state, p.sum, p.at.IsZero() || r.at.Sub(p.at) < mostUnseen}
		if !r.synced {
			f.gained += max(r.sum-p.sum, 0)
			end = masterEnd{n, r.at, r.state, r.sum, true}
		} else if !end.known {
			f.perhaps += f.allowed(p.at, r.at)
		}
		f.ends = append(f.ends, end)
	case r.master:
		f.perhaps += max(r.sum-p.sum, 0)
		f.promotions = append(f.promotions, promotion{n, r.at, p.state, r.state, p.sum})
	}
}

// dies notes the end of a process, which was just looked at.
func (f *failovers) dies(n *node) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r := f.last[n]; r.master {
		f.ends = append(f.ends, masterEnd{n, r.at, r.state, r.sum, true})
	}
}

// begins notes that a node is about to be started with no data. It believes that it is a master
// until it is told who is. It will be read as soon as it answers, whenever that is.
func (f *failovers) begins(n *node) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last[n] = reading{master: true}
}

// promotedSince returns the first promotion in a group after a time.
func (f *failovers) promotedSince(group int, at time.Time) (promotion, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.promotions {
		if p.node.group == group && p.at.After(at) {
			return p, true
		}
	}
	return promotion{}, false
}

// endSince returns the first end of a node as a master after a time.
func (f *failovers) endSince(n *node, at time.Time) (masterEnd, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.ends {
		if e.node == n && e.at.After(at) {
			return e, true
		}
	}
	return masterEnd{}, false
}

// runs are all changes of who is master.
func (f *failovers) runs(start time.Time) (list []found.Master) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.promotions {
		list = append(list, found.Master{At: seconds(p.at.Sub(start)), Node: p.node.name, Becomes: true, Ledger: p.sum})
	}
	for _, e := range f.ends {
		if e.state == "" { // it had just been started, and is told who is master
			continue
		}
		list = append(list, found.Master{At: seconds(e.at.Sub(start)), Node: e.node.name, Ledger: e.sum})
	}
	slices.SortFunc(list, func(a, b found.Master) int { return cmp.Compare(a.At, b.At) })
	return list
}

// lost is how much was lost, given what is there, and how much more it may have been.
func (f *failovers) lost(ledger int64) (exact, more int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.gained - ledger, f.perhaps
}

// losses are the ends of masters at which something may have been lost that had been acknowledged.
func (f *failovers) losses() (at []time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.ends {
		if !f.keptLocked(e) {
			at = append(at, e.at)
		}
	}
	return at
}

// keptLocked says whether somebody has gone on from the state of a master that ended.
func (f *failovers) keptLocked(e masterEnd) bool {
	return e.known && (e.state == "" || slices.ContainsFunc(f.promotions, func(p promotion) bool {
		return p.node.group == e.node.group && (p.before == e.state || p.after == e.state)
	}))
}

// lostAt is how many hits were lost with a master that another one replaced, at least.
func (f *failovers) lostAt(e masterEnd, p promotion) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.keptLocked(e) {
		return 0
	}
	return max(e.sum-p.sum, 0)
}
