package report

import (
	"fmt"
	"strings"

	"github.com/offpath-io/offpath/loadtest/result"
)

// alarms are what a reader must not overlook: runs that were stopped, and hits that are not accounted for.
func alarms(f result.File) []string {
	var list []string
	for _, r := range f.Runs {
		list = append(list, alarmsOf(r)...)
	}
	return list
}

func alarmsOf(r result.Run) []string {
	var list []string
	if r.Interrupted {
		list = append(list, fmt.Sprintf("INTERRUPTED: %s was stopped after %s of %s; its figures are of that part.",
			nameOf(r), scaled(r.MeasuredSeconds*1000, milliseconds), scaled(r.Params.DurationS*1000, milliseconds)))
	}
	if !r.Conservation.Holds {
		list = append(list, fmt.Sprintf("CONSERVATION DOES NOT HOLD: %s: %s.", nameOf(r), missing(r.Conservation)))
	}
	return list
}

// missing says which of the two equations of conservation is broken, and by how much.
func missing(c result.Conservation) string {
	var list []string
	if c.Admitted != c.Charged {
		list = append(list, fmt.Sprintf("%s admitted, but %s charged (%s)", count(c.Admitted), count(c.Charged), off(c.Charged-c.Admitted)))
	}
	if c.Charged != c.Stored {
		list = append(list, fmt.Sprintf("%s charged, but %s accounted for (%s)", count(c.Charged), count(c.Stored), off(c.Stored-c.Charged)))
	}
	if len(list) == 0 {
		return "the run says so, although its sums agree"
	}
	return strings.Join(list, "; ")
}

func off(difference int64) string {
	if difference < 0 {
		return count(-difference) + " missing"
	}
	return count(difference) + " too many"
}
