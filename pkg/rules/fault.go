package rules

import (
	"fmt"
	"slices"

	"github.com/offpath-io/offpath/pkg/rules/internal/strictyaml"
)

// fault is something wrong with a rule, and the path to it: names of fields, places in lists
// from 0, and strictyaml.Keys, which the reason tells.
type fault struct {
	path   path
	reason string
}

// String is the fields on the path, and the reason.
func (f fault) String() string { return strictyaml.PathText(f.path, "") + f.reason }

// faults is what is wrong with a rule; nil is nothing.
type faults []fault

func faultf(format string, args ...any) faults {
	return faults{{reason: fmt.Sprintf(format, args...)}}
}

// path are the steps to a fault.
type path = []any

// add adds a fault at the path.
func (f *faults) add(at path, format string, args ...any) {
	*f = append(*f, fault{at, fmt.Sprintf(format, args...)})
}

// in puts steps before the paths.
func (f faults) in(steps ...any) faults {
	for i := range f {
		f[i].path = slices.Concat(steps, f[i].path)
	}
	return f
}

// join leaves out all faults with the same path but the first.
func join(all ...faults) (joined faults) {
	for _, f := range slices.Concat(all...) {
		same := func(other fault) bool { return slices.Equal(f.path, other.path) }
		if len(joined) < strictyaml.MaxMistakes && !slices.ContainsFunc(joined, same) {
			joined = append(joined, f)
		}
	}
	return joined
}
