package memstore

import (
	"github.com/offpath-io/offpath/pkg/aggregate"
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

func creditIDOf(fold *aggregate.Fold, c *aggregate.Credit) creditID {
	r := &fold.Rules[c.Rule]
	return creditID{c.Owner, ruleID{r.Name, r.Shape, r.Kind}, c.Window}
}

// overdrawn returns the fold's credits of which more would be returned than there is.
func (s *shard) overdrawn(fold *aggregate.Fold) []aggregate.Overdrawn {
	var list []aggregate.Overdrawn
	for i := range fold.Credits {
		c := &fold.Credits[i]
		left := s.credits[creditIDOf(fold, c)].left
		if c.Returned > 0 && c.Returned > left+c.Reported {
			list = append(list, aggregate.Overdrawn{Credit: i, Left: left})
		}
	}
	return list
}

// addCredits takes in what the fold reports and returns.
func (s *shard) addCredits(fold *aggregate.Fold) {
	for i := range fold.Credits {
		c := &fold.Credits[i]
		if c.Reported == 0 && c.Returned == 0 {
			continue
		}
		id := creditIDOf(fold, c)
		s.credits[id] = credit{
			left:    min(s.credits[id].left+c.Reported-c.Returned, aggregate.MaxCredit),
			expires: c.Expires(fold.Rules[c.Rule].Shape),
		}
	}
}
