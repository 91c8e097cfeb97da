package events

import (
	"hash/fnv"
	"math"
	"math/rand/v2"

	"google.golang.org/protobuf/encoding/protowire"
)

// An epoch that belongs to a credential is 23 bits of a hash of the credential's name, and 40 at
// random: enough that 10,000 checkers with one credential have two of a kind once in 20,000 starts
// of them all. The highest bit is 0.
const (
	credentialBits = 23
	randomBits     = 40
)

// NewEpoch returns a new epoch that belongs to a credential, which a carrier's subjects name.
// Others cannot make up one that does. It is never 0.
func NewEpoch(credential string) uint64 {
	return credentialMark(credential)<<randomBits | (rand.Uint64N(1<<randomBits-1) + 1)
}

// IsEpochOf reports whether an epoch belongs to a credential.
func IsEpochOf(credential string, epoch uint64) bool {
	return epoch>>randomBits == credentialMark(credential)
}

func credentialMark(credential string) uint64 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(credential)) // never fails
	return uint64(h.Sum32() >> (32 - credentialBits))
}

// CredentialOf returns what stands for the credential of an epoch: the same for all epochs of one
// credential.
func CredentialOf(epoch uint64) uint32 { return uint32(epoch >> randomBits) }

// The formats of reports and alarms. An older part has not subscribed to a newer one, so nothing
// gets to it that it would take for something else.
const (
	// FormatPlain has rows of admitted and denied hits alone.
	FormatPlain = 1
	// FormatRefunds may have rows of refunded hits, too.
	FormatRefunds = 2
	// NewestFormat is the highest that this build knows.
	NewestFormat = FormatRefunds
)

// PeekFormat returns the format of an encoded report or alarm without reading the rest;
// FormatPlain if the bytes say nothing of it.
func PeekFormat(message []byte) uint32 {
	const field = 20
	format := uint64(FormatPlain)
	peek(message, func(number protowire.Number, kind protowire.Type, value uint64) {
		if number == field && kind == protowire.VarintType {
			format = max(format, value)
		}
	})
	return uint32(min(format, math.MaxUint32))
}

// PeekEpoch returns the epoch of a report, a lease request or a hello without reading the rest. The
// bytes need not be any of these; ok says that there is an epoch.
func PeekEpoch(message []byte) (epoch uint64, ok bool) {
	whole := peek(message, func(number protowire.Number, kind protowire.Type, value uint64) {
		if number == 1 && kind == protowire.Fixed64Type {
			epoch, ok = value, true // of several, the last one is what a decoder takes
		}
	})
	return epoch, ok && whole
}

// PeekRequest returns the header of a report or lease request whose rest may be malformed; ok says
// that it names its sender and itself.
func PeekRequest(message []byte) (epoch uint64, shard uint32, sequence uint64, ok bool) {
	peek(message, func(number protowire.Number, kind protowire.Type, value uint64) {
		switch {
		case number == 1 && kind == protowire.Fixed64Type:
			epoch = value
		case number == 2 && kind == protowire.VarintType:
			shard = uint32(value)
		case number == 4 && kind == protowire.VarintType:
			sequence = value
		}
	})
	return epoch, shard, sequence, epoch != 0 && sequence != 0 && sequence <= MaxState
}

// peek calls do for the numeric fields of a message, one after the other, and reports whether it
// could read all of it. It stops where it cannot.
func peek(
	message []byte, do func(number protowire.Number, kind protowire.Type, value uint64),
) (whole bool) {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return false
		}
		message = message[n:]
		value := uint64(0)
		switch kind {
		case protowire.VarintType:
			value, n = protowire.ConsumeVarint(message)
		case protowire.Fixed64Type:
			value, n = protowire.ConsumeFixed64(message)
		default:
			n = protowire.ConsumeFieldValue(number, kind, message)
		}
		if n < 0 {
			return false
		}
		do(number, kind, value)
		message = message[n:]
	}
	return true
}
