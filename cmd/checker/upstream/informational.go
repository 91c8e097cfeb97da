package upstream

import "net/http"

// informational keeps the headers that were set before the request was forwarded. When the service
// sends an informational response (100, 103), httputil.ReverseProxy deletes all headers, including
// those about the limit.
type informational struct {
	http.ResponseWriter
	before http.Header
	sent   bool
}

// WriteHeader restores them for the final response, before the service's own.
func (w *informational) WriteHeader(status int) {
	if status < 200 && status != http.StatusSwitchingProtocols {
		w.ResponseWriter.WriteHeader(status)
		w.sent = true
		return
	}
	if w.sent {
		header := w.Header()
		for name, values := range w.before {
			header[name] = append(values[:len(values):len(values)], header[name]...)
		}
	}
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (w *informational) Unwrap() http.ResponseWriter { return w.ResponseWriter }
