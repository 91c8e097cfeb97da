package httpload

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/offpath-io/offpath/internal/redact"
)

// overHTTP asks a server of cmd/checker.
type overHTTP struct {
	client *http.Client
	url    string
	bodies [][]byte // by key
}

func openHTTP(o Options, transport http.RoundTripper) (*overHTTP, error) {
	bodies, err := o.bodies()
	if err != nil {
		return nil, err
	}
	return &overHTTP{&http.Client{
		Transport:     transport,
		Timeout:       o.Timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, o.URL, bodies}, nil
}

// newTransport keeps one connection per worker. It asks the server itself, not a proxy.
func newTransport(o Options) *http.Transport {
	return &http.Transport{
		DialContext:         (&net.Dialer{Timeout: o.Timeout}).DialContext,
		TLSClientConfig:     o.TLS.Clone(),
		TLSHandshakeTimeout: o.Timeout,
		MaxIdleConns:        o.Connections,
		MaxIdleConnsPerHost: o.Connections,
		MaxConnsPerHost:     o.Connections,
		DisableCompression:  true,
	}
}

func (s *overHTTP) name() string { return redact.URLs(s.url) }

func (s *overHTTP) close() { s.client.CloseIdleConnections() }

// ask posts a question and reads the answer to its end, since otherwise the connection could not be
// used again.
func (s *overHTTP) ask(ctx context.Context, key int) (status int, text string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(s.bodies[key]))
	if err != nil {
		return 0, "", err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := s.client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	if !expected(response.StatusCode) {
		const enough = 200
		start, err := io.ReadAll(io.LimitReader(response.Body, enough))
		if err != nil {
			return 0, "", fmt.Errorf("read answer: %w", err)
		}
		text = string(bytes.TrimSpace(start))
	}
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return 0, "", fmt.Errorf("read answer: %w", err)
	}
	return response.StatusCode, text, nil
}
