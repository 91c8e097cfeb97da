package memstore

import (
	"maps"
	"slices"

	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/window"
)

// leases are the permits of one rule's keys.
type leases struct {
	expiring[lease]
	shape window.Shape
}

// lease is one key's permits.
type lease struct {
	held    cells
	byEpoch map[uint64]*share
}

// share is how many permits one checker was granted, and has returned, in all, by bucket.
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
		keys[i].Lost = s.lost
		changed = changed || keys[i].New > 0 || keys[i].Returned > 0
	}
	if changed {
		s.state.Version++
	}
	s.sweep(batch.Now)
	return storage.Leased{State: s.state, Now: batch.Now, Loss: s.loss, Keys: keys}
}

func (s *shard) leasesOf(r *storage.Rule, now int64) *leases {
	id := storage.RuleID{Name: r.Name, Shape: r.Shape}
	l := s.leases[id]
	if l == nil {
		l = &leases{shape: r.Shape}
		s.leases[id] = l
	}
	l.rotate(now)
	return l
}

// grant takes back the permits that a key's requests return, and grants those that there is room
// for.
func (l *leases) grant(key *storage.LeaseKey, limit, now int64, quiet bool) storage.LeasedKey {
	k := l.find(key.Text)
	if k == nil {
		k = &lease{byEpoch: make(map[uint64]*share)}
	} else {
		k.expire(l.shape, now)
	}
	bucket, requests := l.shape.Bucket(now), key.Requests
	done := storage.LeasedKey{Bucket: bucket, Grants: make([]storage.Grant, len(requests))}
	for i := range requests {
		done.Returned += k.takeBack(&requests[i], l.shape, now)
	}
	wants := make([]int64, len(requests))
	for i := range requests {
		if !quiet {
			wants[i] = requests[i].Wants(bucket, k.granted(requests[i].Epoch, bucket), limit)
		}
	}
	for i, n := range storage.Divide(storage.Room(l.shape, k.held, limit, now), wants) {
		if n > 0 {
			k.add(requests[i].Epoch, bucket, n)
			l.keep(key.Text, k, storage.ExpiryOf(l.shape, bucket))
			done.New += n
		}
	}
	for i := range requests {
		r := &requests[i]
		done.Grants[i] = storage.Grant{
			Current: k.granted(r.Epoch, bucket), Requested: k.granted(r.Epoch, r.Bucket),
		}
	}
	done.Held = slices.Clone(k.held)
	return done
}

// takeBack takes back the permits that a request returns, and returns how many that frees.
func (k *lease) takeBack(a *storage.LeaseRequest, s window.Shape, now int64) (freed int64) {
	share := k.byEpoch[a.Epoch]
	if share == nil {
		return 0
	}
	for _, r := range a.Returns {
		granted := storage.CountOf(share.granted, r.Bucket)
		if before := storage.CountOf(share.returned, r.Bucket); !s.Gone(r.Bucket, now) && min(r.Count, granted) > before {
			n := min(r.Count, granted) - before
			*share.returned.at(r.Bucket) += n
			held := k.held.at(r.Bucket)
			*held = max(*held-n, 0) // settlements may have given back some before
			freed += n
		}
	}
	return freed
}

func (k *lease) granted(epoch uint64, bucket int64) int64 {
	if share := k.byEpoch[epoch]; share != nil {
		return storage.CountOf(share.granted, bucket)
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

// expire drops expired buckets, and the checkers that have no others.
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

func (l *leases) clone() *leases { return &leases{l.expiring.clone((*lease).clone), l.shape} }

func (k *lease) clone() *lease {
	return &lease{slices.Clone(k.held), cloneAll(k.byEpoch, func(s *share) *share {
		return &share{slices.Clone(s.granted), slices.Clone(s.returned)}
	})}
}
