package upstream

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"strconv"
)

// fail answers a request that got no answer from the service.
func (p *proxy) fail(w http.ResponseWriter, r *http.Request, err error) {
	if broken := bodyError(r); broken != nil {
		w.Header().Set("Connection", "close") // where the body ends nobody knows
		if errors.Is(broken, os.ErrDeadlineExceeded) {
			problem(w, http.StatusRequestTimeout, "the request's body did not come in time")
			return
		}
		problem(w, http.StatusBadRequest, "the request's body is broken")
		return
	}
	status, detail := http.StatusBadGateway, "the service behind this proxy cannot be reached, or its answer is not HTTP"
	if late, ok := errors.AsType[net.Error](err); ok && late.Timeout() {
		status, detail = http.StatusGatewayTimeout, "the service behind this proxy did not answer in time"
	}
	// A client that has gone says nothing of the service.
	if r.Context().Err() == nil && p.down.CompareAndSwap(false, true) { // once: there may be thousands a second
		p.options.Log.Warn("the upstream does not answer", "upstream", p.options.Target.String(), "error", err)
	}
	problem(w, status, detail)
}

// problem writes a problem of RFC 9457. What went wrong in detail is in the log; clients need not know who is behind.
func problem(w http.ResponseWriter, status int, detail string) {
	body, err := json.Marshal(struct {
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail"`
	}{http.StatusText(status), status, detail})
	if err != nil { // unreachable: strings and a number
		body = []byte("{}")
	}
	body = append(body, '\n')
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // an error means that the client has gone
}
