package grpclimit

import (
	"errors"
	"fmt"
	"maps"

	"github.com/offpath-io/offpath/pkg/httplimit"
	"github.com/offpath-io/offpath/pkg/internal/doors"
)

// own checks the options, takes a copy of what is shared, and fills in defaults.
func (o *Options) own() error {
	if len(o.Identity.Sources) > 0 {
		return errors.New("want Sources, since Identity.Sources are for HTTP")
	}
	for name, source := range o.Sources {
		switch {
		case name == "":
			return errors.New("a source without a name")
		case source == nil:
			return fmt.Errorf("source %.40q is nil", name)
		case name == ipName || name == addressName:
			return fmt.Errorf("source %q: it comes from the connection and its trusted proxies alone", name)
		case name == userName && o.User != nil:
			return errors.New("want one of User and a source for user")
		}
	}
	o.Sources = maps.Clone(o.Sources)
	if o.Headers == 0 {
		o.Headers = httplimit.NoHeaders
	}
	if o.Acquire == 0 {
		o.Acquire = doors.Acquire
	}
	return nil
}
