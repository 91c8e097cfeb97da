package upstream

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"time"
)

// Bounds of the connections to the service.
const (
	dialTimeout     = 5 * time.Second
	idleTimeout     = 90 * time.Second
	continueTimeout = time.Second
	// A silent HTTP/2 connection is pinged, and closed if the ping is not answered.
	pingAfter   = 30 * time.Second
	pingTimeout = 15 * time.Second

	maxAnswerHeader = 1 << 20
	maxIdle         = 256
)

func newTransport(o Options, config *tls.Config) *http.Transport {
	dial := o.dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}).DialContext
	}
	t := &http.Transport{
		// No Proxy from the environment: the service is the configured one.
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return patientConn{conn, o.Patience}, nil
		},
		TLSClientConfig:        config,
		TLSHandshakeTimeout:    dialTimeout,
		ResponseHeaderTimeout:  o.Answer,
		ExpectContinueTimeout:  continueTimeout,
		IdleConnTimeout:        idleTimeout,
		MaxIdleConnsPerHost:    maxIdle,
		MaxResponseHeaderBytes: maxAnswerHeader,
		DisableCompression:     true, // the client chooses what it accepts
		Protocols:              new(http.Protocols),
		HTTP2: &http.HTTP2Config{
			SendPingTimeout: pingAfter, PingTimeout: pingTimeout,
		},
	}
	switch o.Target.Scheme {
	case "h2c":
		t.Protocols.SetUnencryptedHTTP2(true)
	case "https":
		t.Protocols.SetHTTP1(true)
		t.Protocols.SetHTTP2(true)
	default:
		t.Protocols.SetHTTP1(true)
	}
	return t
}

// patientConn limits each write, which http.Transport does not: a service that stops reading a body
// would hold the request for ever.
type patientConn struct {
	net.Conn
	patience time.Duration
}

// Write writes in time.
func (c patientConn) Write(p []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(c.patience)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}
