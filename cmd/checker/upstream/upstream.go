// Package upstream is the checker as a reverse proxy: it passes on to one HTTP service what its limit lets pass.
//
// Bodies are passed on as they come, both ways, and never held: streams, server-sent events, WebSockets (over HTTP/1.1), gRPC
// and other trailers work. Other upgrades are not passed on: within HTTP/2 (h2c) a client could go on asking unseen. The service sees the Host that the client has asked for, and who that is in X-Forwarded-For, -Host and
// -Proto. What a client writes into such headers itself is dropped, unless it is a trusted proxy.
//
// Whoever makes no progress is cut off: a client that sends half a body, or reads no answer, and a service that is not
// reached (502) or does not begin to answer in time (504). Streams may be silent as long as both sides stay.
package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/offpath-io/offpath/pkg/identity/httpidentity"
)

// Options say what the proxy stands on.
type Options struct {
	// Target is the service, as ParseTarget returns it.
	Target *url.URL
	// Limit decides: it calls the handler it is given if the request may pass, and else answers
	// itself.
	Limit func(http.Handler) http.Handler
	// Identity knows the trusted proxies, and which header they write, Forwarding.
	Identity   *httpidentity.Builder
	Forwarding httpidentity.Forwarding
	// Answer is how long the service may take until it begins to answer, once it has the whole
	// request.
	Answer time.Duration
	// Patience is how long one read or write may take while a client sends or is sent to, or the
	// service is sent to.
	Patience time.Duration
	Log      *slog.Logger
	// TLS, if it is set, says how to check a service with https://, and what to show it; nil is by
	// the system's authorities. It is asked for each request; when it returns another one, further
	// connections go by that.
	TLS func() *tls.Config

	dial func(ctx context.Context, network, address string) (net.Conn, error) // in tests, in place of the network
}

// ParseTarget reads the URL of a service: http://, https:// (HTTP/2 if the service has it), or
// h2c:// for HTTP/2 without TLS. A path is put before that of each request.
func ParseTarget(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, errors.New("not a URL") // its own error quotes the text, and so a password
	case u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "h2c":
		return nil, fmt.Errorf("unknown scheme %.20q: want a URL such as http://127.0.0.1:3000, https:// or h2c://", u.Scheme)
	case u.Hostname() == "":
		return nil, errors.New("a URL without a host")
	case u.User != nil:
		return nil, errors.New("a URL with a user: a client's own Authorization is passed on, no other")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return nil, errors.New("a URL with a query or fragment: those are the client's")
	}
	return u, nil
}

// maxHeader is the most bytes of a request's header: more than most services take.
const maxHeader = 64 << 10

// Tune makes a server fit for the proxy: HTTP/1.1 and HTTP/2, with or without TLS, and no bound on
// the length of a stream.
func Tune(s *http.Server) {
	s.Protocols = new(http.Protocols)
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetHTTP2(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	s.MaxHeaderBytes = maxHeader
	s.ReadTimeout, s.WriteTimeout = 0, 0 // see patient
}

// New returns the proxy, for a server that is tuned.
func New(o Options) http.Handler {
	p := &proxy{options: o, mark: newMark()}
	forward := &httputil.ReverseProxy{
		Rewrite:        func(pr *httputil.ProxyRequest) { p.rewrite(pr); p.sign(pr.Out.Header) },
		Transport:      newRenewed(o),
		FlushInterval:  -1, // each piece at once
		BufferPool:     new(buffers),
		ErrorHandler:   p.fail,
		ModifyResponse: p.answered,
		ErrorLog:       slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug), // answers that broke off
	}
	return patient(o.Patience, p.refuseLoops(o.Limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodConnect: // asks for a tunnel to anywhere, or for a kind of stream that nobody here speaks
			w.Header().Set("Connection", "close")
			problem(w, http.StatusMethodNotAllowed, "CONNECT is not passed on")
		case r.URL.Opaque != "": // "GET x:login", which would be passed on as "GET login", and has no path by any rule
			problem(w, http.StatusBadRequest, "the request's target has no path")
		default:
			forward.ServeHTTP(&early{ResponseWriter: w, before: maps.Clone(w.Header())}, r)
		}
	}))))
}

type proxy struct {
	options Options
	mark    string      // what it calls itself, see loopHeader
	down    atomic.Bool // the last request did not reach the service
	looped  sync.Once   // a loop has been logged
}

// answered notes that the service is there.
func (p *proxy) answered(r *http.Response) error {
	if len(r.Trailer) > 0 { // HTTP/1.1 has trailers only where it does not tell the length, HTTP/2 everywhere
		r.Header.Del("Content-Length")
	}
	if p.down.Load() && p.down.CompareAndSwap(true, false) {
		p.options.Log.Info("the upstream answers again", "upstream", p.options.Target.String())
	}
	return nil
}

// buffers are those that bodies are copied through.
type buffers struct{ pool sync.Pool }

// bufferSize is that of one copy, as large as io.Copy's.
const bufferSize = 32 << 10

// Get returns a buffer.
func (b *buffers) Get() []byte {
	if buffer, ok := b.pool.Get().(*[bufferSize]byte); ok {
		return buffer[:]
	}
	return new([bufferSize]byte)[:]
}

// Put takes one back.
func (b *buffers) Put(buffer []byte) { b.pool.Put((*[bufferSize]byte)(buffer)) }
