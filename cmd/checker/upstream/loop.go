package upstream

import (
	"crypto/rand"
	"net/http"
	"slices"
	"strings"
)

// loopHeader lists the intermediaries that a request has passed, so that each can detect a loop
// (RFC 8586). Via is for that, too, but changes what services do: nginx does not compress its
// answers to requests with it.
const loopHeader = "Cdn-Loop"

// newMark returns a proxy's name in that list. It is unique, and no client can guess it.
func newMark() string { return "offpath-" + rand.Text() }

// refuseLoops answers requests that this proxy has passed on before. They would come back for ever,
// and each time take another connection and be charged again.
func (p *proxy) refuseLoops(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !passedBy(r.Header, p.mark) {
			next.ServeHTTP(w, r)
			return
		}
		p.looped.Do(func() {
			p.options.Log.Error("the upstream leads back to this proxy",
				"upstream", p.options.Target.String())
		})
		problem(w, http.StatusLoopDetected,
			"the service behind this proxy leads back to this proxy")
	})
}

// passedBy reports whether a request has passed the proxy of this mark.
func passedBy(header http.Header, mark string) bool {
	for _, list := range header[loopHeader] {
		for name := range strings.SplitSeq(list, ",") {
			if strings.TrimSpace(name) == mark {
				return true
			}
		}
	}
	return false
}

// sign adds this proxy to the list.
func (p *proxy) sign(header http.Header) {
	header.Set(loopHeader, strings.Join(append(slices.Clone(header[loopHeader]), p.mark), ", "))
}
