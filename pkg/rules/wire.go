package rules

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
)

// maxWireText is the most bytes that an override adds to its rule's name.
const maxWireText = 40

// WireName is the name of a counter in reports, the store and the ledger: the rule's name, and for an override (by its
// place in Overrides) with a limit of its own "name/attribute=value", or "name/" and a hash where that is long. It stays the same while the
// override's match does. -1, and overrides without a limit, have the rule's name. At most 128 bytes, unique in a set.
func (r *Rule) WireName(override int) string {
	if override < 0 || !r.Overrides[override].hasCounter() {
		return r.Name
	}
	return r.Name + "/" + r.Overrides[override].text()
}

// hasCounter reports whether the callers of the override are counted apart.
func (o *Override) hasCounter() bool { return o.Action == Limited }

// text is a short text of the override's match, whatever its order.
func (o *Override) text() string {
	parts := make([]string, len(o.Match))
	for i, c := range o.Match {
		parts[i] = c.Name + "=" + c.Pattern()
	}
	slices.Sort(parts)
	text := strings.Join(parts, ",")
	if len(parts) == 1 && len(text) <= maxWireText && strings.Count(text, "=") == 1 && checkName(text) == "" {
		return text
	}
	// Each with its length: no two matches make the same text to hash.
	sum := sha256.New()
	for _, part := range parts {
		size := len(part)
		sum.Write([]byte{byte(size >> 24), byte(size >> 16), byte(size >> 8), byte(size)})
		sum.Write([]byte(part))
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil)[:12])
}

// checkWireNames refuses names that are those of other counters of the set.
func (s *Set) checkWireNames(r *Rule) *fault {
	for i := range r.Overrides {
		name := r.WireName(i)
		if name == r.Name {
			continue
		}
		if len(name) > maxName {
			return faultf("the rule's name has %d bytes: with an override want at most %d", len(r.Name), maxName-len(name)+len(r.Name)).in("overrides", i)
		}
		other, taken := s.wire[name]
		if _, rule := s.byName[name]; rule || taken && other != r {
			return faultf("its counter would be called %q, as another rule's is", name).in("overrides", i)
		}
		s.wire[name] = r
	}
	return nil
}
