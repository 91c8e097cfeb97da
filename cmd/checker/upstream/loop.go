package upstream

import (
	"crypto/rand"
	"net/http"
	"slices"
	"strings"
)

// loopHeader is where intermediaries write themselves down, so that a request which comes back to one of them can be told (RFC 8586).
// Not Via, which is for that too: some services do less for requests that have it. nginx does not compress its answers to them.
const loopHeader = "Cdn-Loop"

// newMark returns what a proxy calls itself there: a name that nobody else has, and that no client can guess.
func newMark() string { return "offpath-" + rand.Text() }

// refuseLoops answers requests that this proxy has passed on before. They would come back for ever, each time on a connection
// more, until there are none left; and be charged each time.
func (p *proxy) refuseLoops(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !passedBy(r.Header, p.mark) {
			next.ServeHTTP(w, r)
			return
		}
		p.looped.Do(func() {
			p.options.Log.Error("the upstream leads back to this proxy", "upstream", p.options.Target.String())
		})
		problem(w, http.StatusLoopDetected, "the service behind this proxy leads back to this proxy")
	})
}

// passedBy says whether the proxy of this mark is among those that have passed a request on.
func passedBy(header http.Header, mark string) bool {
	return slices.ContainsFunc(header[loopHeader], func(list string) bool {
		return slices.ContainsFunc(strings.Split(list, ","), func(one string) bool { return strings.TrimSpace(one) == mark })
	})
}

// sign writes this proxy down after those that were there before.
func (p *proxy) sign(header http.Header) {
	header.Set(loopHeader, strings.Join(append(slices.Clone(header[loopHeader]), p.mark), ", "))
}
