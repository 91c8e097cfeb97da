package events

import (
	"hash/fnv"
	"math"
	"math/rand/v2"

	"google.golang.org/protobuf/encoding/protowire"
)

// An epoch that belongs to an owner is 23 bits of a hash of the owner's name, and 40 at random: enough that 10,000 checkers
// with one owner have two of a kind once in 20,000 starts of them all. The highest bit is 0.
const (
	ownerBits  = 23
	randomBits = 40
)

// NewEpoch returns a new epoch that belongs to owner, whom a carrier's subjects name. Others cannot make up one that does.
// It is never 0.
func NewEpoch(owner string) uint64 {
	return ownerMark(owner)<<randomBits | (rand.Uint64N(1<<randomBits-1) + 1)
}

// Owns reports whether an epoch belongs to owner.
func Owns(owner string, epoch uint64) bool { return epoch>>randomBits == ownerMark(owner) }

func ownerMark(owner string) uint64 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(owner)) // never fails
	return uint64(h.Sum32() >> (32 - ownerBits))
}

// OwnerOf returns what stands for the owner of an epoch: the same for all epochs of one owner.
func OwnerOf(epoch uint64) uint32 { return uint32(epoch >> randomBits) }

// The formats of reports and alarms. An older part has not subscribed to a newer one, so nothing gets to it that it would take for
// something else.
const (
	// FormatPlain has rows of admitted and denied hits alone.
	FormatPlain = 1
	// FormatRefunds may have rows of refunded hits, too.
	FormatRefunds = 2
	// NewestFormat is the highest that this build knows.
	NewestFormat = FormatRefunds
)

// PeekFormat returns the format of an encoded report or alarm without reading the rest; FormatPlain if the bytes say nothing of it.
func PeekFormat(message []byte) uint32 {
	const field = 20
	format := uint64(FormatPlain)
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			break
		}
		message = message[n:]
		value := uint64(0)
		if number == field && kind == protowire.VarintType {
			value, n = protowire.ConsumeVarint(message)
		} else {
			n = protowire.ConsumeFieldValue(number, kind, message)
		}
		if n < 0 {
			break
		}
		format = max(format, value)
		message = message[n:]
	}
	return uint32(min(format, math.MaxUint32))
}

// PeekEpoch returns the epoch of a report, a lease request or a hello without reading the rest; it is the first field of each.
// The bytes need not be any of these; ok says that there is an epoch.
func PeekEpoch(message []byte) (epoch uint64, ok bool) {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return 0, false
		}
		message = message[n:]
		if number == 1 && kind == protowire.Fixed64Type {
			if epoch, n = protowire.ConsumeFixed64(message); n < 0 {
				return 0, false
			}
			ok = true // and not the end: of several, the last one is what a decoder takes
		} else if n = protowire.ConsumeFieldValue(number, kind, message); n < 0 {
			return 0, false
		}
		message = message[n:]
	}
	return epoch, ok
}
