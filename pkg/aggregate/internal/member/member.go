// Package member decides which aggregator the requests of a shard go to first: its owner.
//
// The aggregators tell each other several times a second which shards they serve, own and want. A
// shard belongs to the one with the highest rendezvous hash among those that serve it. But nobody
// takes a shard from an owner that is heard: a better one asks, and takes it when the owner yields.
// The owner goes on until it hears that, so that the shard's requests always reach somebody.
//
// Ownership is a preference, never a permission: whichever aggregator applies a report, the store
// counts it once. So nothing is lost while two aggregators, or none, believe that they own a shard,
// for as long as a message takes, or while they do not hear each other. See D. G. Thaler and C. V.
// Ravishankar, "Using Name-Based Mappings to Increase Hit Rates", 1998, for rendezvous hashes.
package member

import (
	"bytes"
	"maps"
	"math"
	"math/bits"
	"slices"
	"sync"
	"time"

	"github.com/offpath-io/offpath/pkg/events"
)

const (
	// Every is how often an aggregator tells the others about itself.
	Every = 250 * time.Millisecond
	// Silent is after how long without a message an aggregator counts as gone: once this one has
	// heard more than silent messages of its own since. While it, or NATS, stands still it hears
	// none, and what others say is still under way.
	Silent = time.Second
	silent = int(Silent / Every)
	// forgotten is after how long one is in any case: who does not hear itself cannot tell.
	forgotten = time.Minute
	// doubtful is the same for an owner that two requests have not reached since: one may be a
	// message that is lost, or late.
	doubtful = 2 * Every
	// overtaking is how long a message may have been overtaken by a later one, and is ignored. One
	// that claims to be of the future keeps others from being heard for no longer.
	overtaking = 2 * Every
	// listen is how many of its own messages one hears after the first before it takes a shard.
	listen = 3
	// A message of its own does not count if it took so much later than the one before, unless that
	// was late as well: it may come before what others have said meanwhile. Nor does one so soon
	// after another one that counts.
	later = Every / 2
	soon  = Every * 3 / 4
)

// Members are the aggregators, as one of them, this one, knows them. Times are its own, in ns. The
// methods are safe for concurrent use. A message that says what its sender has said before costs no
// work for single shards.
type Members struct {
	id uint64

	mu      sync.Mutex
	others  map[uint64]*other
	list    []*other // the same; nil if that has changed
	heard   int64    // when this one last heard itself; 0: never
	sent    int64    // when it had sent what it heard then
	late    bool     // that was late
	own     int      // how many messages of its own it has heard that count
	counted int64    // when it heard the last one of these
	began   int      // what own was when it began to hear itself

	// What Own decided last, and upon what.
	serves, owned []bool
	roles         []role // by shard
	hearing       hearing
	stale         []byte // shards of which others have said something else since, as bits
}

// role is what an aggregator is to a shard.
type role uint8

const (
	standby role = iota
	wants        // it would be the better owner
	yields       // it goes on as the owner until the better one, which wants the shard, has taken it
	owns
)

// other is another aggregator.
type other struct {
	id     uint64
	said   *events.Member // last
	at     int64          // when it came
	own    int            // what this one's own was then
	lowest int            // of the shards that it serves and owns, or none
	doubts int            // requests that have not reached it since it has been doubtful
}

// none is greater than any shard.
const none = math.MaxInt

// hear takes in what it has told.
func (o *other) hear(said *events.Member, now int64, own int) {
	o.said, o.at, o.own, o.lowest, o.doubts = said, now, own, none, 0
	for i, owns := range said.GetOwns() {
		if owns &= at(said.GetServes(), i); owns != 0 {
			o.lowest = 8*i + bits.TrailingZeros8(owns)
			return
		}
	}
}

// hearing is whether an aggregator hears what aggregators say.
type hearing uint8

const (
	deaf    hearing = iota // it does not hear even itself
	hears                  // it does
	listens                // and has for a while
)

// New returns the members that an aggregator knows of before it has heard any. Each life of an
// aggregator has an id of its own, which is not 0.
func New(id uint64) *Members {
	return &Members{id: id, others: make(map[uint64]*other)}
}

// Observe takes in what an aggregator, this one included, has told all of them, and returns whether
// Own may decide otherwise now.
func (m *Members) Observe(said *events.Member, now int64) (news bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch o := m.others[said.GetId()]; {
	case said.GetId() == m.id:
		m.hearItselfLocked(said.GetSent(), now)
		return m.dropSilentLocked(now) || m.hearingLocked(now) != m.hearing
	case said.GetLeaving():
		return m.dropLocked(o)
	case o != nil:
		if said.GetSent() >= o.said.GetSent() || now-o.at >= int64(overtaking) {
			news = m.changeLocked(o.said, said)
			o.hear(said, now, m.own)
		}
	case len(m.others) < events.MaxMembers:
		o = &other{id: said.GetId()}
		o.hear(said, now, m.own)
		m.others[o.id], m.list = o, nil
		return m.changeLocked(new(events.Member), said)
	}
	return news
}

