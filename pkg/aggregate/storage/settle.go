package storage

import "github.com/offpath-io/offpath/pkg/window"

// Settled is a settlement's number among those of the checker that made its receipt. A store
// remembers the numbers that it has applied for a day; by then every receipt with that number is
// too old to be settled.
type Settled struct {
	Epoch, Number uint64
	// Sender is the credential of the checker that reports it, as [events.CredentialOf] says. It is
	// not part of the identity.
	Sender uint32
}

// Chunk is how many consecutive numbers of one checker, starting at a multiple of it, a store
// remembers together, a bit each. So a settlement takes up 1 KB for a day if no other of its chunk
// is settled; checkers give numbers one after the other.
const Chunk = 8192

// Credit is the number of hits that checkers of one credential have reported under one rule in one
// window, less what their settlements have given back: nobody gives back hits that it has not
// reported. Only rules with settlements have credits.
type Credit struct {
	// Credential is the one that the checkers' epochs name, as [events.CredentialOf] says.
	Credential uint32
	// Rule is an index in the batch's rules. Window counts windows since 1970, each of as many
	// buckets as the rule has.
	Rule   int
	Window int64
	// Reported is to be added, and Returned to be subtracted: at most what there is then.
	Reported, Returned int64
}

// CreditID tells credits apart.
type CreditID struct {
	Credential uint32
	Rule       RuleID
	Window     int64
}

// ID returns a credit's identity; the rules are its batch's.
func (c *Credit) ID(rules []Rule) CreditID {
	return CreditID{c.Credential, rules[c.Rule].ID(), c.Window}
}

// Expires is the time from which a store may forget a credit of a rule of this shape.
func (c *Credit) Expires(s window.Shape) int64 {
	return ExpiryOf(s, (c.Window+1)*int64(s.Buckets)-1)
}

// MaxCredit is the largest value of a credit; a store need not hold more.
const MaxCredit = maxCount

// Overdrawn is a credit of which a batch would return more than there is. Credit is its index in
// the batch.
type Overdrawn struct {
	Credit int
	// Left is without the hits that the batch reports.
	Left int64
}

// Permits are hits under strict enforcement that a settlement adds to the permits of a key that are
// held, or subtracts from them: as if that many more had been granted, or returned. Only a lease
// that is on record changes.
type Permits struct {
	// Rule is an index in the batch's rules.
	Rule   int
	Text   string
	Bucket int64
	// Count may be negative. The permits held stay at 0 at least.
	Count int64
}
