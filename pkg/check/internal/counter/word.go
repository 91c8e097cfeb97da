package counter

// The allowance is one word, so that a check can take a hit off it and count itself by one atomic
// operation: hits left in the lower 24 bits, hits taken in the next 24, then the stamp of the
// limits that it was reckoned from, without which it is worth nothing (Limits.Stamp). With the top
// bit set it is the other way round: so many hits are turned away, and if that is none, all are: a
// block, which lets no hit pass until the time in until, however many come.

// Raised is the bit of beyond that says that an elastic rule had room.
const Raised = uint32(1) << 31

// The parts of the word of an allowance, see counter. 24 bits are enough for hits: an allowance
// that is used up is renewed by the next check. Stamps repeat after 32,768 changes of a rule, which
// no check outlasts.
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

// A verdict is what a check without the lock came to.
type verdict uint8

const (
	unknown verdict = iota // the lock is needed
	Allowed
	Denied  // by a block
	Refused // and noted as such in the word
)

// The kinds of hits that a message tells of, as events.RowKind has them.
const (
	AdmittedHits = iota
	DeniedHits
	RefundedHits
	Kinds
)
