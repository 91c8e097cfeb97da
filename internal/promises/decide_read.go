package promises

import (
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/rules/envoyrules"
)

// readRules reads what the commands read.
func readRules(text []byte) (*rules.Set, error) { return envoyrules.Read(text) }
