// Package deploy holds what an operator starts from, for programs that carry it along.
package deploy

import _ "embed"

// Rules is rules.yaml: the commented example, and the rules of the demo. It must not be
// changed.
//
//go:embed rules.yaml
var Rules []byte
