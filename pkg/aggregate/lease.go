package aggregate

// A lease gives one checker permits of one key in one bucket; a permit is the right to one hit. Per key
// and bucket, a store keeps for each checker epoch two counters that only grow, how many permits were
// granted to it and how many it has returned. The difference, summed over all epochs, is held: what may
// have been spent, or still be. Held permits count in the window as hits do, by the same arithmetic.

// LeaseFold is what one call of [Store.Lease] does to one shard.
type LeaseFold struct {
	Shard uint32
	// Now is the fleet's time. A store with a clock of its own grants by the earlier of the two, so that
	// no bucket has melted more than it really has.
	Now int64
	// Seen is the latest state of the shard that workers know of, as in a [Fold].
	Seen State
	// Rules are the rules of the keys, each identity once. Limits are from 1 to events.MaxCount.
	Rules []Rule
	// Keys are distinct: no two have the same rule and text.
	Keys []LeaseKey
}

// LeaseKey is one key of a LeaseFold, and who asks for its permits.
type LeaseKey struct {
	// Rule is an index in the fold's rules.
	Rule int
	// Text is any bytes, up to events.MaxKeyLength of them.
	Text string
	// Asks are at most one per epoch, at least one. What cannot be shared out evenly goes to the earlier.
	Asks []Ask
}

// Ask is what one checker says of a key.
type Ask struct {
	Epoch uint64
	// Bucket is the one that it speaks of, and Known how many permits of that bucket it knows to have been
	// granted to it, from 0 to events.MaxCount.
	Bucket, Known int64
	// Want is how many more it would like, from 0 to events.MaxCount.
	Want int64
	// Returns are how many permits it has given back in all, by bucket, from 0 to events.MaxCount each.
	// The order is any. More than were granted count as all of them.
	Returns []Cell
}

// Leased is what became of a LeaseFold.
type Leased struct {
	// State is the shard's, after the fold. Its version grows with each fold that changed anything, so
	// that a store which has lost a grant is found out.
	State State
	// Now is the time by which the store granted, in Unix nanoseconds, at most the fold's.
	Now int64
	// Lost is when the shard last began a generation because it had lost data, by the store's time; 0 if
	// that never happened. See [QuietUntil].
	Lost int64
	// Loss is as that of [Applied].
	Loss Loss
	// Overflow says of which rules there are too many new keys, each once; nothing is granted of
	// these. Their hits are none.
	Overflow []Overflow
	// Keys are the fold's, in its order. They are the caller's to keep.
	Keys []LeasedKey
}

// LeasedKey is what became of a key.
type LeasedKey struct {
	// Bucket is the rule's current one at Leased.Now: that of the grants.
	Bucket int64
	// Held are how many permits are held, after the fold, of every bucket that is live at Leased.Now and of
	// those in the near future, in ascending order. Zeros may be left out, older buckets put in.
	Held []Cell
	// Asks are the key's, in its order.
	Asks []Granted
	// New and Returned are how many permits this fold has granted, and taken back.
	New, Returned int64
	// Overflows says that the key is one of those that are too many.
	Overflows bool
}

// Granted is what an Ask's epoch has been granted in all, those it has returned included.
type Granted struct {
	// Current is of the current bucket, Spoken of the one that the ask speaks of: the same number if that
	// is the same bucket.
	Current, Spoken int64
}

// Wants is how many permits an ask is to have at the most: what it wants if all that was granted to its
// epoch in the current bucket, granted, is known to it, and otherwise none, because an answer was lost.
func (a *Ask) Wants(current, granted, limit int64) int64 {
	known := int64(0) // of a bucket that the ask does not speak of
	if a.Bucket == current {
		known = a.Known
	}
	if granted != known {
		return 0
	}
	return min(a.Want, limit, maxCount-granted)
}
