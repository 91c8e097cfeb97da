package redisstore

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"strconv"

	"github.com/offpath-io/offpath/pkg/aggregate/storage"
)

// groupsOf is into how many hashes the keys of one rule and bucket are spread in each of so many
// shards: 2^14 in one shard, and no more than four times as many in all. Redis keeps a hash packed
// up to 512 keys (hash-max-listpack-entries), so this does for 8 M keys of a rule in one shard, and
// 30 M in several; beyond, counting goes on in hash tables of four times the size.
//
// At 1 M keys in one shard, with two buckets live, per key:
//
//	groups       2^13  2^14  2^15
//	Redis, ns    1820  1770  1890  CPU time of BenchmarkPipeline, medians of 4 in one run
//	bytes        23.8  26.9  32.9  beside the text (TestMemoryPerKey)
//
// Fewer groups take longer to search, more of them are spread over more memory.
func groupsOf(shards int) uint32 {
	groups := uint32(1 << 14)
	for groups > 1<<11 && int(groups)*shards > 1<<16 {
		groups /= 2
	}
	return groups
}

// maxField is the longest key text that is a hash's field as it is. A longer one would turn the
// whole hash from a listpack into a hash table (hash-max-listpack-value), so its SHA-256, cut to 16
// bytes, stands in for it, in hashes of their own.
const maxField = 64

// castagnoli is of the checksum by which a key's field gets its group. CRC-32C spreads keys that
// differ in a few digits evenly, takes a few ns, and is another function than the one that chose
// the shard.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// fieldOf is what stands for a key's text in the store.
func fieldOf(text string) (field string, long bool) {
	if len(text) <= maxField {
		return text, false
	}
	sum := sha256.Sum256([]byte(text))
	return string(sum[:16]), true
}

// ruleName stands for a rule's identity, its name and shape, in names of keys: 11 characters
// instead of up to 150.
func ruleName(r *storage.Rule) string {
	h := sha256.New()
	var shape [17]byte
	binary.BigEndian.PutUint64(shape[:], uint64(r.Shape.Length))
	binary.BigEndian.PutUint64(shape[8:], uint64(r.Shape.Buckets))
	if r.Shape.Fixed {
		shape[16] = 1
	}
	kind := r.Kind
	if r.BesideLevel() { // in the admitted ones' hash
		kind = storage.Admitted
	}
	shape[16] |= byte(kind)<<1 | byte(r.Shape.Kind)<<3
	h.Write(shape[:])
	h.Write([]byte(r.Name))
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:8])
}

// prefix begins the names of all keys of a shard: the braces make a hash tag, which keeps them on
// one node of a cluster.
func prefix(namespace string, shard uint32) string {
	return namespace + ":{" + strconv.FormatUint(uint64(shard), 10) + "}:"
}

const hexDigits = "0123456789abcdef"

// appendGroup appends a group's number and what kind of fields it has.
func appendGroup(dst []byte, group uint32, long bool) []byte {
	dst = append(dst, hexDigits[group>>12&15], hexDigits[group>>8&15], hexDigits[group>>4&15], hexDigits[group&15])
	if long {
		dst = append(dst, '+')
	}
	return dst
}
