package check

import (
	"unsafe"

	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
)

// appendText appends to dst a key as counters, reports and the store have it: hashed if
// Options.KeyHash says so, or else bounded. The empty one is the counter for all, and nobody's.
func (c *Checker) appendText(dst []byte, key string) []byte {
	if h := c.o.KeyHash; h != nil && key != "" {
		return h.Append(dst, identity.Bound(key)) // as attributes make it
	}
	return append(dst, identity.Bound(key)...)
}

// checkHashed is checkAt for a key that is to be hashed.
func (l *Limiter) checkHashed(d *Decision, t *limits, now int64, key string, cost int64) {
	a := l.checker.scratch.Get().(*evaluation)
	defer l.checker.scratch.Put(a)
	a.text = l.checker.appendText(a.text[:0], key)
	l.checkAt(d, t, now, textAt(a.text, 0, len(a.text)), cost)
}

// appendKey appends to dst the text of a rule's key, unless attributes of it are missing.
func (c *Checker) appendKey(dst []byte, r *rules.Rule, attrs identity.Attributes) (text []byte, ok bool) {
	text, ok = r.AppendKey(dst, attrs)
	if !ok || c.o.KeyHash == nil || len(text) == len(dst) {
		return text, ok
	}
	var room [identity.HashedLen]byte
	plain := text[len(dst):]
	return append(dst, c.o.KeyHash.Append(room[:0], unsafe.String(&plain[0], len(plain)))...), true
}
