package memstore

import "github.com/offpath-io/offpath/pkg/aggregate/storage"

// credit is what is left of a [storage.Credit].
type credit struct {
	left, expires int64
}

// overdrawn returns the batch's credits of which more would be returned than there is.
func (s *shard) overdrawn(batch *storage.Batch) []storage.Overdrawn {
	var list []storage.Overdrawn
	for i := range batch.Credits {
		c := &batch.Credits[i]
		left := s.credits[c.ID(batch.Rules)].left
		if c.Returned > 0 && c.Returned > left+c.Reported {
			list = append(list, storage.Overdrawn{Credit: i, Left: left})
		}
	}
	return list
}

// addCredits takes in what the batch reports and returns.
func (s *shard) addCredits(batch *storage.Batch) {
	for i := range batch.Credits {
		c := &batch.Credits[i]
		if c.Reported == 0 && c.Returned == 0 {
			continue
		}
		id := c.ID(batch.Rules)
		s.credits[id] = credit{
			left:    min(s.credits[id].left+c.Reported-c.Returned, storage.MaxCredit),
			expires: c.Expires(batch.Rules[c.Rule].Shape),
		}
	}
}
