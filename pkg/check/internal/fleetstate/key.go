package fleetstate

import (
	"unsafe"

	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
)

// AppendText appends to dst a key as counters, reports and the store have it: hashed if
// Config.KeyHash is set, otherwise bounded. The empty key, which counts all requests together, is
// never hashed.
func (s *State) AppendText(dst []byte, key string) []byte {
	if hash := s.Config.KeyHash; hash != nil && key != "" {
		return hash.Append(dst, identity.Bound(key)) // as attributes make it
	}
	return append(dst, identity.Bound(key)...)
}

// AppendKey appends to dst the text of a rule's key; ok is false if attributes for it are missing.
func (s *State) AppendKey(dst []byte, r *rules.Rule, attrs identity.Attributes) (text []byte, ok bool) {
	text, ok = r.AppendKey(dst, attrs)
	hash := s.Config.KeyHash
	if !ok || hash == nil || len(text) == len(dst) {
		return text, ok
	}
	var room [identity.HashedLen]byte
	plain := text[len(dst):]
	return append(dst, hash.Append(room[:0], unsafe.String(&plain[0], len(plain)))...), true
}