// hearItselfLocked takes in what this aggregator has said itself at own time sent.
func (m *Members) hearItselfLocked(sent, now int64) {
	if sent <= m.sent || sent > now { // a repeat, or not its own
		return
	}
	gap := now - m.heard
	m.late = !m.late && gap-(sent-m.sent) > int64(later)
	m.heard, m.sent = now, sent
	if !m.late && now-m.counted >= int64(soon) {
		m.own, m.counted = m.own+1, now
	}
	if gap > int64(Silent) { // nothing was heard meanwhile, whoever spoke
		m.began, m.counted = m.own, now
	}
}

// dropSilentLocked forgets those that are silent, and returns whether there is one.
func (m *Members) dropSilentLocked(now int64) (gone bool) {
	for _, o := range m.listLocked() {
		if age := now - o.at; m.own-o.own > silent && age > int64(Silent) || age > int64(forgotten) {
			gone = m.dropLocked(o) || gone
		}
	}
	return gone
}

// changeLocked takes in that an aggregator has said first before, then after, and returns whether
// that is something else of any shard.
func (m *Members) changeLocked(before, after *events.Member) (news bool) {
	for _, sets := range [][2][]byte{
		{before.GetServes(), after.GetServes()},
		{before.GetOwns(), after.GetOwns()},
		{before.GetWants(), after.GetWants()},
	} {
		if bytes.Equal(sets[0], sets[1]) {
			continue
		}
		news = true
		length := max(len(sets[0]), len(sets[1]))
		m.stale = append(m.stale, make([]byte, max(length-len(m.stale), 0))...)
		for i := range length {
			m.stale[i] |= at(sets[0], i) ^ at(sets[1], i)
		}
	}
	return news
}

// dropLocked takes in that an aggregator is gone, if it was there, and returns whether it was.
func (m *Members) dropLocked(o *other) (gone bool) {
	if o == nil {
		return false
	}
	delete(m.others, o.id)
	m.list = nil
	m.changeLocked(o.said, new(events.Member))
	return true
}

// Doubt takes in that a checker has not reached the owner of a shard, and returns whether that
// owner now counts as gone. It does not while this aggregator has not heard itself: it may have
// stood still.
func (m *Members) Doubt(shard uint32, now int64) (gone bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, owner := m.judgeLocked(int(shard))
	if owner == nil || now-owner.at <= int64(doubtful) ||
		m.own-owner.own < int(doubtful/Every) || now-m.heard > int64(Every*3/2) {
		return false
	}
	owner.doubts++
	return owner.doubts > 1 && m.dropLocked(owner)
}

// OwnedByOther returns whether another aggregator says that it owns a shard.
func (m *Members) OwnedByOther(shard uint32) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, owner := m.judgeLocked(int(shard))
	return owner != nil
}

// ServedByOther returns whether another aggregator has said lately that it serves a shard.
func (m *Members) ServedByOther(shard uint32, now int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.ContainsFunc(m.listLocked(), func(o *other) bool {
		return now-o.at <= int64(Silent) && isSet(o.said.GetServes(), int(shard))
	})
}

// Own decides which shards this aggregator owns from now on; serves says for each shard whether it
// can have reports applied. News says that the others are to be told. Neither serves nor the result
// are changed later.
func (m *Members) Own(serves []bool, now int64) (owned []bool, news bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dropSilentLocked(now)
	hearing := m.hearingLocked(now)
	all := hearing != m.hearing || len(serves) != len(m.serves)
	if !all && len(m.stale) == 0 && slices.Equal(serves, m.serves) {
		return m.owned, false
	}
	owned, roles := slices.Clone(m.owned), slices.Clone(m.roles)
	if len(serves) != len(m.serves) {
		owned, roles = make([]bool, len(serves)), make([]role, len(serves))
	}
	for shard := range serves {
		if all || isSet(m.stale, shard) || serves[shard] != m.serves[shard] {
			roles[shard] = m.decideLocked(shard, serves[shard], hearing, owned[shard])
			owned[shard] = roles[shard] >= yields
		}
	}
	news = all || !slices.Equal(serves, m.serves) || !slices.Equal(roles, m.roles)
	m.serves, m.owned, m.roles, m.hearing, m.stale = serves, owned, roles, hearing, m.stale[:0]
	return owned, news
}

// decideLocked decides what this aggregator, which had a shard or not, is to it.
func (m *Members) decideLocked(shard int, serves bool, hearing hearing, had bool) role {
	if !serves {
		return standby
	}
	best, owner := m.judgeLocked(shard)
	switch {
	case owner == nil && had && best != nil && isSet(best.said.GetWants(), shard):
		return yields
	case owner == nil && had,
		owner == nil && best == nil && hearing == listens,
		owner != nil && had && rank(m.id, shard) > rank(owner.id, shard): // two believe that they own it
		return owns
	case owner != nil && !had && best == nil && hearing == listens:
		return wants
	}
	return standby
}

func (m *Members) hearingLocked(now int64) hearing {
	switch {
	case m.heard == 0 || now-m.heard > int64(Silent):
		return deaf
	case m.own-m.began < listen:
		return hears
	}
	return listens
}

