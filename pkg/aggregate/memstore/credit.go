package memstore

import (
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
)

// creditID is whose credit it is, of which rule and window.
type creditID struct {
	owner  uint32
	rule   ruleID
	window int64
}

// credit is what is left of it.
type credit struct {
	left, expires int64
}

func creditIDOf(batch *storage.Batch, c *storage.Credit) creditID {
	r := &batch.Rules[c.Rule]
	return creditID{c.Owner, ruleID{r.Name, r.Shape, r.Kind}, c.Window}
}

// overdrawn returns the fold's credits of which more would be returned than there is.
func (s *shard) overdrawn(batch *storage.Batch) []storage.Overdrawn {
	var list []storage.Overdrawn
	for i := range batch.Credits {
		c := &batch.Credits[i]
		left := s.credits[creditIDOf(batch, c)].left
		if c.Returned > 0 && c.Returned > left+c.Reported {
			list = append(list, storage.Overdrawn{Credit: i, Left: left})
		}
	}
	return list
}

// addCredits takes in what the fold reports and returns.
func (s *shard) addCredits(batch *storage.Batch) {
	for i := range batch.Credits {
		c := &batch.Credits[i]
		if c.Reported == 0 && c.Returned == 0 {
			continue
		}
		id := creditIDOf(batch, c)
		s.credits[id] = credit{
			left:    min(s.credits[id].left+c.Reported-c.Returned, storage.MaxCredit),
			expires: c.Expires(batch.Rules[c.Rule].Shape),
		}
	}
}
