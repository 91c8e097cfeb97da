package rules

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
	"slices"
	"strings"
)

// maxWireText is the most bytes that an override adds to its rule's name.
const maxWireText = 40

// WireName is the name of a counter in reports, the store and the ledger: the rule's name, and for
// an override (by its place in Overrides) with a limit of its own "name/attribute=value", or
// "name/" and a hash where that is long. It stays the same while the override's match does. -1, and
// overrides without a limit, have the rule's name. At most 128 bytes, unique in a set.
func (r *Rule) WireName(override int) string {
	if override < 0 || !r.Overrides[override].hasCounter() {
		return r.Name
	}
	return r.Name + "/" + r.Overrides[override].text()
}

// WireLimit is the limit of that counter in reports, by which aggregators raise alarms and grant
// permits: its own, with what a soft rule lets through beyond it, and with what an elastic one does
// under a strict limit.
func (r *Rule) WireLimit(override int) int64 {
	limit := r.Terms(override).Limit
	switch {
	case r.Window.Drains(): // more may be in at once, and no more drains
		return limit
	case r.Throttle.Kind == Soft:
		return Part(limit, 1+r.Throttle.Exceed)
	case r.Throttle.Kind == Elastic && r.Enforcement == Strict:
		return Part(limit, r.Throttle.UpTo)
	}
	return limit
}

// Loose says whether more may pass than that limit as the rule wants it: there is no saying how far
// beyond it is too far.
func (r *Rule) Loose() bool {
	return r.Shadow || r.Count == All || r.Throttle.Kind == Elastic && r.Enforcement != Strict
}

// Part is a part of a limit, rounded down to whole hits, at least 1. Parts are decimal fractions,
// which floating point misses by a little.
func Part(limit int64, part float64) int64 {
	return max(int64(math.Floor(float64(limit)*part+1e-6)), 1)
}

// hasCounter reports whether the callers of the override are counted apart.
func (o *Override) hasCounter() bool { return o.Action == Limited }

// text is a short text of the override's match, whatever its order.
func (o *Override) text() string {
	if len(o.Match) == 1 {
		c := o.Match[0]
		text := c.Name + "=" + c.Pattern()
		if len(text) <= maxWireText && strings.Count(text, "=") == 1 && checkName(text) == "" {
			return text
		}
	}
	match := slices.Clone(o.Match)
	slices.SortFunc(match, func(a, b Condition) int { return strings.Compare(a.Name, b.Name) })
	var text []byte
	for _, c := range match { // each with its length, so that no two matches make the same text
		for _, part := range []string{c.Name, c.Pattern()} {
			text = binary.BigEndian.AppendUint32(text, uint32(len(part)))
			text = append(text, part...)
		}
	}
	sum := sha256.Sum256(text)
	return "sha256:" + hex.EncodeToString(sum[:12])
}

// checkWireNames refuses names that are those of other counters of the set.
func (s *Set) checkWireNames(r *Rule) (all faults) {
	for i := range r.Overrides {
		name := r.WireName(i)
		if name == r.Name {
			continue
		}
		other, taken := s.wire[name]
		_, rule := s.byName[name]
		switch {
		case len(name) > maxName:
			all.add(path{"overrides", i}, "entry %d: the rule's name has %d bytes: with this "+
				"override want at most %d", i+1, len(r.Name), maxName-len(name)+len(r.Name))
		case rule || taken && other != r:
			all.add(path{"overrides", i}, "entry %d: its counter would be called %q, as another "+
				"rule's is: rename one of the rules", i+1, name)
		default:
			s.wire[name] = r
		}
	}
	return all
}
