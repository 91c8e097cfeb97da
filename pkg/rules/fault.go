package rules

import (
	"fmt"
	"strings"
)

// fault is what is wrong with a rule, and the way to the place of it: names of fields; places in lists and
// mappings, from 0; and names in mappings of the owner's own names, which the reason tells.
type fault struct {
	path   []any
	reason string
}

// entryName is a step to the entry of a mapping by its name.
type entryName string

func faultf(format string, args ...any) *fault {
	return &fault{reason: fmt.Sprintf(format, args...)}
}

// in puts steps before the way to the fault. It may be nil.
func (f *fault) in(steps ...any) *fault {
	if f != nil {
		f.path = append(steps, f.path...)
	}
	return f
}

// String is the fields on the way, and the reason; entries of lists only where a field of theirs is meant.
func (f *fault) String() string {
	var b strings.Builder
	for i, step := range f.path {
		switch step := step.(type) {
		case string:
			fmt.Fprintf(&b, "%s: ", step)
		case int:
			if i+1 < len(f.path) && isField(f.path[i+1]) {
				fmt.Fprintf(&b, "entry %d: ", step+1)
			}
		}
	}
	return b.String() + f.reason
}

func isField(step any) bool {
	_, ok := step.(string)
	return ok
}

// first is the first fault that there is.
func first(faults ...*fault) *fault {
	for _, f := range faults {
		if f != nil {
			return f
		}
	}
	return nil
}
