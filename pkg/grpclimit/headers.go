package grpclimit

import (
	"net/http"
	"strings"

	"google.golang.org/grpc/metadata"

	"github.com/offpath-io/offpath/pkg/check"
)

// metadata is what the headers say of a decision, under their names in lower case.
func (l *Limit) metadata(d check.Decision) metadata.MD {
	header := make(http.Header, 4)
	l.headers.Write(header, d)
	md := make(metadata.MD, len(header))
	for name, values := range header {
		md[strings.ToLower(name)] = values
	}
	return md
}
