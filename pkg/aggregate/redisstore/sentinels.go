package redisstore

import (
	"errors"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"
)

// errReplica is for a node that a Sentinel has named as the master.
var errReplica = errors.New("the server is a replica, though a Sentinel names it as the master")

// sentinels says when others have to be asked. go-redis stays with one for as long as it answers,
// and one that was frozen during a failover may go on naming the master of before.
type sentinels struct {
	mu      sync.Mutex
	silent  int // calls in a row to which nobody replied
	leftOut int // the one that is not asked, once there was reason to doubt
	closed  bool
}

// mislead takes in how a call went, and says whether a Sentinel may be wrong: it names a replica, or
// a node that has not replied twice.
func (s *sentinels) mislead(err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if redis.HasErrorPrefix(err, "READONLY") || errors.Is(err, errReplica) {
		return true
	}
	if reply := redis.Error(nil); err == nil || errors.As(err, &reply) {
		s.silent = 0
		return false
	}
	s.silent++
	return s.silent%2 == 0
}

func (s *sentinels) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

// askOthers replaces a client by one that asks all Sentinels but one, each time another one.
func (s *Store) askOthers(client redis.UniversalClient) {
	s.sentinels.mu.Lock()
	defer s.sentinels.mu.Unlock()
	all := s.where.Addrs
	if s.where.MasterName == "" || len(all) < 2 || s.Client() != client || s.sentinels.closed {
		return
	}
	others, i := *s.where, s.sentinels.leftOut
	others.Addrs = slices.Delete(slices.Clone(all), i, i+1)
	s.sentinels.leftOut = (i + 1) % len(all)
	next := redis.NewUniversalClient(&others)
	s.client.Store(&next)
	go func() { _ = client.Close() }() // it may wait for a Sentinel; calls under way fail, and are repeated
}
