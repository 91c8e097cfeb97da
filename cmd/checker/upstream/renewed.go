package upstream

import (
	"crypto/tls"
	"net/http"
	"sync"
	"sync/atomic"
)

// renewed is a transport that is replaced when its TLS is another: http.Transport holds one configuration for ever. What is under
// way ends where it began.
type renewed struct {
	options Options
	now     atomic.Pointer[transportOf]
	mu      sync.Mutex // held to replace it
}

// transportOf is the transport of one configuration, which may be nil.
type transportOf struct {
	config    *tls.Config
	transport *http.Transport
}

func newRenewed(o Options) *renewed {
	if o.TLS == nil {
		o.TLS = func() *tls.Config { return nil }
	}
	r := &renewed{options: o}
	r.put(o.TLS())
	return r
}

// RoundTrip makes one request.
func (r *renewed) RoundTrip(request *http.Request) (*http.Response, error) {
	config, now := r.options.TLS(), r.now.Load()
	if config != now.config {
		now = r.replace()
	}
	return now.transport.RoundTrip(request)
}

// replace makes another transport, unless somebody else just has.
func (r *renewed) replace() *transportOf {
	r.mu.Lock()
	defer r.mu.Unlock()
	old, config := r.now.Load(), r.options.TLS()
	if old.config == config {
		return old
	}
	old.transport.CloseIdleConnections()
	return r.put(config)
}

func (r *renewed) put(config *tls.Config) *transportOf {
	next := &transportOf{config, transport(r.options, config.Clone())} // a copy: it adds its protocols
	r.now.Store(next)
	return next
}
