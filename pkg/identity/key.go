package identity

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// MaxKey is the greatest length of a key, in bytes. A longer one is replaced by
// "sha256:" and the hash of the whole in hexadecimal: 71 bytes. It is never cut,
// for then callers with a long common start would share one count.
const MaxKey = 512

const (
	separator = '|'
	escape    = '\\'

	hashPrefix = "sha256:"
	hashedLen  = len(hashPrefix) + 2*sha256.Size
)

// AppendKey appends the key of the named attributes to dst and returns it. A missing
// attribute counts as empty. The key of one name is its value as it is; several are
// joined by '|', with each '|' and '\' of the values escaped by a '\'. Values are
// bytes: they need not be UTF-8, and nothing in them is changed or normalised, but for
// the address of the attribute IP: that stands for its group, as [Group] has it by
// default, unless it is a group already or no address; and for hosts, see [FoldHost].
//
// Besides long keys, one that looks like a hashed key is hashed too, so that nobody
// can send the hash of another's long key and share its count.
//
// It does not allocate if dst has room for the key as it is before any hashing.
func AppendKey(dst []byte, names []string, attrs Attributes) []byte {
	start := len(dst)
	for i, name := range names {
		value, _ := attrs.Get(name)
		if name == IP {
			if key, ok := AppendClient(appendValue(dst, "", i, len(names)), value); ok {
				dst = key
				continue
			}
		}
		if IsHost(name) {
			value = FoldHost(value)
		}
		dst = appendValue(dst, value, i, len(names))
	}
	return boundFrom(dst, start)
}

// IP is the attribute of the client's address, which everybody behind it is limited by. The address itself, for lists
// and for those who want each apart, is another attribute's.
const IP = "ip"

// AppendClient appends to dst what a key has for a value of the attribute IP: the group of its address, as [Group] has it
// by default. ok is false, and text is dst, if that is the value as it is: of IPv4 alone, of a group, and of what is no
// address. It does not allocate for addresses and groups if dst has room.
func AppendClient(dst []byte, value string) (text []byte, ok bool) {
	if strings.IndexByte(value, ':') < 0 || isGroup(value) {
		return dst, false
	}
	addr, ok := ParseAddr(value)
	if !ok {
		return dst, false
	}
	return AppendGroup(dst, addr, 0, 0), true
}

// isGroup says whether what has a colon may be a group, and so is no address: to parse it as one would allocate an error.
func isGroup(value string) bool {
	return strings.IndexByte(value, '/') >= 0 && strings.IndexByte(value, '%') < 0
}

// JoinKey is AppendKey for values at hand.
func JoinKey(values ...string) string {
	var key []byte
	for i, value := range values {
		key = appendValue(key, value, i, len(values))
	}
	return string(boundFrom(key, 0))
}

// Bound is the key to use for one that somebody made himself: the same if it has at
// most MaxKey bytes, else its hash. What AppendKey and JoinKey return it leaves alone,
// so it cannot tell their hashes from a text that a client made to look like one:
// for what a client wrote, use JoinKey.
func Bound(key string) string {
	if len(key) <= MaxKey {
		return key
	}
	return string(appendHash(nil, sha256.Sum256([]byte(key))))
}

// appendValue appends the value at place i of n.
func appendValue(dst []byte, value string, i, n int) []byte {
	if n == 1 {
		return append(dst, value...)
	}
	if i > 0 {
		dst = append(dst, separator)
	}
	done := 0
	for j := 0; j < len(value); j++ {
		if c := value[j]; c == separator || c == escape {
			dst = append(dst, value[done:j]...)
			dst = append(dst, escape)
			done = j
		}
	}
	return append(dst, value[done:]...)
}

// boundFrom replaces the key dst[start:] by its hash if need be.
func boundFrom(dst []byte, start int) []byte {
	key := dst[start:]
	if len(key) <= MaxKey && !looksHashed(key) {
		return dst
	}
	return appendHash(dst[:start], sha256.Sum256(key))
}

func appendHash(dst []byte, sum [sha256.Size]byte) []byte {
	dst = append(dst, hashPrefix...)
	return hex.AppendEncode(dst, sum[:])
}

func looksHashed(key []byte) bool {
	if len(key) != hashedLen || string(key[:len(hashPrefix)]) != hashPrefix {
		return false
	}
	for _, c := range key[len(hashPrefix):] {
		if strings.IndexByte("0123456789abcdef", c) < 0 {
			return false
		}
	}
	return true
}
