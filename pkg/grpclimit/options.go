package grpclimit

import (
	"errors"
	"fmt"
	"maps"

	"github.com/offpath-io/offpath/pkg/internal/adapter"
	"github.com/offpath-io/offpath/pkg/limitheaders"
)

// checked returns a copy of valid options with the defaults filled in.
func (o Options) checked() (Options, error) {
	if len(o.Identity.Sources) > 0 {
		return o, errors.New("want Sources, since Identity.Sources are for HTTP")
	}
	for name, source := range o.Sources {
		switch {
		case name == "":
			return o, errors.New("a source without a name")
		case source == nil:
			return o, fmt.Errorf("source %.40q is nil", name)
		case name == ipName || name == addressName:
			return o, fmt.Errorf("source %q: only the connection and its trusted proxies provide it",
				name)
		case name == adapter.UserName && o.User != nil:
			return o, errors.New("want one of User and a source for user")
		}
	}
	o.Sources = maps.Clone(o.Sources)
	if o.Headers == 0 {
		o.Headers = limitheaders.None
	}
	return o, o.Headers.Validate()
}
