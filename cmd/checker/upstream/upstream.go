// Package upstream is the checker as a reverse proxy: it forwards the requests that its limit lets
// pass to one HTTP service.
//
// Bodies are streamed both ways, and never buffered: streams, server-sent events, WebSockets (over
// HTTP/1.1), gRPC and other trailers work. Other upgrades are not forwarded: within HTTP/2 (h2c) a
// client could send requests that are not checked. The service gets the client's Host, and the
// client's address in X-Forwarded-For, -Host and -Proto. What a client writes into these headers
// itself is dropped, unless it is a trusted proxy.
//
// A peer without progress is cut off: a client that sends half a body, or does not read its answer,
// and a service that cannot be reached (502) or does not begin to answer in time (504). Streams may
// be silent as long as both sides stay connected.
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

// Options of the proxy. Those without "if" are needed.
type Options struct {
	// Target is the service, as ParseTarget returns it.
	Target *url.URL
	// Limit decides: it calls the given handler if the request may pass, and otherwise answers
	// itself.
	Limit func(http.Handler) http.Handler
	// Identity knows the trusted proxies. They write the header Forwarding.
	Identity   *httpidentity.Builder
	Forwarding httpidentity.Forwarding
	// Answer is how long the service may take to begin its answer, once it has the whole request.
	Answer time.Duration
	// Patience is how long one read from or write to a client may take, or one write to the
	// service.
	Patience time.Duration
	Log      *slog.Logger
	// TLS, if set, returns the client configuration for a service with https://; nil checks it by
	// the system's authorities. It is called for each request; when it returns another
	// configuration, new connections use that.
	TLS func() *tls.Config

	dial func(ctx context.Context, network, address string) (net.Conn, error) // for tests
}

// ParseTarget reads the URL of a service: http://, https:// (HTTP/2 if the service has it), or
// h2c:// for HTTP/2 without TLS. Its path is prepended to that of each request.
func ParseTarget(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, errors.New("not a URL") // its own error quotes the text, and so a password
	case u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "h2c":
		return nil, fmt.Errorf("unknown scheme %.20q: want a URL such as http://127.0.0.1:3000, "+
			"https:// or h2c://", u.Scheme)
	case u.Hostname() == "":
		return nil, errors.New("a URL without a host")
	case u.User != nil:
		return nil, errors.New(
			"a URL with a user: a client's own Authorization is passed on, no other")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return nil, errors.New("a URL with a query or fragment: those are the client's")
	}
	return u, nil
}

// maxHeader bounds a request's header, in bytes: more than most services accept.
const maxHeader = 64 << 10

// Tune prepares a server for the proxy: HTTP/1.1 and HTTP/2, with or without TLS, and streams of
// any length.
func Tune(s *http.Server) {
	s.Protocols = new(http.Protocols)
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetHTTP2(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	s.MaxHeaderBytes = maxHeader
	s.ReadTimeout, s.WriteTimeout = 0, 0 // see patient
}

// New returns the proxy, for a server prepared by Tune.
func New(o Options) http.Handler {
	p := &proxy{options: o, mark: newMark()}
	forward := &httputil.ReverseProxy{
		Rewrite:        func(pr *httputil.ProxyRequest) { p.rewrite(pr); p.sign(pr.Out.Header) },
		Transport:      newReloadable(o),
		FlushInterval:  -1, // flush each piece
		BufferPool:     new(buffers),
		ErrorHandler:   p.fail,
		ModifyResponse: p.answered,
		// Its messages are about answers that broke off.
		ErrorLog: slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),
	}
	limited := o.Limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodConnect: // a tunnel to anywhere, or an unknown kind of stream
			w.Header().Set("Connection", "close")
			problem(w, http.StatusMethodNotAllowed, "CONNECT is not passed on")
		case r.URL.Opaque != "": // "GET x:login" has no path, and would be forwarded as "GET login"
			problem(w, http.StatusBadRequest, "the request's target has no path")
		default:
			w = &informational{ResponseWriter: w, before: maps.Clone(w.Header())}
			forward.ServeHTTP(w, r)
		}
	}))
	return patient(o.Patience, p.refuseLoops(limited))
}

type proxy struct {
	options Options
	mark    string      // its name, see loopHeader
	down    atomic.Bool // the service did not answer the last request
	looped  sync.Once   // a loop has been logged
}

// answered notes that the service answers.
func (p *proxy) answered(r *http.Response) error {
	if len(r.Trailer) > 0 { // HTTP/1.1 has no trailers beside a length, HTTP/2 has
		r.Header.Del("Content-Length")
	}
	if p.down.Load() && p.down.CompareAndSwap(true, false) {
		p.options.Log.Info("the upstream answers again", "upstream", p.options.Target.String())
	}
	return nil
}

// buffers are used to copy bodies.
type buffers struct{ pool sync.Pool }

// bufferSize is that of io.Copy.
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
