package door

import (
	"slices"

	"github.com/offpath-io/offpath/pkg/rules"
)

// waits says whether anything is to be waited for under a set of rules.
type waits struct {
	set    *rules.Set
	strict bool
}

// mayWait says whether a question may have to wait for permits: otherwise it needs no deadline, the making of which would be a
// good part of what a question takes. While the rules change, one may be answered without the wait that it could have had.
func (h *handler) mayWait() bool {
	if h.wait <= 0 {
		return false
	}
	set, known := h.checker.Rules(), h.waits.Load()
	if known == nil || known.set != set {
		isStrict := func(r *rules.Rule) bool { return r.Enforcement == rules.Strict }
		known = &waits{set, slices.ContainsFunc(set.Rules(), isStrict)}
		h.waits.Store(known)
	}
	return known.strict
}
