package score

import (
	"github.com/offpath-io/offpath/loadtest/result"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/check"
)

// Charged adds what a checker says of its hits.
func Charged(c *result.Conservation, s check.Stats) {
	for _, r := range s.Rules {
		c.Charged += r.Charged
		c.Overflow += r.Overflow
		c.Lost += r.Lost
	}
}

// Ledger adds what a store has on record.
func Ledger(c *result.Conservation, l storage.Ledger) {
	for _, r := range l {
		c.Counted += r.Counted
		c.Late += r.Late
		c.Refused += r.Refused
	}
}
