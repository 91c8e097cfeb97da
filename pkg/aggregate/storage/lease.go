package storage

// A lease gives one checker permits of one key in one bucket; a permit is the right to one hit. Per
// key and bucket, a store keeps for each checker epoch two counters that only grow: how many
// permits were granted to it and how many it has returned. The difference, summed over all epochs,
// is held: hits that may have been spent, or still be. Held permits count in the window as hits do,
// by the same arithmetic.

// LeaseBatch is what one call of [Store.Lease] does to one shard.
type LeaseBatch struct {
	Shard uint32
	// Now is the earliest that the fleet's time may be, and the store grants by it, whatever its
	// own clock says: so no bucket has drained more than it really has. It may be long ago, if the
	// aggregator was paused: then the permits are of a bucket that is over, which later ones make
	// no room for, and which no checker spends.
	Now int64
	// Seen is the latest state of the shard that any aggregator is known to have seen, as in a
	// [Batch].
	Seen State
	// Rules are the rules of the keys, each identity once. Limits are from 1 to events.MaxCount.
	Rules []Rule
	// Keys are distinct: no two have the same rule and text.
	Keys []LeaseKey
}

// LeaseKey is one key of a LeaseBatch, with the requests for its permits.
type LeaseKey struct {
	// Rule is an index in the batch's rules.
	Rule int
	// Text is any bytes, up to events.MaxKeyLength of them.
	Text string
	// Requests are at most one per epoch, at least one. A remainder that cannot be shared out
	// evenly goes to the earlier ones.
	Requests []LeaseRequest
}

// LeaseRequest is one checker's request for permits of a key.
type LeaseRequest struct {
	Epoch uint64
	// Bucket is the one that the request is about, and Known how many permits of that bucket the
	// checker knows to have been granted to it, from 0 to events.MaxCount.
	Bucket, Known int64
	// Want is how many more it would like, from 0 to events.MaxCount.
	Want int64
	// Returns are how many permits it has given back in all, by bucket, from 0 to events.MaxCount
	// each, in any order. More than were granted count as all of them.
	Returns []Cell
}

// Wants is how many permits to grant at most: the permits wanted if the checker knows of all that
// were granted to its epoch in the current bucket, and otherwise none, because an answer was lost.
func (r *LeaseRequest) Wants(current, granted, limit int64) int64 {
	known := int64(0) // of a bucket that the request is not about
	if r.Bucket == current {
		known = r.Known
	}
	if granted != known {
		return 0
	}
	return min(r.Want, limit, maxCount-granted)
}

// Leased is the outcome of a LeaseBatch.
type Leased struct {
	// State is the shard's, after the batch. Its version grows with each batch that changed
	// anything, so that the loss of a grant is found out.
	State State
	// Now is the time by which the store granted: the batch's, in whole milliseconds at least.
	Now int64
	// Loss is as that of [Applied].
	Loss Loss
	// Overflow are the rules with too many new keys, each once; no permits of these keys are
	// granted. Their Hits are 0.
	Overflow []Overflow
	// Keys are the batch's, in its order. The caller may keep them.
	Keys []LeasedKey
}

// LeasedKey is the outcome for one key.
type LeasedKey struct {
	// Bucket is the rule's current one at Leased.Now, the one of the new permits.
	Bucket int64
	// Held are how many permits are held, after the batch, of every bucket that is live at
	// Leased.Now and of those in the near future, in ascending order. Zeros may be left out, older
	// buckets added.
	Held []Cell
	// Grants answer the key's requests, in their order.
	Grants []Grant
	// New and Returned are how many permits this batch has granted, and taken back.
	New, Returned int64
	// Overflows says that the store has no room for the key.
	Overflows bool
	// Lost is when held permits of the key may last have been forgotten: when the shard began a
	// generation because it had lost data, or when the clock by which they expire was set; 0 for
	// never. A store with a clock measures by it how long ago that was, so that a batch of long ago
	// does not end the quiet time. See [QuietUntil].
	Lost int64
}

// Grant is how many permits a request's epoch has been granted in all, returned ones included.
type Grant struct {
	// Current are those of the current bucket, Requested those of the request's bucket: the same
	// number if that is the same bucket.
	Current, Requested int64
}
