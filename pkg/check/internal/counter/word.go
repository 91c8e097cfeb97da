package counter

// The allowance is one word, so that a check can take a hit off it and count itself by one atomic
// operation: hits left in the lower 24 bits, hits taken in the next 24, then the stamp of the
// limits that it was computed from. It is valid only under limits with this stamp (Limits.Stamp).
// With the top bit set, the lower 24 bits are the hits still to be denied. If they are 0, the word
// is a block: every hit is denied until Until.

// Raised is the bit of Counter.Beyond that says that an elastic rule had room.
const Raised = uint32(1) << 31

// The parts of the word of an allowance, see Counter.Allowance. 24 bits are enough for hits: the
// next check renews an allowance that is used up. Stamps repeat after 32,768 changes of a rule; no
// check lasts that long.
const (
	hitBits    = 24
	oneTaken   = uint64(1) << hitBits
	LeftMask   = oneTaken - 1
	mostLeft   = int64(LeftMask)
	oneAllowed = oneTaken - 1 // added to the word: one more taken, one fewer left
	OneStamp   = uint64(1) << (2 * hitBits)
	Blocked    = uint64(1) << 63
	StampMask  = Blocked - OneStamp
)

// A verdict is the result of a check without the lock.
type verdict uint8

const (
	unknown verdict = iota // the lock is needed
	Allowed
	Denied        // by a block
	DeniedCounted // one of the word's hits to deny, and counted there
)

// The kinds of hits in a message, with the numbers of events.RowKind.
const (
	AdmittedHits = iota
	DeniedHits
	RefundedHits
	Kinds
)
