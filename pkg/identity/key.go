package identity

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// MaxKey is the greatest length of a key, in bytes. A longer one is replaced by "sha256:" and its
// hash in hexadecimal: 71 bytes. It is not truncated, because callers with a long common prefix
// would share a counter then.
const MaxKey = 512

const (
	separator = '|'
	escape    = '\\'

	hashPrefix = "sha256:"
	hashedLen  = len(hashPrefix) + 2*sha256.Size
)

// AppendKey appends the key of the named attributes to dst and returns it. A missing attribute
// counts as empty. The key of one attribute is its value; several are joined by '|', with each '|'
// and '\' of the values escaped by a '\'. Values are bytes: they need not be UTF-8, and they are
// not normalised, with two exceptions. An address of the attribute IP is replaced by its group, as
// [Group] returns it by default; hosts are folded, see [FoldHost].
//
// Long keys are hashed, and so are those that look like a hashed key: otherwise a client could send
// the hash of another's long key and share its counter.
//
// It does not allocate if dst has room for the key before hashing.
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

// IP is the attribute of the client's address. Keys have the address's group; the attribute address
// of the adapters is for keys and lists of single addresses.
const IP = "ip"

// AppendClient appends the part of a key for a value of the attribute IP to dst: the group of the
// address, as [Group] returns it by default. ok is false, and text is dst, if the key has the value
// itself: for plain IPv4, for groups, and for texts that are no address. It does not allocate for
// addresses and groups if dst has room.
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

// isGroup reports whether a text with a colon may be a group and is no address. Parsing it as an
// address would allocate an error.
func isGroup(value string) bool {
	return strings.IndexByte(value, '/') >= 0 && strings.IndexByte(value, '%') < 0
}

// JoinKey returns the key of values, as AppendKey does for attributes.
func JoinKey(values ...string) string {
	var key []byte
	for i, value := range values {
		key = appendValue(key, value, i, len(values))
	}
	return string(boundFrom(key, 0))
}

// Bound returns a key of at most MaxKey bytes as it is, and otherwise its hash. It does not change
// the results of AppendKey and JoinKey. So it cannot distinguish their hashes from a text that a
// client made to look like one: for a client's text, use JoinKey.
func Bound(key string) string {
	if len(key) <= MaxKey {
		return key
	}
	return string(appendHash(nil, sha256.Sum256([]byte(key))))
}

// appendValue appends the value at index i of n.
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

// boundFrom replaces the key dst[start:] by its hash if necessary.
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
