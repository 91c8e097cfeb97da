package limits

import (
	"hash/maphash"
	"sync"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate/internal/wire"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/events"
)

// Quota bounds the rules that checkers of one credential report. Each rule takes up room in the
// store's ledger for ever, and counters of its own for two of its windows; so made-up names could
// fill the store. Its methods are safe for concurrent use.
type Quota struct {
	most int // of one credential
	seed maphash.Seed

	mu          sync.Mutex
	credentials map[uint32]*reported
}

// reported are the rules that a credential's checkers have reported since the last turn, and those
// that they had reported only between that and the turn before.
type reported struct {
	young, old map[uint64]struct{} // by hash: two of one hash count as one
	turned     int64               // own time
}

const (
	// quotaTurn is the time from turn to turn: a rule that is no longer reported is forgotten in
	// the second one.
	quotaTurn = 12 * time.Hour
	// maxCredentials bounds the credentials that are told apart; all others share one quota.
	maxCredentials = 1 << 14
	// otherCredentials is the credential of that shared quota; epochs have 24 bits for theirs.
	otherCredentials = 1 << 31
)

// NewQuota returns a quota of most rules for each credential.
func NewQuota(most int) *Quota {
	return &Quota{most: most, seed: maphash.MakeSeed(), credentials: make(map[uint32]*reported)}
}

// Admit takes in the rules that a checker reports at own time now, and returns true, if there is
// room for all of them. Known rules always have room.
func (q *Quota) Admit(epoch uint64, rules []*events.Rule, now int64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	o := q.ofLocked(events.CredentialOf(epoch))
	if now-o.turned >= int64(quotaTurn) {
		o.old, o.young, o.turned = o.young, make(map[uint64]struct{}), now
	}
	var added []uint64
	for _, r := range rules {
		id := maphash.Comparable(q.seed, storage.RuleID{Name: r.GetName(), Shape: wire.Shape(r)})
		if _, known := o.young[id]; known {
			continue
		}
		if _, known := o.old[id]; known {
			delete(o.old, id)
		} else if len(o.young)+len(o.old) >= q.most {
			for _, id := range added {
				delete(o.young, id)
			}
			return false
		} else {
			added = append(added, id)
		}
		o.young[id] = struct{}{}
	}
	return true
}

func (q *Quota) ofLocked(credential uint32) *reported {
	o := q.credentials[credential]
	if o == nil && len(q.credentials) >= maxCredentials {
		credential = otherCredentials
		o = q.credentials[credential]
	}
	if o == nil {
		o = &reported{young: make(map[uint64]struct{})}
		q.credentials[credential] = o
	}
	return o
}
