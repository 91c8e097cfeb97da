package upstream

import "net/http"

// early keeps the headers that were set before the service was asked. When the service sends an answer before the final one, 100 or
// 103, httputil.ReverseProxy forgets all headers that are set, those of the limit among them.
type early struct {
	http.ResponseWriter
	before http.Header
	forgot bool
}

// WriteHeader writes them too, before the service's own.
func (w *early) WriteHeader(status int) {
	if status < 200 && status != http.StatusSwitchingProtocols {
		w.ResponseWriter.WriteHeader(status)
		w.forgot = true
		return
	}
	if w.forgot {
		header := w.Header()
		for name, values := range w.before {
			header[name] = append(values[:len(values):len(values)], header[name]...)
		}
	}
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (w *early) Unwrap() http.ResponseWriter { return w.ResponseWriter }
