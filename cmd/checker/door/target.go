package door

import (
	"errors"
	"strconv"

	"github.com/offpath-io/offpath/pkg/check"
)

// request is what a question asks the checker.
func (h *handler) request(q question) (check.Request, error) {
	r := check.Request{
		Attributes: q.attributes, Key: q.key, Cost: q.cost, Mode: modes[q.mode], Receipt: q.settle,
	}
	if q.hasAttributes {
		return r, nil
	}
	l, ok := h.checker.Limiter(q.rule)
	if !ok {
		return r, errors.New("rule " + strconv.Quote(q.rule) + ": there is no such rule")
	}
	r.Limiter = l
	return r, nil
}

// modes are what the modes of questions are to the checker.
var modes = map[mode]check.Mode{
	modeCheck: check.Charge, modePeek: check.Peek, modeRecord: check.Record,
	modeWait: check.Reserve, modeReserve: check.Reserve,
}
