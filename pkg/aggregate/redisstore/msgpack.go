package redisstore

import (
	"encoding/binary"
	"errors"
	"math"
	"strconv"
)

// The few forms of MessagePack that the scripts and this package exchange.

const (
	packFalse   = 0xc2
	packTrue    = 0xc3
	packNil     = 0xc0
	packFloat32 = 0xca
	packFloat64 = 0xcb
	packUint8   = 0xcc
	packUint64  = 0xcf
	packInt8    = 0xd0
	packInt64   = 0xd3
	packStr8    = 0xd9
	packArray16 = 0xdc
	packArray32 = 0xdd
)

func packList(dst []byte, n int) []byte {
	if n < 16 {
		return append(dst, 0x90|byte(n))
	}
	if n <= math.MaxUint16 {
		return binary.BigEndian.AppendUint16(append(dst, packArray16), uint16(n))
	}
	return binary.BigEndian.AppendUint32(append(dst, packArray32), uint32(n))
}

// packText packs a text of up to 255 bytes.
func packText[T string | []byte](dst []byte, text T) []byte {
	if len(text) < 32 {
		return append(append(dst, 0xa0|byte(len(text))), text...)
	}
	return append(append(dst, packStr8, byte(len(text))), text...)
}

func packInt(dst []byte, n int64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, packInt64), uint64(n))
}

// packDigits packs a number as a text.
func packDigits(dst []byte, n int64) []byte {
	var digits [20]byte
	return packText(dst, strconv.AppendInt(digits[:0], n, 10))
}

func packBool(dst []byte, b bool) []byte {
	if b {
		return append(dst, packTrue)
	}
	return append(dst, packFalse)
}

// errReply is returned for a reply that the script cannot have given.
var errReply = errors.New("a reply that makes no sense")

// unpacker reads what a script has packed. After an error it reads zeros.
type unpacker struct {
	rest string
	err  error
}

func (u *unpacker) fail() {
	u.rest, u.err = "", errReply
}

func (u *unpacker) next(n int) string {
	if n > len(u.rest) {
		u.fail()
		return ""
	}
	s := u.rest[:n]
	u.rest = u.rest[n:]
	return s
}

// bytes reads an n-byte number.
func (u *unpacker) bytes(n int) uint64 {
	v := uint64(0)
	for _, b := range []byte(u.next(n)) {
		v = v<<8 | uint64(b)
	}
	return v
}

// list reads the length of a list.
func (u *unpacker) list() int {
	n := uint64(0)
	switch kind := u.bytes(1); {
	case kind&0xf0 == 0x90:
		n = kind & 0x0f
	case kind == packArray16:
		n = u.bytes(2)
	case kind == packArray32:
		n = u.bytes(4)
	case kind == 0x80: // an empty map, which to Lua is the same as an empty list
	default:
		u.fail()
	}
	if n > uint64(len(u.rest)) { // an entry takes a byte at least
		u.fail()
		return 0
	}
	return int(n)
}

// count reads a number, or a text that holds one; false and nil are 0.
func (u *unpacker) count() int64 {
	if u.rest == "" {
		u.fail()
		return 0
	}
	kind := u.rest[0]
	u.rest = u.rest[1:]
	switch {
	case kind < 0x80:
		return int64(kind)
	case kind >= 0xa0 && kind < 0xc0:
		return u.digits(u.next(int(kind & 0x1f)))
	case kind >= 0xe0:
		return int64(int8(kind))
	}
	switch kind {
	case packFalse, packNil:
		return 0
	case packUint8, packUint8 + 1, packUint8 + 2, packUint64:
		return int64(min(u.bytes(1<<(kind-packUint8)), math.MaxInt64))
	case packInt8:
		return int64(int8(u.bytes(1)))
	case packInt8 + 1:
		return int64(int16(u.bytes(2)))
	case packInt8 + 2:
		return int64(int32(u.bytes(4)))
	case packInt64:
		return int64(u.bytes(8))
	case packFloat32:
		return clamp(float64(math.Float32frombits(uint32(u.bytes(4)))))
	case packFloat64:
		return clamp(math.Float64frombits(u.bytes(8)))
	}
	u.fail()
	return 0
}

func (u *unpacker) bool() bool { return u.bytes(1) == packTrue }

// text reads a text of less than 32 bytes.
func (u *unpacker) text() string {
	kind := u.bytes(1)
	if kind < 0xa0 || kind >= 0xc0 {
		u.fail()
		return ""
	}
	return u.next(int(kind & 0x1f))
}

// clamp makes an integer of a number that was one before a script had it: a float is what becomes
// of one too large.
func clamp(f float64) int64 {
	if f >= math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(f)
}

// digits reads a decimal number.
func (u *unpacker) digits(s string) int64 {
	negative := len(s) > 1 && s[0] == '-'
	if negative {
		s = s[1:]
	}
	n := int64(0)
	for _, d := range []byte(s) {
		if d < '0' || d > '9' || len(s) > 19 {
			u.fail()
			return 0
		}
		n = min(n, math.MaxInt64/10)*10 + int64(d-'0')
		if n < 0 {
			n = math.MaxInt64
		}
	}
	if negative {
		return -n
	}
	return n
}
