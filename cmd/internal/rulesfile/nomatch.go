package rulesfile

import (
	"github.com/spf13/pflag"

	"github.com/offpath-io/offpath/internal/flags"
)

// NoMatch is what becomes of requests that no rule matches.
type NoMatch string

// The values of NoMatch.
const (
	AllowNoMatch NoMatch = "allow"
	DenyNoMatch  NoMatch = "deny"
)

// AddFlag adds the flag that chooses.
func (m *NoMatch) AddFlag(s *pflag.FlagSet) {
	flags.Add(s, m, "on-no-match", "`allow|deny` requests that no rule matches",
		flags.OneOf(AllowNoMatch, DenyNoMatch))
}
