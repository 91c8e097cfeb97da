package upstream

import (
	"crypto/tls"
	"net/http"
	"sync"
	"sync/atomic"
)

// reloadable is a transport that is replaced when its TLS configuration changes: an http.Transport
// keeps one configuration for ever. Requests in progress end on the old one.
type reloadable struct {
	options Options
	current atomic.Pointer[configured]
	mu      sync.Mutex // held to replace it
}

// configured is the transport of one configuration, which may be nil.
type configured struct {
	config    *tls.Config
	transport *http.Transport
}

func newReloadable(o Options) *reloadable {
	if o.TLS == nil {
		o.TLS = func() *tls.Config { return nil }
	}
	r := &reloadable{options: o}
	r.set(o.TLS())
	return r
}

// RoundTrip makes one request.
func (r *reloadable) RoundTrip(request *http.Request) (*http.Response, error) {
	now := r.current.Load()
	if r.options.TLS() != now.config {
		now = r.reload()
	}
	return now.transport.RoundTrip(request)
}

// reload replaces the transport, unless another goroutine just has.
func (r *reloadable) reload() *configured {
	r.mu.Lock()
	defer r.mu.Unlock()
	old, config := r.current.Load(), r.options.TLS()
	if old.config == config {
		return old
	}
	old.transport.CloseIdleConnections()
	return r.set(config)
}

func (r *reloadable) set(config *tls.Config) *configured {
	// The transport adds its protocols to the configuration, so it gets a copy.
	next := &configured{config, newTransport(r.options, config.Clone())}
	r.current.Store(next)
	return next
}
