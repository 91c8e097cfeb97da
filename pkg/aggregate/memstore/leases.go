package memstore

import (
	"maps"
	"slices"

	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/window"
)

// leases are the permits of one rule's keys.
type leases struct {
	aged[lease]
	shape window.Shape
}

// lease is one key's permits.
type lease struct {
	held    cells
	byEpoch map[uint64]*share
}

// share is what one checker has been granted, and has returned, in all.
type share struct {
	granted, returned cells
}

func (s *shard) lease(batch *storage.LeaseBatch) storage.Leased {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance(batch.Seen, batch.Now)
	keys := make([]storage.LeasedKey, len(batch.Keys))
	changed := false
	for i := range batch.Keys {
		rule := &batch.Rules[batch.Keys[i].Rule]
		quiet := batch.Now < storage.QuietUntil(rule.Shape, s.lost)
		keys[i] = s.leasesOf(rule, batch.Now).grant(&batch.Keys[i], rule.Limit, batch.Now, quiet)
		changed = changed || keys[i].New > 0 || keys[i].Returned > 0
	}
	if changed {
		s.state.Version++
	}
	s.sweep(batch.Now)
	return storage.Leased{State: s.state, Now: batch.Now, Lost: s.lost, Loss: s.loss, Keys: keys}
}

func (s *shard) leasesOf(r *storage.Rule, now int64) *leases {
	id := ruleID{name: r.Name, shape: r.Shape}
	l := s.leases[id]
	if l == nil {
		l = &leases{shape: r.Shape}
		s.leases[id] = l
	}
	l.rotate(now)
	return l
}

// grant takes in what a key's asks return, and grants what there is room for.
func (l *leases) grant(key *storage.LeaseKey, limit, now int64, quiet bool) storage.LeasedKey {
	k := l.find(key.Text)
	if k == nil {
		k = &lease{byEpoch: make(map[uint64]*share)}
	} else {
		k.expire(l.shape, now)
	}
	done := storage.LeasedKey{Bucket: l.shape.Bucket(now), Grants: make([]storage.Grant, len(key.Requests))}
	for i := range key.Requests {
		done.Returned += k.takeBack(&key.Requests[i], l.shape, now)
	}
	wants := make([]int64, len(key.Requests))
	for i := range key.Requests {
		if !quiet {
			wants[i] = key.Requests[i].Wants(done.Bucket, k.granted(key.Requests[i].Epoch, done.Bucket), limit)
		}
	}
	for i, n := range storage.Divide(storage.Room(l.shape, k.held, limit, now), wants) {
		if n > 0 {
			k.add(key.Requests[i].Epoch, done.Bucket, n)
			l.keep(key.Text, k, storage.ExpiryOf(l.shape, done.Bucket))
			done.New += n
		}
	}
	for i := range key.Requests {
		a := &key.Requests[i]
		done.Grants[i] = storage.Grant{Current: k.granted(a.Epoch, done.Bucket), Requested: k.granted(a.Epoch, a.Bucket)}
	}
	done.Held = slices.Clone(k.held)
	return done
}

// takeBack takes in what an ask returns, and says how many permits that frees.
func (k *lease) takeBack(a *storage.LeaseRequest, s window.Shape, now int64) (freed int64) {
	share := k.byEpoch[a.Epoch]
	if share == nil {
		return 0
	}
	for _, r := range a.Returns {
		granted := share.granted.of(r.Bucket)
		if before := share.returned.of(r.Bucket); !s.Gone(r.Bucket, now) && min(r.Count, granted) > before {
			n := min(r.Count, granted) - before
			*share.returned.at(r.Bucket) += n
			held := k.held.at(r.Bucket)
			*held = max(*held-n, 0) // settlements may have given some back that nobody has returned
			freed += n
		}
	}
	return freed
}

func (k *lease) granted(epoch uint64, bucket int64) int64 {
	if share := k.byEpoch[epoch]; share != nil {
		return share.granted.of(bucket)
	}
	return 0
}

func (k *lease) add(epoch uint64, bucket, n int64) {
	s := k.byEpoch[epoch]
	if s == nil {
		s = new(share)
		k.byEpoch[epoch] = s
	}
	*s.granted.at(bucket) += n
	*k.held.at(bucket) += n
}

// expire drops what has expired, and the checkers of which nothing is left.
func (k *lease) expire(s window.Shape, now int64) {
	if len(k.held) == 0 || storage.ExpiryOf(s, k.held[0].Bucket) > now { // nothing else is older
		return
	}
	k.held.expire(s, now)
	maps.DeleteFunc(k.byEpoch, func(_ uint64, one *share) bool {
		one.granted.expire(s, now)
		one.returned.expire(s, now)
		return len(one.granted) == 0
	})
}

func (l *leases) clone() *leases { return &leases{l.aged.clone((*lease).clone), l.shape} }

func (k *lease) clone() *lease {
	c := &lease{held: slices.Clone(k.held), byEpoch: make(map[uint64]*share, len(k.byEpoch))}
	for epoch, s := range k.byEpoch {
		c.byEpoch[epoch] = &share{slices.Clone(s.granted), slices.Clone(s.returned)}
	}
	return c
}
