package upstream

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"strconv"
)

// fail answers a request that the service did not answer.
func (p *proxy) fail(w http.ResponseWriter, r *http.Request, err error) {
	if broken := bodyError(r); broken != nil {
		w.Header().Set("Connection", "close") // the end of the body is unknown
		if errors.Is(broken, os.ErrDeadlineExceeded) {
			problem(w, http.StatusRequestTimeout, "the request's body did not come in time")
			return
		}
		problem(w, http.StatusBadRequest, "the request's body is broken")
		return
	}
	status := http.StatusBadGateway
	detail := "the service behind this proxy cannot be reached, or its answer is not HTTP"
	if late, ok := errors.AsType[net.Error](err); ok && late.Timeout() {
		status = http.StatusGatewayTimeout
		detail = "the service behind this proxy did not answer in time"
	}
	// The error of a request whose client has gone says nothing about the service. An outage is
	// logged once: there may be thousands of requests per second.
	if r.Context().Err() == nil && p.down.CompareAndSwap(false, true) {
		p.options.Log.Warn("the upstream does not answer",
			"upstream", p.options.Target.String(), "error", err)
	}
	problem(w, status, detail)
}

// problem writes a problem of RFC 9457. The log has the details: clients need not know the service.
func problem(w http.ResponseWriter, status int, detail string) {
	body, _ := json.Marshal(struct { // no error: strings and a number
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail"`
	}{http.StatusText(status), status, detail})
	body = append(body, '\n')
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // an error means that the client has gone
}
