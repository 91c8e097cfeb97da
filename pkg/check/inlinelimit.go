package check

import (
	"github.com/offpath-io/offpath/pkg/check/internal/ruleset"
	"github.com/offpath-io/offpath/pkg/window"
)

// InlineLimit is a limit that a request brings along. Hits of one name and key share a count over
// the whole fleet, whatever their limits: a caller with a higher one finds room at once. The first
// hit of a name, and of a limit under it, takes some µs more than others.
type InlineLimit struct {
	// Name says what is counted: 1 to MaxInlineName bytes of UTF-8 without control characters.
	// Metrics and the ledger have it after "own ", with which no rule's name begins.
	Name string
	// Window over which Limit holds. All hits of a name need the same one. It must be a sliding or
	// fixed window.
	Window window.Shape
	// Limit is 1 to window.MaxCount.
	Limit int64
}

const (
	// MaxInlineName is the most bytes of an InlineLimit's name.
	MaxInlineName = 100
	// MaxInlineLimits is the most names of inline limits that a checker counts under. It gives none
	// up.
	MaxInlineLimits = 1024
)

// ErrInlineLimits is the Result.Err of one name more than MaxInlineLimits.
var ErrInlineLimits = ruleset.ErrInlineLimits