// listLocked are the other aggregators.
func (m *Members) listLocked() []*other {
	if m.list == nil {
		m.list = slices.AppendSeq(make([]*other, 0, len(m.others)), maps.Values(m.others))
	}
	return m.list
}

// judgeLocked returns the other aggregator that is the best to own a shard, nil if this one is, and
// the one that says that it serves and owns the shard, nil if none does.
func (m *Members) judgeLocked(shard int) (best, owner *other) {
	highest, owners := rank(m.id, shard), uint64(0)
	for _, o := range m.listLocked() {
		if !isSet(o.said.GetServes(), shard) { // if it owns the shard, it is deaf
			continue
		}
		at := rank(o.id, shard)
		if at > highest {
			best, highest = o, at
		}
		if isSet(o.said.GetOwns(), shard) && at >= owners {
			owner, owners = o, at
		}
	}
	return best, owner
}

// rank is the rendezvous hash of an aggregator and a shard, by the finalizer of SplitMix64.
func rank(id uint64, shard int) uint64 {
	h := id ^ (uint64(shard)+1)*0x9e3779b97f4a7c15
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

// Listened says whether this aggregator hears what aggregators say, and has for a while.
func (m *Members) Listened(now int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.hearingLocked(now) == listens
}

// Live is how many aggregators this one has heard lately, itself included.
func (m *Members) Live(now int64) (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.hearingLocked(now) != deaf {
		n++
	}
	for _, o := range m.listLocked() {
		if now-o.at <= int64(Silent) {
			n++
		}
	}
	return n
}

// Keeper is the aggregator that keeps the fleet's time: the owner of the lowest shard that has one.
// If none has, it is the lowest id of this aggregator and those that tell the time.
func (m *Members) Keeper() (id uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	lowest := none
	if i := slices.Index(m.roles, owns); i >= 0 {
		lowest = i
	}
	for _, o := range m.listLocked() {
		lowest = min(lowest, o.lowest)
	}
	if lowest == none {
		id = m.id
		for _, o := range m.listLocked() {
			if o.said.GetTime() != 0 {
				id = min(id, o.id)
			}
		}
		return id
	}
	_, owner := m.judgeLocked(lowest)
	had := lowest < len(m.roles) && m.roles[lowest] == owns
	if owner == nil || had && rank(m.id, lowest) > rank(owner.id, lowest) {
		return m.id
	}
	return owner.id
}

// Told is what other aggregators say of the fleet: whether one knows its time, and the largest
// number of checkers, 0 if nobody knows it.
func (m *Members) Told() (time bool, checkers uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, o := range m.others {
		time = time || o.said.GetTime() != 0
		checkers = max(checkers, o.said.GetCheckers())
	}
	return time, checkers
}

// Trip is how long a message of this aggregator, sent at own time sent, took to another one, and a
// message from there back, if that one says so, and it took no longer than Silent.
func (m *Members) Trip(said *events.Member, now int64) (sent, trip int64, ok bool) {
	for _, e := range said.GetEchoes() {
		if e.GetId() == m.id {
			trip = now - e.GetSent() - e.GetHeld()
			return e.GetSent(), trip, trip >= 0 && trip <= int64(Silent)
		}
	}
	return 0, 0, false
}

// ID names this life of this aggregator.
func (m *Members) ID() uint64 { return m.id }

// Message is what this aggregator tells the others now, as Own decided last, with these serves. One
// that hears nothing serves nothing, so that it is no owner in the eyes of others. Before it has
// listened it serves what it owns, as after NATS was away; of other shards it would be an heir that
// does not take them.
func (m *Members) Message(serves []bool, now int64) *events.Member {
	m.mu.Lock()
	defer m.mu.Unlock()
	said := &events.Member{
		Id: m.id, Sent: now, Shards: uint32(len(serves)), Owns: setOf(m.roles, owns), Wants: setOf(m.roles, wants),
	}
	switch m.hearingLocked(now) {
	case listens:
		said.Serves = setOf(serves, true)
	case hears:
		said.Serves = said.Owns
	}
	for _, id := range slices.Sorted(maps.Keys(m.others)) {
		o := m.others[id]
		if now-o.at > int64(Silent) { // clocks may have drifted apart since
			continue
		}
		said.Echoes = append(said.Echoes, &events.Echo{Id: id, Sent: o.said.GetSent(), Held: now - o.at})
	}
	return said
}

// Leave is the last message of this aggregator.
func (m *Members) Leave(now int64) *events.Member {
	return &events.Member{Id: m.id, Sent: now, Leaving: true}
}

// setOf are the indices of an element, from the lowest bit of the first byte to the last byte with
// one.
func setOf[E comparable](list []E, is E) []byte {
	set := make([]byte, (len(list)+7)/8)
	length := 0
	for i, e := range list {
		if e == is {
			set[i/8] |= 1 << (i % 8)
			length = i/8 + 1
		}
	}
	return set[:length]
}

func isSet(set []byte, i int) bool { return at(set, i/8)>>(i%8)&1 == 1 }

// at is a byte of a set; those behind its end are 0.
func at(set []byte, i int) byte {
	if i < len(set) {
		return set[i]
	}
	return 0
}
